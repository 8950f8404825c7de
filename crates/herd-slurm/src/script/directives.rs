//! The options of a batch script, one by one.

use herd_core::spec::{AfterWhen, SlurmEnvironment};

use super::{Dependency, Part, Request, job_name};
use crate::control::NOTICE;
use crate::facts::ClusterFacts;
use crate::{array, quote, time};

/// An option without its dashes, and its value.
type Directive = (&'static str, Option<String>);

/// Priority of a job that does not say; Slurm's users can only step back behind it.
pub(crate) const MIDDLE: u32 = 50;

/// How far one step of priority goes, in Slurm's numbers.
const NICE_STEP: u32 = 100;

/// Most seconds that `--signal` takes.
const MAX_NOTICE: u64 = 65_535;

/// How long before the time limit, and before the end of a preemption's grace, Slurm signals the
/// driver.
pub fn notice_seconds(request: &Request<'_>) -> u64 {
    let plan = request.plan;
    let margin = plan.time_limit_margin().unwrap_or(plan.grace);
    margin.ms.div_ceil(1000).clamp(1, MAX_NOTICE)
}

/// The options, in the order in which people look for them.
pub(super) fn directives(
    request: &Request<'_>,
    facts: &ClusterFacts,
    part: Option<&Part<'_>>,
) -> Vec<Directive> {
    let (plan, options) = (request.plan, request.options);
    let number = part.map_or(0, |part| part.number);
    let partition = facts.partition(options.partition.as_deref());
    let mut all: Vec<Directive> = vec![
        ("job-name", Some(job_name(plan, number))),
        ("comment", Some(comment(request, part))),
        ("nodes", Some(plan.nodes.to_string())),
    ];
    all.extend(tasks(request));
    let mut say = |option, value| all.push((option, Some(value)));
    if let Some(cpus) = plan.resources.cpus {
        say("cpus-per-task", cpus.to_string());
    }
    if let Some(memory) = plan.resources.memory {
        say("mem", format!("{}M", memory.0.div_ceil(1 << 20)));
    }
    if let Some(gpus) = plan.resources.gpus.filter(|gpus| *gpus > 0) {
        let kind = plan.resources.gpu_type.as_deref();
        say("gres", facts.gres_request(partition, gpus, kind));
    }
    if let Some(walltime) = plan.walltime {
        say("time", time::render_limit(walltime));
    }
    for (option, value) in [
        ("partition", &options.partition),
        ("account", &options.account),
        ("qos", &options.qos),
    ] {
        if let Some(value) = value {
            say(option, value.clone());
        }
    }
    if let Some(steps) = MIDDLE.checked_sub(plan.priority).filter(|steps| *steps > 0) {
        say("nice", (steps * NICE_STEP).to_string());
    }
    if let Some(part) = part {
        say("array", array::render(&part.chunk.array));
        if part.of > 1 {
            // Until all parts are there.
            all.push(("hold", None));
        }
    }
    let mut say = |option, value| all.push((option, Some(value)));
    let previous = part.and_then(|part| part.previous);
    if let Some(list) = dependencies(request.after, previous) {
        say("dependency", list);
        // Nobody may be there to see that it can never start.
        say("kill-on-invalid-dep", "yes".to_owned());
    }
    say("signal", format!("B:{NOTICE}@{}", notice_seconds(request)));
    all.push(("requeue", None));
    let directory = quote::literal_path(request.directory);
    let (output, chdir) = match (request.staged_to, part) {
        // The job's own directory is not there yet, and nothing is to be left beside it.
        (Some(_), _) => ("/dev/null".to_owned(), "/"),
        // Tasks run on many nodes, which cannot append to one file.
        (None, Some(_)) => (
            format!("{directory}/tasks/slurm-%A_%a.out"),
            request.directory,
        ),
        (None, None) => (format!("{directory}/slurm-%A.out"), request.directory),
    };
    all.extend([
        ("open-mode", Some("append".to_owned())),
        ("output", Some(output)),
        ("chdir", Some(chdir.to_owned())),
        ("export", Some("NONE".to_owned())),
    ]);
    all.extend(extra(request, facts, part));
    all
}

/// One task a node, which the executor is. Of a user's batch script that does not say so it is left to Slurm
/// how many tasks it counts, as `sbatch` does: with `--exclusive` it counts CPUs, and tells the script.
fn tasks(request: &Request<'_>) -> Option<Directive> {
    let says = |name| request.plan.env.contains_key(name);
    let of_script = request.options.environment == SlurmEnvironment::Script;
    let option = match of_script {
        true if says("SLURM_NTASKS_PER_NODE") => "ntasks-per-node",
        true if says("SLURM_NTASKS") => "ntasks",
        true => return None,
        false => "ntasks-per-node",
    };
    Some((option, Some("1".to_owned())))
}

/// What `slurm.extra` adds, and the nodes that herd itself keeps off.
fn extra(request: &Request<'_>, facts: &ClusterFacts, part: Option<&Part<'_>>) -> Vec<Directive> {
    // A node that has left the cluster meanwhile would make sbatch refuse the script.
    let known = |name: &&String| facts.nodes.is_empty() || facts.has_node(name);
    let away: Vec<&String> = request.exclude.iter().filter(known).collect();
    let mut exclude = herd_core::hostlist::fold(&away);
    let mut all = Vec::new();
    for text in &request.options.extra {
        let bare = text.trim_start_matches('-');
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (bare, None),
        };
        // Anything else was refused, and is not rendered either.
        let Some(name) = herd_core::validate::SLURM_EXTRA
            .iter()
            .find(|known| **known == name && **known != "comment")
        else {
            continue;
        };
        match (*name, value) {
            ("exclude", Some(list)) if !exclude.is_empty() => {
                exclude = format!("{list},{exclude}");
            }
            ("exclude", Some(list)) => exclude = list,
            // It is there already, until all parts of an array are.
            ("hold", _) if part.is_some_and(|part| part.of > 1) => {}
            (name, value) => all.push((name, value)),
        }
    }
    if !exclude.is_empty() {
        all.push(("exclude", Some(exclude)));
    }
    all
}

/// `afterok:17:18,afterany:19`: all of them have to hold.
fn dependencies(after: &[Dependency], previous: Option<u32>) -> Option<String> {
    let mut kinds: Vec<String> = Vec::new();
    for (when, word) in [
        (AfterWhen::Ok, "afterok"),
        (AfterWhen::Failed, "afternotok"),
        (AfterWhen::Any, "afterany"),
    ] {
        let mut jobs: Vec<String> = after
            .iter()
            .filter(|dependency| dependency.when == when)
            .map(|dependency| dependency.job.to_string())
            .collect();
        if when == AfterWhen::Any {
            jobs.extend(previous.map(|job| job.to_string()));
        }
        if !jobs.is_empty() {
            kinds.push(format!("{word}:{}", jobs.join(":")));
        }
    }
    (!kinds.is_empty()).then(|| kinds.join(","))
}

/// The whole id, by which herd is sure that a job of the right name is its own.
fn comment(request: &Request<'_>, part: Option<&Part<'_>>) -> String {
    let id = request.plan.job;
    match part {
        Some(part) if part.of > 1 => {
            format!("herd job {id} part {} of {}", part.number + 1, part.of)
        }
        _ => format!("herd job {id}"),
    }
}

/// The key of the job file that an option comes from.
pub(super) fn key(option: &str) -> &'static str {
    match option {
        "partition" => "slurm.partition",
        "account" => "slurm.account",
        "qos" => "slurm.qos",
        "gres" => "resources.gpu_type",
        "output" | "chdir" => "workdir",
        _ => "slurm.extra",
    }
}
