//! The file a job is read from: found, bounded, recognised, parsed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use herd_core::diagnostic::Diagnostics;
use herd_core::skypilot;
use herd_core::spec::JobSpec;

use super::Surroundings;
use crate::error::Fault;

/// More than this is no job file; the parser refuses what it is given beyond its own limit.
const MAX_BYTES: u64 = 4 << 20;

/// A job file that was read.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// The job.
    pub(crate) spec: JobSpec,
    /// The file's content, byte for byte.
    pub(crate) bytes: Vec<u8>,
    /// What could not be carried over without changing the result.
    pub(crate) warnings: Vec<String>,
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

/// Reads `path`, or standard input for `-`.
pub(crate) fn read(path: &Path, around: &mut Surroundings<'_>) -> Result<JobFile, Refused> {
    let (bytes, name, base) = if path == Path::new("-") {
        let bytes = bounded(&mut *around.stdin, MAX_BYTES).map_err(|problem| {
            Refused::Unreadable(Fault::new(format!("standard input: {problem}")))
        })?;
        (bytes, "standard input".to_owned(), around.cwd.clone())
    } else {
        let full = around.cwd.join(path);
        let name = path.display().to_string();
        let bytes = read_bounded(&full, MAX_BYTES).map_err(|problem| {
            Refused::Unreadable(Fault::new(format!("{name}: {problem}")).hint(format!(
                "to run a program rather than a job file: herd run -- {name}"
            )))
        })?;
        let base = full
            .parent()
            .map_or_else(|| around.cwd.clone(), Path::to_path_buf);
        (bytes, name, base)
    };
    let file_name = (path != Path::new("-")).then(|| name.clone());
    let (spec, warnings) =
        parse(&bytes, &name).map_err(|found| Refused::Faulty(Box::new(found)))?;
    Ok(JobFile {
        spec,
        bytes,
        warnings,
        base,
        file_name,
    })
}

/// A job file, or a `SkyPilot` task whose notes become warnings.
fn parse(bytes: &[u8], name: &str) -> Result<(JobSpec, Vec<String>), Diagnostics> {
    let (spec, notes) = skypilot::read_any(bytes, name)?;
    let warnings = notes.iter().map(|note| format!("{name}:{note}")).collect();
    Ok((spec, warnings))
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
