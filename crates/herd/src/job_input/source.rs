//! The file a job is read from: found, bounded, recognised, parsed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use herd_core::diagnostic::Diagnostics;
use herd_core::skypilot::{self, Input, Mount};
use herd_core::spec::JobSpec;

use super::{Surroundings, program};
use crate::error::Fault;

/// More than this is no job file; the parser refuses what it is given beyond its own limit.
const MAX_BYTES: u64 = 4 << 20;

/// What standard input is called in messages.
pub(super) const STDIN: &str = "standard input";

/// A job file that was read.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// The job.
    pub(crate) spec: JobSpec,
    /// The file's content, byte for byte.
    pub(crate) bytes: Vec<u8>,
    /// What was not carried over and changes no result.
    pub(crate) warnings: Vec<String>,
    /// Local paths that the job expects at another place.
    pub(crate) mounts: Vec<Mount>,
    /// Where the file's relative paths start.
    pub(crate) base: PathBuf,
    /// The file's own name, absent for standard input.
    pub(crate) file_name: Option<String>,
}

/// Why there is no job.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The file cannot be read.
    Unreadable(Fault),
    /// The file's content is wrong.
    Faulty(Box<Diagnostics>),
}

/// Reads `path`, or standard input for `-`. `given` are the variables that flags set.
pub(crate) fn read(
    path: &Path,
    given: &BTreeSet<String>,
    around: &mut Surroundings<'_>,
) -> Result<JobFile, Refused> {
    let (bytes, name, base) = if path == Path::new("-") {
        let bytes = bounded(&mut *around.stdin, MAX_BYTES).map_err(|problem| {
            Refused::Unreadable(Fault::new(format!("standard input: {problem}")))
        })?;
        (bytes, STDIN.to_owned(), around.cwd.clone())
    } else {
        let full = around.cwd.join(path);
        let name = path.display().to_string();
        let bytes = read_bounded(&full, MAX_BYTES).map_err(|problem| {
            Refused::Unreadable(Fault::new(format!("{name}: {problem}")).hint(format!(
                "to run a program rather than a job file: herd run -- {name}"
            )))
        })?;
        if let Some(fault) = program::refuse(path, &full, &bytes) {
            return Err(Refused::Unreadable(fault));
        }
        let base = full
            .parent()
            .map_or_else(|| around.cwd.clone(), Path::to_path_buf);
        (bytes, name, base)
    };
    let file_name = (path != Path::new("-")).then(|| name.clone());
    let input = skypilot::read_any(&bytes, &name, given)
        .map_err(|found| Refused::Faulty(Box::new(found)))?;
    let job = JobFile {
        spec: JobSpec::default(),
        bytes,
        warnings: Vec::new(),
        mounts: Vec::new(),
        base,
        file_name,
    };
    Ok(match input {
        Input::Job(spec) => JobFile { spec, ..job },
        Input::Task(task) => JobFile {
            spec: task.spec,
            warnings: task
                .notes
                .iter()
                .map(|note| format!("{name}:{note}"))
                .collect(),
            mounts: task.mounts,
            // SkyPilot's relative paths start where the command is given, not beside the file.
            base: around.cwd.clone(),
            ..job
        },
    })
}

/// A regular file's content up to a bound.
pub(crate) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut file = File::open(path).map_err(|error| format!("cannot open it: {error}"))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err("is a directory".to_owned());
    }
    bounded(&mut file, most)
}

fn bounded(reader: &mut dyn Read, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    reader
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read it: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("is larger than {} MiB", most >> 20));
    }
    Ok(bytes)
}
