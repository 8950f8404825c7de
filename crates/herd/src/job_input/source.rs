//! The file a job is read from: found, bounded, recognised, parsed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use herd_core::diagnostic::Diagnostics;
use herd_core::jobfile::Unread;
use herd_core::skypilot::{self, Input, Mount};
use herd_core::spec::JobSpec;
use herd_slurm::import;

use super::{Surroundings, program};
use crate::error::Fault;

/// More than this is no job file; the parser refuses what it is given beyond its own limit.
pub(crate) const MAX_BYTES: u64 = 4 << 20;

/// What standard input is called in messages.
pub(super) const STDIN: &str = "standard input";

/// A job file, as far as it could be read.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// The job.
    pub(crate) spec: JobSpec,
    /// What is wrong with it.
    pub(crate) faults: Option<Diagnostics>,
    /// The keys that could not be read.
    pub(crate) unread: Unread,
    /// The file's content, byte for byte; absent for a command.
    pub(crate) bytes: Option<Vec<u8>>,
    /// What was not carried over and changes no result.
    pub(crate) warnings: Vec<String>,
    /// Local paths that the job expects at another place.
    pub(crate) mounts: Vec<Mount>,
    /// Where the file's relative paths start.
    pub(crate) base: PathBuf,
    /// The file's own name, absent for standard input.
    pub(crate) file_name: Option<String>,
}

impl JobFile {
    /// A job without a file, to which a command and flags will say all.
    pub(super) fn none(around: &Surroundings<'_>) -> Self {
        Self {
            spec: JobSpec::default(),
            faults: None,
            unread: Unread::default(),
            bytes: None,
            warnings: Vec::new(),
            mounts: Vec::new(),
            base: around.cwd.clone(),
            file_name: None,
        }
    }
}

/// Reads `path`, or standard input for `-`; the fault is of a file that is none. `given` are the
/// variables that flags set, `arguments` those of a batch script.
pub(crate) fn read(
    path: &Path,
    arguments: &[String],
    given: &BTreeSet<String>,
    around: &mut Surroundings<'_>,
) -> Result<JobFile, Fault> {
    let (bytes, name, base) = if path == Path::new("-") {
        let bytes = bounded(&mut *around.stdin, MAX_BYTES)
            .map_err(|problem| Fault::new(format!("standard input: {problem}")))?;
        (bytes, STDIN.to_owned(), around.cwd.clone())
    } else {
        let full = around.cwd.join(path);
        let name = path.display().to_string();
        let bytes = read_bounded(&full, MAX_BYTES).map_err(|problem| {
            Fault::new(format!("{name}: {problem}")).hint(program::instead_of(path, &full))
        })?;
        let script = import::looks_like_script(&bytes);
        if let Some(fault) = program::refuse(path, &full, &bytes, &around.words).filter(|_| !script)
        {
            return Err(fault);
        }
        let base = full
            .parent()
            .map_or_else(|| around.cwd.clone(), Path::to_path_buf);
        (bytes, name, base)
    };
    let file_name = (path != Path::new("-")).then(|| name.clone());
    if import::looks_like_script(&bytes) {
        return Ok(batch_script(&bytes, &name, file_name, arguments, around));
    }
    let reading = skypilot::read_any(&bytes, &name, given);
    let job = JobFile {
        faults: reading.faults,
        unread: reading.unread,
        bytes: Some(bytes),
        base,
        file_name,
        ..JobFile::none(around)
    };
    Ok(match reading.value {
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

/// A batch script of Slurm: it goes to Slurm unless something else is said, and its relative paths start
/// where the command is given, as `sbatch` has it. What is kept of it is the job file that says the same.
fn batch_script(
    bytes: &[u8],
    name: &str,
    file_name: Option<String>,
    arguments: &[String],
    around: &Surroundings<'_>,
) -> JobFile {
    let job = JobFile {
        file_name,
        ..JobFile::none(around)
    };
    match import::import(bytes, name, arguments) {
        Ok(imported) => JobFile {
            spec: JobSpec {
                backend: Some(around.config.slurm_backend().to_owned()),
                ..imported.spec
            },
            warnings: imported
                .notes
                .iter()
                .map(|note| format!("{name}:{note}"))
                .collect(),
            ..job
        },
        Err(faults) => JobFile {
            faults: Some(faults),
            unread: Unread::everything(),
            ..job
        },
    }
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
