//! Steps inside an allocation: the executors, MPI's ranks, and files for the nodes.

use crate::call::Call;

/// A step as the driver asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the job; of the task alone in an array (`SLURM_JOB_ID`).
    pub job: u32,
    /// Nodes: all of the allocation.
    pub nodes: u32,
    /// CPUs on each node, where the job asked for them.
    pub cpus: Option<u32>,
    /// The value of `--gres` that the job was submitted with; none for no GPUs.
    pub gres: Option<String>,
    /// Container.
    pub container: Option<Container>,
    /// Whether the site binds tasks to CPUs ([`crate::config::Config::binds_cpus`]).
    pub binds_cpus: bool,
}

/// A container that the executors run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// An image by name (Pyxis).
    Image {
        /// `registry/name:tag`.
        image: String,
        /// Paths that are seen in it under the same names.
        mounts: Vec<String>,
    },
    /// A bundle that lies in a directory (Slurm's own).
    Bundle(String),
}

/// `srun` of one executor on each node.
///
/// Each option is needed (tried on 22.05, 24.11 and 26.05): `SLURM_NTASKS` of the batch script
/// would make another number of tasks; `--export=NONE` of the job leaves tasks without `PATH`
/// (`--export=ALL`); a site's `KillOnBadExit` and `WaitTime` would end executors before they have
/// stopped their ranks; a step that says nothing of memory takes all of it (`--mem=0` shares it),
/// and one that says nothing of GPUs sees all of the job's; without `--overlap` an `srun` in the
/// user's script waits for ever for what the executor holds; and executors are no MPI program.
pub fn executor(step: &Step, command: &[String]) -> Call {
    let mut args = common(step, step.nodes, 1, step.cpus);
    args.push("--mpi=none".to_owned());
    args.push("--job-name=herd".to_owned());
    call("srun", args, command)
}

/// `srun` of the shims that start MPI's ranks, beside the executors. Ranks are numbered node by
/// node, as everywhere in herd.
pub fn ranks(step: &Step, ranks_per_node: u32, mpi: &str, command: &[String]) -> Call {
    let ranks_per_node = ranks_per_node.max(1);
    let cpus = step.cpus.map(|cpus| (cpus / ranks_per_node).max(1));
    let mut args = common(step, step.nodes, ranks_per_node, cpus);
    args.push(format!("--mpi={mpi}"));
    args.push("--distribution=block".to_owned());
    args.push("--job-name=herd-mpi".to_owned());
    call("srun", args, command)
}

fn common(step: &Step, nodes: u32, tasks_per_node: u32, cpus: Option<u32>) -> Vec<String> {
    let tasks = u64::from(nodes) * u64::from(tasks_per_node);
    let mut args = vec![
        format!("--jobid={}", step.job),
        format!("--nodes={nodes}"),
        format!("--ntasks={tasks}"),
        format!("--ntasks-per-node={tasks_per_node}"),
        "--export=ALL".to_owned(),
        "--wait=0".to_owned(),
        "--kill-on-bad-exit=0".to_owned(),
        "--mem=0".to_owned(),
        "--overlap".to_owned(),
        "--quiet".to_owned(),
        "--unbuffered".to_owned(),
        "--input=none".to_owned(),
        format!("--gres={}", step.gres.as_deref().unwrap_or("none")),
    ];
    args.extend(cpus.map(|cpus| format!("--cpus-per-task={cpus}")));
    // Herd binds ranks itself. Where the site binds nothing the option makes srun complain.
    if step.binds_cpus {
        args.push("--cpu-bind=none".to_owned());
    }
    match &step.container {
        None => {}
        Some(Container::Bundle(path)) => args.push(format!("--container={path}")),
        Some(Container::Image { image, mounts }) => {
            args.push(format!("--container-image={image}"));
            if !mounts.is_empty() {
                let mounts: Vec<String> =
                    mounts.iter().map(|path| format!("{path}:{path}")).collect();
                args.push(format!("--container-mounts={}", mounts.join(",")));
            }
        }
    }
    args
}

/// Prints the address at which a node of the job reaches the one that this is called on, by Slurm's own
/// connections.
pub fn way_back(job: u32, from: &str) -> Call {
    let step = Step {
        job,
        nodes: 1,
        cpus: None,
        gres: None,
        container: None,
        binds_cpus: false,
    };
    let mut args = common(&step, 1, 1, None);
    args.extend([format!("--nodelist={from}"), "--mpi=none".to_owned()]);
    let print = ["/bin/sh", "-c", "echo \"$SLURM_LAUNCH_NODE_IPADDR\""];
    call("srun", args, &print.map(str::to_owned))
}

/// Copies a file to the same place on every node of the job; its mode is kept, an older one is
/// replaced.
pub fn broadcast(job: u32, source: &str, destination: &str) -> Call {
    let job = format!("--jobid={job}");
    let args = ["--force", "--preserve", &job].map(str::to_owned);
    call(
        "sbcast",
        args.to_vec(),
        &[source.to_owned(), destination.to_owned()],
    )
}

fn call(program: &'static str, mut args: Vec<String>, command: &[String]) -> Call {
    args.extend_from_slice(command);
    Call {
        program,
        args,
        env: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Step {
        Step {
            job: 17,
            nodes: 3,
            cpus: Some(8),
            gres: Some("gpu:h800:4".to_owned()),
            container: None,
            binds_cpus: false,
        }
    }

    fn words(call: &Call) -> Vec<&str> {
        call.args.iter().map(String::as_str).collect()
    }

    #[test]
    fn an_executor_a_node_whatever_the_site_and_the_job_say() {
        let call = executor(&step(), &["/b/herd-node".to_owned(), "executor".to_owned()]);
        let words = words(&call);
        for word in [
            "--nodes=3",
            "--ntasks=3",
            "--ntasks-per-node=1",
            "--export=ALL",
            "--wait=0",
            "--kill-on-bad-exit=0",
            "--mem=0",
            "--overlap",
            "--gres=gpu:h800:4",
            "--cpus-per-task=8",
            "--mpi=none",
        ] {
            assert!(words.contains(&word), "{word} in {words:?}");
        }
        assert!(words.ends_with(&["/b/herd-node", "executor"]));
        assert!(!words.iter().any(|word| word.starts_with("--cpu-bind")));
    }

    #[test]
    fn no_gpus_are_said_and_cpus_are_not_made_up() {
        let step = Step {
            gres: None,
            cpus: None,
            binds_cpus: true,
            ..step()
        };
        let call = executor(&step, &[]);
        let words = words(&call);
        assert!(words.contains(&"--gres=none") && words.contains(&"--cpu-bind=none"));
        assert!(!words.iter().any(|word| word.starts_with("--cpus-per-task")));
    }

    #[test]
    fn ranks_divide_the_cpus_and_go_node_by_node() {
        let call = ranks(&step(), 4, "pmix", &[]);
        let words = words(&call);
        for word in [
            "--ntasks=12",
            "--ntasks-per-node=4",
            "--cpus-per-task=2",
            "--mpi=pmix",
            "--distribution=block",
            "--overlap",
        ] {
            assert!(words.contains(&word), "{word} in {words:?}");
        }
        let many = ranks(&step(), 100, "pmi2", &[]);
        assert!(many.args.contains(&"--cpus-per-task=1".to_owned()));
    }

    #[test]
    fn containers_are_on_the_step() {
        let image = Container::Image {
            image: "reg/a:1".to_owned(),
            mounts: vec!["/home/a".to_owned(), "/data".to_owned()],
        };
        let step = Step {
            container: Some(image),
            ..step()
        };
        let call = executor(&step, &[]);
        let mounts = "--container-mounts=/home/a:/home/a,/data:/data".to_owned();
        assert!(call.args.contains(&mounts));
    }
}
