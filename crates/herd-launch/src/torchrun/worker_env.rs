//! The environment of a worker, variable by variable that of torchrun's.

use std::ffi::{OsStr, OsString};

use super::flags::Flags;
use crate::world::World;

/// Variables that hold a secret of the launchers and never reach a worker.
const SECRETS: &[&str] = &["HERD_RDZV_KEY"];

/// One start of all workers of this node.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Where they stand among all.
    pub world: &'a World,
    /// Workers of this node.
    pub local_world_size: u32,
    /// Restarts so far.
    pub restart_count: u32,
    /// The rendezvous's id.
    pub run_id: &'a str,
}

/// What is set for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    /// Set whatever the launcher's own environment says.
    pub overlay: Vec<(String, OsString)>,
    /// Set only where the launcher's own environment says nothing.
    pub defaults: Vec<(String, OsString)>,
}

/// A local rank for which the list of accelerators has no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "local rank {local_rank} has no accelerator: {variable} lists {listed}\nhint: start at most as many workers as {variable} has entries, or leave out --virtual-local-rank"
)]
pub struct NoAccelerator {
    /// The local rank.
    pub local_rank: u32,
    /// The variable with the list.
    pub variable: &'static str,
    /// Entries in it.
    pub listed: usize,
}

/// The variables of one worker. `error_file` is empty where there is none. `variable` looks into
/// the launcher's own environment.
pub fn worker_env(
    flags: &Flags,
    attempt: &Attempt<'_>,
    local_rank: u32,
    error_file: &OsStr,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<WorkerEnv, NoAccelerator> {
    let world = attempt.world;
    let seen_rank = if flags.virtual_local_rank {
        0
    } else {
        local_rank
    };
    let mut overlay: Vec<(String, OsString)> = Vec::new();
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        overlay.push((name.to_owned(), OsString::from(value.to_string())));
    };
    set("LOCAL_RANK", &seen_rank);
    set("RANK", &world.first_rank.saturating_add(local_rank));
    set("GROUP_RANK", &world.node_rank);
    set(
        "ROLE_RANK",
        &world.first_role_rank.saturating_add(local_rank),
    );
    set("ROLE_NAME", &flags.role);
    set("LOCAL_WORLD_SIZE", &attempt.local_world_size);
    set("WORLD_SIZE", &world.world_size);
    set("GROUP_WORLD_SIZE", &world.nodes);
    set("ROLE_WORLD_SIZE", &world.role_world_size);
    set("MASTER_ADDR", &world.master_addr);
    set("MASTER_PORT", &world.master_port);
    set("TORCHELASTIC_RESTART_COUNT", &attempt.restart_count);
    set("TORCHELASTIC_MAX_RESTARTS", &flags.max_restarts);
    set("TORCHELASTIC_RUN_ID", &attempt.run_id);
    let has_store = if world.has_store { "True" } else { "False" };
    set("TORCHELASTIC_USE_AGENT_STORE", &has_store);
    set(
        "TORCHELASTIC_SIGNALS_TO_HANDLE",
        &flags.signals_to_handle.text,
    );
    overlay.push(("TORCHELASTIC_ERROR_FILE".to_owned(), error_file.to_owned()));
    if flags.virtual_local_rank {
        overlay.extend(accelerator(local_rank, variable)?);
    }

    let mut defaults = vec![("TORCH_NCCL_ASYNC_ERROR_HANDLING".to_owned(), "1".into())];
    if sets_omp_default(attempt.local_world_size, variable) {
        defaults.push(("OMP_NUM_THREADS".to_owned(), "1".into()));
    }
    Ok(WorkerEnv { overlay, defaults })
}

/// The one accelerator that a worker sees.
fn accelerator(
    local_rank: u32,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<(String, OsString)>, NoAccelerator> {
    let inherited = ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]
        .into_iter()
        .find_map(|name| Some((name, variable(name)?)));
    let Some((name, list)) = inherited else {
        let own = OsString::from(local_rank.to_string());
        return Ok(vec![("CUDA_VISIBLE_DEVICES".to_owned(), own)]);
    };
    let list = list.to_string_lossy();
    let entry = usize::try_from(local_rank)
        .ok()
        .and_then(|index| list.split(',').nth(index))
        .ok_or_else(|| NoAccelerator {
            local_rank,
            variable: name,
            listed: list.split(',').count(),
        })?;
    let entry = OsString::from(entry.trim());
    let mut set = vec![("CUDA_VISIBLE_DEVICES".to_owned(), entry.clone())];
    if name != "CUDA_VISIBLE_DEVICES" {
        set.push((name.to_owned(), entry));
    }
    Ok(set)
}

/// Whether workers get one OpenMP thread each because nobody has said how many: with several
/// workers every one of them would else take all CPUs.
pub fn sets_omp_default(
    local_world_size: u32,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> bool {
    local_world_size > 1 && variable("OMP_NUM_THREADS").is_none()
}

/// What to tell the user when [`sets_omp_default`].
pub fn omp_banner(local_world_size: u32) -> String {
    let rule = "*".repeat(41);
    format!(
        "{rule}\nOMP_NUM_THREADS is not set: each of the {local_world_size} workers gets 1, so that together they do not\noverload this node. Set it yourself to what suits your program.\n{rule}"
    )
}

impl WorkerEnv {
    /// The complete environment, from the launcher's own.
    pub fn over(&self, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let is_set = |name: &OsStr| self.overlay.iter().any(|(set, _)| OsStr::new(set) == name);
        let is_own = |wanted: &str| own.iter().any(|(name, _)| name == wanted);
        let is_secret = |name: &OsStr| SECRETS.iter().any(|secret| OsStr::new(secret) == name);
        let kept = own
            .iter()
            .filter(|(name, _)| !is_set(name) && !is_secret(name))
            .cloned();
        let defaults = self
            .defaults
            .iter()
            .filter(|(name, _)| !is_own(name) && !is_set(OsStr::new(name)));
        let added = self.overlay.iter().chain(defaults);
        let added = added.map(|(name, value)| (OsString::from(name), value.clone()));
        kept.chain(added).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::torchrun::flags::{Command, parse};

    type Own<'a> = &'a [(&'a str, &'a str)];

    fn world() -> World {
        World {
            node_rank: 1,
            nodes: 3,
            first_rank: 2,
            world_size: 7,
            first_role_rank: 1,
            role_world_size: 5,
            master_addr: "n0".to_owned(),
            master_port: 1234,
            has_store: true,
        }
    }

    fn environment(
        arguments: &[&str],
        world: &World,
        local_rank: u32,
        own: Own<'_>,
    ) -> Result<BTreeMap<String, String>, NoAccelerator> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        let Command::Launch(flags) = parse(&arguments, &|_| None).unwrap() else {
            panic!();
        };
        let attempt = Attempt {
            world,
            local_world_size: 2,
            restart_count: 1,
            run_id: "id",
        };
        let variable = |name: &str| {
            let value = own.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsString::from(value))
        };
        let set = worker_env(
            &flags,
            &attempt,
            local_rank,
            OsStr::new("/e.json"),
            &variable,
        )?;
        let own: Vec<_> = own
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let all = set.over(&own);
        let count = all.len();
        let map: BTreeMap<_, _> = all
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect();
        assert_eq!(map.len(), count, "a name comes twice");
        Ok(map)
    }

    #[test]
    fn row41_every_variable() {
        let map = environment(&["--max-restarts=3", "--role=t", "s"], &world(), 1, &[]).unwrap();
        let expected = [
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "3"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "n0"),
            ("MASTER_PORT", "1234"),
            ("OMP_NUM_THREADS", "1"),
            ("RANK", "3"),
            ("ROLE_NAME", "t"),
            ("ROLE_RANK", "2"),
            ("ROLE_WORLD_SIZE", "5"),
            ("TORCHELASTIC_ERROR_FILE", "/e.json"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("TORCHELASTIC_RESTART_COUNT", "1"),
            ("TORCHELASTIC_RUN_ID", "id"),
            (
                "TORCHELASTIC_SIGNALS_TO_HANDLE",
                "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            ),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("WORLD_SIZE", "7"),
        ];
        let seen: Vec<_> = map.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn row41_what_is_laid_over_and_what_is_only_a_default() {
        let own = [
            ("RANK", "99"),
            ("MASTER_ADDR", "elsewhere"),
            ("OMP_NUM_THREADS", "4"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
            ("CUDA_VISIBLE_DEVICES", "2,3"),
            ("PET_ROLE", "x"),
            ("HERD_RDZV_KEY", "secret"),
        ];
        let mut alone = world();
        alone.has_store = false;
        let map = environment(&["s"], &alone, 0, &own).unwrap();
        for (name, expected) in [
            ("RANK", "2"),
            ("MASTER_ADDR", "n0"),
            ("OMP_NUM_THREADS", "4"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
            ("CUDA_VISIBLE_DEVICES", "2,3"),
            ("PET_ROLE", "x"),
            ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ] {
            assert_eq!(map.get(name).map(String::as_str), Some(expected), "{name}");
        }
        assert!(!map.contains_key("HERD_RDZV_KEY"));
    }

    #[test]
    fn row41_virtual_local_rank() {
        let seen = |local_rank, own: Own<'_>| {
            environment(&["--virtual-local-rank", "s"], &world(), local_rank, own).map(|map| {
                let get = |name: &str| map.get(name).cloned().unwrap_or_default();
                assert_eq!(get("RANK"), (2 + local_rank).to_string());
                [
                    get("LOCAL_RANK"),
                    get("CUDA_VISIBLE_DEVICES"),
                    get("HIP_VISIBLE_DEVICES"),
                ]
            })
        };
        assert_eq!(seen(1, &[]).unwrap(), ["0", "1", ""]);
        let cuda = ("CUDA_VISIBLE_DEVICES", "4,GPU-ab");
        assert_eq!(seen(1, &[cuda]).unwrap(), ["0", "GPU-ab", ""]);
        let hip = ("HIP_VISIBLE_DEVICES", "6,7");
        assert_eq!(seen(1, &[cuda, hip]).unwrap(), ["0", "7", "7"]);
        let error = seen(2, &[cuda]).unwrap_err();
        assert!(
            error.to_string().contains("CUDA_VISIBLE_DEVICES lists 2"),
            "{error}"
        );
    }

    #[test]
    fn row41_one_worker_keeps_its_threads() {
        assert!(!sets_omp_default(1, &|_| None));
        assert!(sets_omp_default(2, &|_| None));
        assert!(!sets_omp_default(2, &|_| Some(OsString::new())));
        assert!(omp_banner(2).contains("OMP_NUM_THREADS"));
    }
}
