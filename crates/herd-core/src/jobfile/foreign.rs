//! Keys of other tools and of other places, and what says them in a job file.
//!
//! Only unknown keys are looked up here; a slip of the finger is `text::nearest`'s to find.

use super::keys::{self, Key};
use super::reader::join;
use crate::text::nearest;

/// Keys with the same meaning under another name: the section, the words, the key.
const SAME: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["num_nodes", "nnodes", "node_count", "nodes_count"],
        "nodes",
    ),
    (
        "",
        &[
            "nproc_per_node",
            "ntasks_per_node",
            "processes_per_node",
            "ppn",
        ],
        "procs_per_node",
    ),
    (
        "",
        &["timeout", "time", "time_limit", "timelimit", "max_time"],
        "walltime",
    ),
    (
        "",
        &["command", "cmd", "script", "entrypoint", "exec", "program"],
        "run",
    ),
    (
        "",
        &["depends_on", "dependency", "dependencies", "needs"],
        "after",
    ),
    ("", &["envs", "environment", "variables"], "env"),
    (
        "",
        &["cwd", "chdir", "dir", "directory", "working_dir"],
        "workdir",
    ),
    ("", &["working_directory"], "workdir"),
    ("", &["kind", "framework", "job_type"], "type"),
    ("", &["job_name", "jobname"], "name"),
    ("resources", &["mem", "ram"], "memory"),
    ("retry", &["count", "times", "attempts", "limit"], "max"),
    ("retry", &["delay", "wait", "pause"], "backoff"),
    ("setup", &["command", "cmd", "script"], "run"),
    ("setup", &["where", "nodes"], "on"),
    ("after", &["name", "id"], "job"),
    ("after", &["condition", "if", "state"], "when"),
];

/// Keys that are written another way: the section, the words, the way.
const OTHERWISE: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["retries", "max_retries", "max_restarts", "restart"],
        "write `retry: {max: 3}`",
    ),
    (
        "",
        &["cpu", "cpus_per_task", "cpus_per_node"],
        "write `resources: {cpus: 8}`",
    ),
    (
        "",
        &["gpu", "gpus_per_node", "accelerators"],
        "write `resources: {gpus: 4}`",
    ),
    ("", &["mem", "ram"], "write `resources: {memory: 32GiB}`"),
    ("", &["tasks", "num_tasks"], "write `array: 0-9`"),
    (
        "",
        &[
            "container",
            "container_image",
            "docker",
            "docker_image",
            "image_id",
        ],
        "a container's image is `image`, for backends that run containers",
    ),
    (
        "",
        &["file_mounts", "mounts", "volumes"],
        "nothing is copied or mounted: name the path in the command",
    ),
    (
        "resources",
        &["accelerators", "accelerator"],
        "write `gpus: 4` and, where it matters, `gpu_type: h800`",
    ),
    (
        "resources",
        &["image", "image_id"],
        "a container's image is `image` at the top of the file, for backends that run containers",
    ),
];

/// What to say about an unknown key of the mapping at `path`.
pub(super) fn advice(path: &str, key: &str, table: &[Key]) -> Option<String> {
    if key == "<<" {
        return Some("merge keys are not supported".to_owned());
    }
    let folded = key.to_ascii_lowercase().replace('-', "_");
    // `after[0]` is one of `after`.
    let section = path.split('[').next().unwrap_or(path);
    let found = |words: &[&str], of: &str| of == section && words.contains(&folded.as_str());
    if let Some((_, _, name)) = SAME.iter().find(|(of, words, _)| found(words, of)) {
        return Some(format!("did you mean `{name}`?"));
    }
    if let Some((_, _, way)) = OTHERWISE.iter().find(|(of, words, _)| found(words, of)) {
        return Some((*way).to_owned());
    }
    let knows = |table: &[Key], name: &str| table.iter().any(|known| known.name == name);
    if section.is_empty() {
        for (name, inner) in [
            ("resources", keys::RESOURCES),
            ("slurm", keys::SLURM),
            ("kueue", keys::KUEUE),
        ] {
            if knows(inner, &folded) {
                return Some(format!(
                    "write it below `{name}`, as `{}`",
                    join(name, &folded)
                ));
            }
        }
    } else if knows(keys::JOB, &folded) {
        return Some(format!(
            "`{folded}` stands at the top of the file, not below `{section}`"
        ));
    }
    let names = || table.iter().map(|known| known.name);
    // A slip in another tool's word counts too.
    let others = SAME.iter().filter(|(of, ..)| *of == section);
    let others = others.flat_map(|(_, words, name)| words.iter().map(move |word| (*word, *name)));
    let other = || {
        let word = nearest(&folded, others.clone().map(|(word, _)| word))?;
        others.clone().find(|(known, _)| *known == word)
    };
    match nearest(key, names()).or_else(|| Some(other()?.1)) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if table.len() <= 8 => {
            let known: Vec<_> = names().collect();
            Some(format!("known here are {}", known.join(", ")))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_named_exists_and_no_word_is_a_key() {
        let table = |section: &str| match section {
            "" => keys::JOB,
            "resources" => keys::RESOURCES,
            "retry" => keys::RETRY,
            "setup" => keys::SETUP,
            _ => keys::AFTER,
        };
        let known = |section: &str, name: &str| table(section).iter().any(|key| key.name == name);
        for (section, words, name) in SAME {
            assert!(known(section, name), "{name}");
            assert!(!words.iter().any(|word| known(section, word)), "{words:?}");
        }
        for (section, words, _) in OTHERWISE {
            assert!(!words.iter().any(|word| known(section, word)), "{words:?}");
        }
    }
}
