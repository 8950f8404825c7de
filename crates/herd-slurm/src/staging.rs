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

/// Makes the job's directory on all its nodes, private and empty.
pub fn prepare(job: u32, nodes: u32, directory: &str) -> Result<Call, Unquotable> {
    let directory = quote::shell(directory)?;
    let script = format!("umask 077; rm -rf {directory}; mkdir {directory} {directory}/{WORK}");
    Ok(on_all(job, nodes, &script))
}

/// Unpacks the workdir that was brought, on all nodes.
pub fn unpack(job: u32, nodes: u32, directory: &str) -> Result<Call, Unquotable> {
    let directory = quote::shell(directory)?;
    let script = format!("cd {directory} && tar -xf {BUNDLE} -C {WORK} && rm {BUNDLE}");
    Ok(on_all(job, nodes, &script))
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

    #[test]
    fn steps_take_nothing_of_the_job_or_the_environment() {
        let stage = stage(7, "n1", "/tmp/x", &["a".to_owned()]);
        for call in [prepare(7, 3, "/tmp/x").unwrap(), stage] {
            for word in ["--jobid=7", "--overlap", "--export=NONE", "--gres=none"] {
                assert!(call.args.contains(&word.to_owned()), "{word} in {call:?}");
            }
        }
    }
}
