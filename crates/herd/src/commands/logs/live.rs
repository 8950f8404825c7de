//! `herd logs -f --live`: the output as the job's driver sends it. It is kept in two files of our own,
//! which are read as those of the job are.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use herd_backends::local::Announcer;
use herd_jobdir::JobDirError;
use herd_jobdir::runlog::{DATA_NAME, Filter, INDEX_NAME, RunLogReader};
use herd_runtime::session::follow_client::Output;
use tempfile::TempDir;

use super::shape::Shaper;
use super::{IDLE, tell_what_it_waits_for, unreadable};
use crate::backend_local;
use crate::error::ExpectedError;
use crate::jobs::Job;
use crate::printer::Printer;
use crate::watch::Watch;

/// Bytes copied at once from a file of the job.
const COPIED_AT_ONCE: usize = 64 * 1024;

/// Follows until the job ends or nobody reads.
pub(super) fn follow(
    job: &Job,
    filter: Filter,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let kept = |error| ExpectedError::failed("keep the job's output in a temporary file", error);
    let mut mirror = Mirror::new(filter).map_err(kept)?;
    let mut announcer = Announcer::new(Instant::now());
    let watch = Watch::new();
    watch.add(job.dir.path());
    let mut text = Vec::new();
    loop {
        let mut failed = None;
        // Where no driver can be reached there is none just now, or never again: the job tells.
        let _unreachable = backend_local::follow(&job.dir, mirror.has(), |output| {
            let shown = mirror
                .take(output)
                .map_err(kept)
                .and_then(|()| mirror.show(shaper, printer, &mut text).map_err(unreadable));
            if matches!(output, Output::Idle) {
                printer.flush();
            }
            failed = shown.err();
            if failed.is_some() || printer.is_closed() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if printer.is_closed() {
            return Ok(());
        }
        if tell_what_it_waits_for(job, &mut announcer, printer)? {
            // What no driver sent, because it died or ended first.
            mirror.copy_rest(job).map_err(kept)?;
            return mirror.show(shaper, printer, &mut text).map_err(unreadable);
        }
        watch.wait(IDLE);
    }
}

/// The merged output as far as it came.
struct Mirror {
    filter: Filter,
    /// Removed as soon as the files are open for reading, so that none stays behind.
    directory: Option<TempDir>,
    log: Part,
    index: Part,
    /// Opened when all is there that was at the beginning, since a tail counts from its end.
    reader: Option<RunLogReader>,
}

impl Mirror {
    fn new(filter: Filter) -> io::Result<Self> {
        let directory = TempDir::with_prefix("herd-logs-")?;
        Ok(Self {
            filter,
            log: Part::create(&directory, DATA_NAME)?,
            index: Part::create(&directory, INDEX_NAME)?,
            directory: Some(directory),
            reader: None,
        })
    }

    fn has(&self) -> (u64, u64) {
        (self.log.length, self.index.length)
    }

    fn take(&mut self, output: Output<'_>) -> io::Result<()> {
        match output {
            Output::Log(bytes) => self.log.append(bytes),
            Output::Index(bytes) => self.index.append(bytes),
            Output::CaughtUp => {
                self.open();
                Ok(())
            }
            Output::Idle => Ok(()),
        }
    }

    fn open(&mut self) {
        let Some(directory) = self.directory.take() else {
            return;
        };
        // Both files are there: they were just made.
        self.reader = RunLogReader::open(directory.path(), self.filter.clone())
            .ok()
            .flatten();
    }

    fn show(
        &mut self,
        shaper: &mut Shaper,
        printer: &mut Printer,
        text: &mut Vec<u8>,
    ) -> Result<(), JobDirError> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        while !printer.is_closed()
            && let Some(entry) = reader.read()?
        {
            printer.data(shaper.shown(&entry, text));
        }
        Ok(())
    }

    /// Adds what the job's own files have beyond this; the index's length first, so that it speaks of
    /// no text that is not copied.
    fn copy_rest(&mut self, job: &Job) -> io::Result<()> {
        let open = |name: &str| match File::open(job.dir.path().join(name)) {
            Ok(file) => file.metadata().map(|data| Some((file, data.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        if let (Some((index, records)), Some((log, length))) = (open(INDEX_NAME)?, open(DATA_NAME)?)
        {
            self.log.copy(&log, length)?;
            self.index.copy(&index, records)?;
        }
        self.open();
        Ok(())
    }
}

/// One of the two files.
struct Part {
    file: File,
    length: u64,
}

impl Part {
    fn create(directory: &TempDir, name: &str) -> io::Result<Self> {
        let file = File::create_new(directory.path().join(name))?;
        Ok(Self { file, length: 0 })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn copy(&mut self, from: &File, length: u64) -> io::Result<()> {
        let mut buffer = vec![0; COPIED_AT_ONCE];
        while self.length < length {
            let left = usize::try_from(length - self.length).unwrap_or(usize::MAX);
            let wanted = left.min(COPIED_AT_ONCE);
            let read = from.read_at(&mut buffer[..wanted], self.length)?;
            if read == 0 {
                return Ok(());
            }
            self.append(&buffer[..read])?;
        }
        Ok(())
    }
}
