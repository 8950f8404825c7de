//! What is given where a job file belongs and is none: programs, and what `herd render` printed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use herd_core::text::nearest;
use herd_core::yaml;

use crate::cli::advice;
use crate::error::Fault;
use crate::text::shell_word;

/// First line of what `herd render` prints for people.
pub(crate) const RENDERED: &str = "# This is what `herd run` would start, not a job file.";

/// Endings of job files. Some file systems mark every file as executable, so these never are
/// programs.
const JOB_FILES: &[&str] = &["yaml", "yml", "json"];

/// Files of a directory that are looked at for a near name.
const MOST_NAMES: usize = 1000;

/// Endings of programs that an interpreter runs, and the interpreter.
const INTERPRETERS: &[(&str, &str)] = &[
    ("py", "python3"),
    ("sh", "bash"),
    ("bash", "bash"),
    ("zsh", "zsh"),
    ("pl", "perl"),
    ("rb", "ruby"),
    ("R", "Rscript"),
    ("r", "Rscript"),
    ("jl", "julia"),
    ("lua", "lua"),
    ("js", "node"),
];

/// Refuses a program, with the command line that runs it, which has the options of the one that was given,
/// `words`; `None` for what may be a job file.
pub(super) fn refuse(given: &Path, full: &Path, bytes: &[u8], words: &[String]) -> Option<Fault> {
    if bytes.starts_with(RENDERED.as_bytes()) {
        let text = format!(
            "{}: is what `herd render` printed, not a job file",
            given.display()
        );
        return Some(
            Fault::new(text).hint("run the file or command that was given to `herd render`"),
        );
    }
    let ending = given.extension().and_then(|ending| ending.to_str());
    if ending.is_some_and(|ending| JOB_FILES.contains(&ending)) {
        return None;
    }
    let named = INTERPRETERS
        .iter()
        .find(|(other, _)| Some(*other) == ending);
    let executable =
        std::fs::metadata(full).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
    let marked = bytes.starts_with(b"\x7fELF") || is_script(bytes);
    // An executable text may still be a job file.
    if named.is_none() && !marked && !(executable && yaml::parse(bytes).is_err()) {
        return None;
    }
    let shown = given.display().to_string();
    let word = shell_word(&shown);
    let command = match named {
        // The file's own first line says better which interpreter it needs.
        Some((_, interpreter)) if !(executable && marked) => format!("{interpreter} {word}"),
        _ if shown.contains('/') => word,
        _ => format!("./{word}"),
    };
    let line = advice::with_command(words, &shown, &command);
    let as_script = if is_script(bytes) {
        "; a script with an `#SBATCH` line is a batch script"
    } else {
        ""
    };
    Some(
        Fault::new(format!("{shown}: is a program, not a job file"))
            .hint(format!("`{line}` runs it{as_script}")),
    )
}

/// What to try where there is no such file: a file of a near name where a job file is meant, else
/// the program of that name.
pub(super) fn instead_of(given: &Path, full: &Path) -> String {
    let as_program = format!(
        "to run a program rather than a job file: herd run -- {}",
        given.display()
    );
    let ending = given.extension().and_then(|ending| ending.to_str());
    if !ending.is_some_and(|ending| JOB_FILES.contains(&ending)) {
        return as_program;
    }
    let parent = full.parent().map(std::fs::read_dir);
    let entries = parent.into_iter().flatten().flatten().flatten();
    let names: Vec<String> = entries
        .take(MOST_NAMES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| JOB_FILES.iter().any(|ending| name.ends_with(ending)))
        .collect();
    let wanted = given.file_name().and_then(|name| name.to_str());
    let near = wanted.and_then(|name| nearest(name, names.iter().map(String::as_str)));
    match near {
        Some(name) => format!("did you mean {}?", given.with_file_name(name).display()),
        None => as_program,
    }
}

/// A first line that names an interpreter. A job file may name herd there.
fn is_script(bytes: &[u8]) -> bool {
    let Some(line) = bytes.strip_prefix(b"#!") else {
        return false;
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
    !line.windows(4).any(|part| part == b"herd")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, mode: u32, content: &[u8]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join(name);
        std::fs::write(&full, content).unwrap();
        std::fs::set_permissions(&full, PermissionsExt::from_mode(mode)).unwrap();
        refuse(Path::new(name), &full, content, &[]).and_then(|fault| fault.hint)
    }

    #[test]
    fn programs_are_refused_with_the_command_that_runs_them() {
        let cases: [(&str, u32, &[u8], &str); 6] = [
            ("train.py", 0o644, b"import torch\n", "python3 train.py"),
            ("train.py", 0o755, b"#!/usr/bin/python3.11\n", "./train.py"),
            ("go.sh", 0o644, b"echo: hi", "bash go.sh"),
            ("go", 0o644, b"#!/bin/sh\necho", "./go"),
            ("a b", 0o755, b"\x7fELF\x02", "./'a b'"),
            ("go", 0o755, b"if [ a ]; then\n: [\nfi", "./go"),
        ];
        for (name, mode, content, command) in cases {
            let mut hint = format!("`herd run -- {command}` runs it");
            if content.starts_with(b"#!") {
                hint += "; a script with an `#SBATCH` line is a batch script";
            }
            assert_eq!(refused(name, mode, content), Some(hint), "{name}");
        }
    }

    #[test]
    fn a_slip_in_a_file_name_is_answered_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["job.yaml", "jobs.txt", "other.yml"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let said = |name: &str| instead_of(Path::new(name), &dir.path().join(name));
        assert_eq!(said("jbo.yaml"), "did you mean job.yaml?");
        let program = "to run a program rather than a job file: herd run -- ";
        assert_eq!(said("unlike.json"), format!("{program}unlike.json"));
        assert_eq!(said("job.sh"), format!("{program}job.sh"));
        assert_eq!(said("no/dir.yaml"), format!("{program}no/dir.yaml"));
    }

    #[test]
    fn job_files_are_left_alone() {
        for (name, mode, content) in [
            ("job.yaml", 0o755, "run: ["),
            ("job.yml", 0o755, "#!/usr/bin/env -S herd run\nrun: a"),
            ("job", 0o755, "#!/usr/bin/env -S herd run\nrun: a"),
            ("job", 0o755, "run: a"),
            ("job", 0o644, "run: ["),
        ] {
            assert_eq!(refused(name, mode, content.as_bytes()), None, "{name}");
        }
    }
}
