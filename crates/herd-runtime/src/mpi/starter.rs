//! Who starts the ranks: `mpirun`, or the batch system's own starter, which has a way to meet each MPI
//! library. A wrong way does not fail but gives as many jobs of one rank, so the library is looked for in
//! the files of the program, and of `mpirun` where that says nothing; what is not known is `mpirun`'s.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use herd_core::spec::Command;
use herd_link::message::Assign;
use memchr::memmem;
use thiserror::Error;

use super::launch::PROGRAM_VARIABLE;
use super::library::Family;

/// Slurm's own variable for the way in which ranks meet: it overrides what is found; `none` is `mpirun`.
const TYPE_VARIABLE: &str = "SLURM_MPI_TYPE";
/// The option of the starter that says the same.
const TYPE_OPTION: &str = "--mpi=";
/// Bytes of a program that are looked at; names of libraries stand near the beginning.
const LOOK: u64 = 32 * 1024 * 1024;
/// Words of a script that are looked up.
const WORDS: usize = 64;
/// Variable that tells a shim how its rank was started.
pub(super) const STEP_VARIABLE: &str = "HERD_MPI_STEP";

/// Words in a program's file that only programs of a library have.
const SIGNS: &[(&str, Family)] = &[
    ("libmpi.so.40\0", Family::OpenMpi),
    ("libmpi.so.20\0", Family::OpenMpi),
    ("libopen-rte.so", Family::OpenMpi),
    ("libopen-pal.so", Family::OpenMpi),
    ("libprrte.so", Family::OpenMpi),
    ("libmpich.so", Family::Mpich),
    ("libmpi.so.12\0", Family::Mpich),
    ("HYDRA_LAUNCHER", Family::Mpich),
];

/// The variable names a way by which the program's library does not meet.
#[derive(Debug, Error)]
#[error(
    "the program was built with {library}, which does not meet by {kind} ({TYPE_VARIABLE}): each rank would \
     run alone; leave the variable out, or set it to none for mpirun"
)]
pub(crate) struct WrongType {
    library: &'static str,
    kind: String,
}

/// The words before those of the shim, where the batch system starts the ranks.
pub(super) fn of_batch_system(
    assign: &Assign,
    env: &[(OsString, OsString)],
) -> Result<Option<Vec<String>>, WrongType> {
    let starters = &assign.rank_starters;
    let Some(any) = starters.open_mpi.as_ref().or(starters.mpich.as_ref()) else {
        return Ok(None);
    };
    let asked = value(env, TYPE_VARIABLE).map(|text| text.to_string_lossy().into_owned());
    if asked.as_deref() == Some("none") {
        return Ok(None);
    }
    let family = family(assign, env);
    let Some(kind) = asked else {
        return Ok(match family {
            Some(Family::OpenMpi) => starters.open_mpi.clone(),
            Some(Family::Mpich) => starters.mpich.clone(),
            None => None,
        });
    };
    let wrong = match family {
        Some(Family::OpenMpi) => kind == "pmi2",
        Some(Family::Mpich) => kind.starts_with("pmix"),
        None => false,
    };
    if let (true, Some(family)) = (wrong, family) {
        let library = family.name();
        return Err(WrongType { library, kind });
    }
    let set = |word: &String| match word.strip_prefix(TYPE_OPTION) {
        Some(_) => format!("{TYPE_OPTION}{kind}"),
        None => word.clone(),
    };
    Ok(Some(any.iter().map(set).collect()))
}

/// The environment of the starter: what the batch system says of the step that this process runs in would
/// be taken for options.
pub(super) fn environment(env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let kept = |name: &str| {
        let ours = ["SLURM_", "SLURMD_", "SRUN_", "PMI", "PMIX_"];
        let named = ["SLURM_CONF", "SLURM_JOB_", "SLURM_SUBMIT_", "SLURM_ARRAY_"];
        !ours.iter().any(|prefix| name.starts_with(prefix))
            || name != "SLURM_JOB_NAME" && named.iter().any(|prefix| name.starts_with(prefix))
            || [
                "SLURM_JOBID",
                "SLURM_NODELIST",
                "SLURM_CLUSTER_NAME",
                "SLURM_RESTART_COUNT",
            ]
            .contains(&name)
    };
    let mut env: Vec<_> = env
        .into_iter()
        .filter(|(name, _)| name.to_str().is_none_or(kept))
        .collect();
    env.push((STEP_VARIABLE.into(), "1".into()));
    env
}

/// The library of the job's program.
fn family(assign: &Assign, env: &[(OsString, OsString)]) -> Option<Family> {
    let of_word = |word: &str| of_file(&find(word.as_ref(), env, &assign.plan.workdir)?);
    let words: Vec<&str> = match assign.plan.run.as_ref()? {
        Command::Argv(words) => words.iter().take(1).map(String::as_str).collect(),
        Command::Shell(text) => text
            .split(|c: char| c.is_whitespace() || ";&|()".contains(c))
            .filter(|word| !word.is_empty())
            .take(WORDS)
            .collect(),
    };
    words.into_iter().find_map(of_word).or_else(|| {
        let launcher = value(env, PROGRAM_VARIABLE).unwrap_or_else(|| OsStr::new("mpirun"));
        of_file(&find(launcher, env, &assign.plan.workdir)?)
    })
}

fn value<'a>(env: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let found = env.iter().find(|(known, _)| known == name)?;
    Some(&found.1)
}

/// The file that a name stands for.
fn find(program: &OsStr, env: &[(OsString, OsString)], workdir: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file();
    if Path::new(program).components().count() > 1 {
        return Some(Path::new(workdir).join(program)).filter(is_program);
    }
    let path = value(env, "PATH")?;
    std::env::split_paths(path)
        .map(|directory| Path::new(workdir).join(directory).join(program))
        .find(is_program)
}

/// The library that a program's file names, where it names one only.
fn of_file(path: &Path) -> Option<Family> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(LOOK)
        .read_to_end(&mut bytes)
        .ok()?;
    of_bytes(&bytes)
}

fn of_bytes(bytes: &[u8]) -> Option<Family> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let has = |family: Family| {
        let signs = SIGNS.iter().filter(|(_, of)| *of == family);
        signs
            .clone()
            .any(|(sign, _)| memmem::find(bytes, sign.as_bytes()).is_some())
    };
    match (has(Family::OpenMpi), has(Family::Mpich)) {
        (true, false) => Some(Family::OpenMpi),
        (false, true) => Some(Family::Mpich),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_library_stands_in_its_file() {
        assert_eq!(
            of_bytes(b"\x7fELF..libc.so.6\0libmpi.so.40\0"),
            Some(Family::OpenMpi)
        );
        assert_eq!(of_bytes(b"\x7fELF..libmpich.so.12\0"), Some(Family::Mpich));
        assert_eq!(of_bytes(b"\x7fELF..libmpich.so.12\0libmpi.so.40\0"), None);
        assert_eq!(of_bytes(b"#!/bin/sh\nlibmpi.so.40\0"), None);
    }

    #[test]
    fn the_step_of_the_executor_says_nothing_to_the_starter() {
        let names = [
            "PATH",
            "SLURM_JOB_ID",
            "SLURM_CONF",
            "SLURM_STEP_ID",
            "SLURM_NTASKS",
            "SLURM_JOB_NAME",
            "PMI_FD",
        ];
        let env = names.map(|name| (OsString::from(name), OsString::from("x")));
        let kept = environment(env.to_vec());
        let kept: Vec<_> = kept
            .iter()
            .map(|(name, _)| name.to_str().unwrap())
            .collect();
        assert_eq!(kept, ["PATH", "SLURM_JOB_ID", "SLURM_CONF", STEP_VARIABLE]);
    }
}
