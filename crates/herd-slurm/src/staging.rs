//! Jobs of a cluster whose nodes share no directory with the submitting side: what the batch script waits
//! for, and the steps by which the submitting side stages it in, and results out, from outside of the job.

use crate::call::Call;
use crate::quote::{self, Unquotable};

/// Name of the program in a job's directory on its nodes.
pub const PROGRAM: &str = "herd-node";
/// Name of the job's working directory beside it.
pub const WORK: &str = "work";
/// Name of the file that says that all is there: it holds the number of the run.
pub const READY: &str = "ready";
/// Name of the workdir as it travels.
pub const BUNDLE: &str = "work.tar";

/// Where the batch script writes, among the job's records.
pub const OUTPUT: &str = "slurm.out";

/// How long a batch script waits for the submitting side, seconds.
pub const PATIENCE: u32 = 600;

/// What its steps are called.
const STEP_NAME: &str = "--job-name=herd-stage";

/// The part of a batch script before its last line: it waits until everything was brought to `directory`.
/// A marker of an earlier run of the same job does not count. What follows writes into the records.
pub(crate) fn wait(directory: &str, records: &str) -> Result<String, Unquotable> {
    let output = quote::shell(&format!("{records}/{OUTPUT}"))?;
    let ready = quote::shell(&format!("{directory}/{READY}"))?;
    Ok(format!(
        "# The submitting side brings the program, the plan and the files here: nodes share no directory with it.\n\
         ready={ready} waited=0\n\
         until [ \"$(cat \"$ready\" 2>/dev/null)\" = \"${{SLURM_RESTART_COUNT:-0}}\" ]; do\n\
         \tif [ $((waited += 1)) -gt {} ]; then\n\
         \t\techo 'herd: the submitting side has brought nothing for {PATIENCE} s' >&2\n\
         \t\texit 125\n\
         \tfi\n\
         \tsleep 0.2\n\
         done\n\
         exec >>{output} 2>&1\n",
        5 * PATIENCE
    ))
}

/// With this code a step ends whose node has answered that it cannot do what it was asked: it was reached,
/// and asking again helps nobody. What the node's own commands said of it stands on standard error.
pub const NODE_REFUSES: u8 = 93;
/// With this code a step ends that has found that nodes share the job's directory. Their names stand on
/// standard error.
pub const NODES_SHARE: u8 = 94;

/// Makes the job's directory on all its nodes, private and empty but for a file that is named after the
/// node. `run` is in that name, and no other run of the job has it: what an earlier one has left is removed.
pub fn prepare(job: u32, nodes: u32, directory: &str, run: &str) -> Result<Call, Unquotable> {
    let (directory, run) = (quote::shell(directory)?, quote::shell(run)?);
    let script = format!(
        "d={directory}; r={run}; umask 077; no() {{ exit {NODE_REFUSES}; }}; \
         [ -d \"$d\" ] || mkdir \"$d\" || [ -d \"$d\" ] || no; \
         if [ -L \"$d\" ] || [ ! -O \"$d\" ]; then echo \"$d belongs to somebody else\" >&2; no; fi; \
         : >\"$d/on.$r.$SLURMD_NODENAME\" || no; \
         for f in \"$d\"/*; do case $f in \"$d/on.$r.\"*) ;; *) rm -rf \"$f\" || no ;; esac; done; \
         mkdir -p \"$d/{WORK}\" || no"
    );
    Ok(on_all(job, nodes, &script))
}

/// After [`prepare`]: looks on all nodes whether each has the directory for itself, and unpacks the workdir
/// where one was brought.
pub fn settle(job: u32, nodes: u32, directory: &str, run: &str) -> Result<Call, Unquotable> {
    let (directory, run) = (quote::shell(directory)?, quote::shell(run)?);
    let script = format!(
        "d={directory}; r={run}; cd \"$d\" || exit {NODE_REFUSES}; set -- on.\"$r\".*; \
         if [ $# != 1 ]; then for n; do echo \"${{n#on.\"$r\".}}\"; done >&2; exit {NODES_SHARE}; fi; \
         [ ! -e {BUNDLE} ] || {{ tar -xf {BUNDLE} -C {WORK} && rm {BUNDLE}; }} || exit {NODE_REFUSES}"
    );
    Ok(on_all(job, nodes, &script))
}

/// Removes the job's directory from all nodes, before it has begun.
pub fn take_back(job: u32, nodes: u32, directory: &str) -> Result<Call, Unquotable> {
    let directory = quote::shell(directory)?;
    Ok(on_all(job, nodes, &format!("rm -rf {directory}")))
}

/// Removes the job's directory from all nodes but the driver's.
pub fn remove(job: u32, nodes: u32, directory: &str) -> Result<Call, Unquotable> {
    let directory = quote::shell(directory)?;
    Ok(on_all(
        job,
        nodes,
        &format!("[ -e {directory}/{READY} ] || rm -rf {directory}"),
    ))
}

/// Starts, on the node of the driver, what takes the job's records and gives back what becomes of them
/// over the streams of the step.
pub fn stage(job: u32, node: &str, directory: &str, args: &[String]) -> Call {
    let mut all = common(job, 1);
    all.extend([format!("--nodelist={node}"), STEP_NAME.to_owned()]);
    all.extend([format!("{directory}/{PROGRAM}"), "stage".to_owned()]);
    all.extend_from_slice(args);
    Call {
        program: "srun",
        args: all,
        env: Vec::new(),
    }
}

fn on_all(job: u32, nodes: u32, script: &str) -> Call {
    let mut args = common(job, nodes);
    // The environment of the submitting side stays there, and its PATH with it.
    let script = format!("PATH=/usr/bin:/bin; {script}");
    args.extend(["--input=none", STEP_NAME, "/bin/sh", "-c", &script].map(str::to_owned));
    Call {
        program: "srun",
        args,
        env: Vec::new(),
    }
}

/// One task on each node, beside whatever runs there.
fn common(job: u32, nodes: u32) -> Vec<String> {
    vec![
        format!("--jobid={job}"),
        format!("--nodes={nodes}"),
        format!("--ntasks={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        "--export=NONE".to_owned(),
        "--chdir=/".to_owned(),
        "--overlap".to_owned(),
        "--mem=0".to_owned(),
        "--gres=none".to_owned(),
        "--mpi=none".to_owned(),
        "--quiet".to_owned(),
        "--unbuffered".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_waits_for_its_own_run_alone() {
        let text = wait("/tmp/it's", "/tmp/it's/jobs/1").unwrap();
        assert!(text.contains(r"ready='/tmp/it'\''s/ready'"), "{text}");
        assert!(text.contains("SLURM_RESTART_COUNT"), "{text}");
        assert!(wait("/tmp/a\nb", "/r").is_err());
    }

    /// What the script of a step does here, on a node of this name.
    fn on_node(call: &Call, node: &str) -> (Option<i32>, String) {
        let script = call.args.last().unwrap();
        let done = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .env("SLURMD_NODENAME", node)
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        (done.status.code(), said)
    }

    #[test]
    fn nodes_that_share_a_directory_are_found_out_and_leftovers_are_not_taken_for_them() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("herd-it's");
        let text = directory.to_str().unwrap();
        let (first, second) = (
            prepare(7, 2, text, "1").unwrap(),
            prepare(7, 2, text, "2").unwrap(),
        );
        let settled = |run| settle(7, 2, text, run).unwrap();
        assert_eq!(on_node(&first, "n1"), (Some(0), String::new()));
        std::fs::write(directory.join("old"), "").unwrap();
        assert_eq!(on_node(&settled("1"), "n1"), (Some(0), String::new()));
        assert_eq!(on_node(&second, "n2"), (Some(0), String::new()));
        assert!(!directory.join("old").exists() && directory.join(WORK).is_dir());
        assert_eq!(on_node(&settled("2"), "n2"), (Some(0), String::new()));
        // As at once.
        assert_eq!(on_node(&second, "n1"), (Some(0), String::new()));
        let found = on_node(&settled("2"), "n1");
        assert_eq!(found, (Some(NODES_SHARE.into()), "n1\nn2\n".to_owned()));
        let back = take_back(7, 2, text).unwrap();
        assert_eq!(on_node(&back, "n1"), (Some(0), String::new()));
        assert!(!directory.exists());
    }

    #[test]
    fn a_node_that_has_no_such_place_says_so_with_a_code_of_its_own() {
        let call = prepare(7, 1, "/nonexist/dir/herd-1", "1").unwrap();
        let (code, said) = on_node(&call, "n1");
        assert_eq!(code, Some(NODE_REFUSES.into()));
        assert!(said.contains("/nonexist/dir"), "{said}");
    }

    #[test]
    fn steps_take_nothing_of_the_job_or_the_environment() {
        let stage = stage(7, "n1", "/tmp/x", &["a".to_owned()]);
        for call in [
            prepare(7, 3, "/tmp/x", "r").unwrap(),
            settle(7, 3, "/tmp/x", "r").unwrap(),
            stage,
        ] {
            for word in ["--jobid=7", "--overlap", "--export=NONE", "--gres=none"] {
                assert!(call.args.contains(&word.to_owned()), "{word} in {call:?}");
            }
        }
    }
}
