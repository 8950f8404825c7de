//! The log of one task of an array: a file of its own, without prefixes and without an index.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};

use herd_jobdir::sanitize::Sanitizer;

use super::super::Outcome;
use crate::cli::query::LogsArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::watch::{BOUND, Watch};

/// Longest line kept in memory; longer ones are cut into pieces.
const MAX_LINE: u64 = 1 << 20;

/// The same request for the herd of a login node, which has the file.
pub(super) fn words(args: &LogsArgs, job: &Job, index: u32) -> Vec<String> {
    let mut words = vec!["logs".to_owned(), "--task".to_owned(), index.to_string()];
    words.extend(args.follow.then(|| "--follow".to_owned()));
    words.extend(args.raw.then(|| "--raw".to_owned()));
    if let Some(lines) = args.tail {
        words.extend(["--tail".to_owned(), lines.to_string()]);
    }
    words.extend(args.grep.as_ref().map(|text| format!("--grep={text}")));
    words.push(job.dir.id().to_string());
    words
}

/// Prints the task's log, and follows it until the job ends.
pub(super) fn run(args: &LogsArgs, job: &Job, index: u32, printer: &mut Printer) -> Outcome {
    let path = job.dir.task_log(index);
    let failed = |error| ExpectedError::failed(format!("read {}", path.display()), error);
    let watch = Watch::new();
    watch.add(job.dir.path());
    let mut ended = job.is_ended();
    let file = loop {
        match File::open(&path) {
            Ok(file) => break file,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            Err(_) if args.follow && !ended => {
                watch.wait(BOUND);
                ended = jobs::read(job.dir.clone())?.is_ended();
            }
            Err(_) => {
                return Err(ExpectedError::WrongState {
                    job: job.short(),
                    problem: format!("has no output of a task {index}"),
                    hint: Some(format!("`herd status {}` counts its tasks", job.short())),
                });
            }
        }
    };
    watch.add(&path);
    let mut reader = BufReader::new(file);
    let mut shown = Shown::new(args);
    let mut tail = args.tail.map(|lines| (lines, VecDeque::new()));
    loop {
        let mut line = Vec::new();
        let read = (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(failed)?;
        if read > 0 {
            if !shown.wants(&line) {
                continue;
            }
            match &mut tail {
                Some((lines, kept)) => {
                    kept.push_back(line);
                    if kept.len() > *lines {
                        kept.pop_front();
                    }
                }
                None => shown.print(&line, printer),
            }
            if printer.is_closed() {
                return Ok(0);
            }
            continue;
        }
        for line in tail.take().map(|(_, kept)| kept).unwrap_or_default() {
            shown.print(&line, printer);
        }
        if !args.follow || ended || printer.is_closed() {
            return Ok(0);
        }
        printer.flush();
        watch.wait(BOUND);
        // Looked at before the next read: what was written before the end is then read.
        ended = jobs::read(job.dir.clone())?.is_ended();
    }
}

struct Shown<'a> {
    grep: Option<&'a [u8]>,
    filter: Option<Sanitizer>,
    buffer: Vec<u8>,
}

impl<'a> Shown<'a> {
    fn new(args: &'a LogsArgs) -> Self {
        Self {
            grep: args.grep.as_deref().map(str::as_bytes),
            filter: (!args.raw).then(Sanitizer::default),
            buffer: Vec::new(),
        }
    }

    fn wants(&self, line: &[u8]) -> bool {
        match self.grep {
            Some([]) | None => true,
            Some(text) => line.windows(text.len()).any(|window| window == text),
        }
    }

    fn print(&mut self, line: &[u8], printer: &mut Printer) {
        match &mut self.filter {
            Some(filter) => {
                self.buffer.clear();
                filter.push(line, &mut self.buffer);
                printer.data(&self.buffer);
            }
            None => printer.data(line),
        }
    }
}
