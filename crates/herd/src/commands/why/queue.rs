//! What a cluster tells of a job in its queue, as evidence for the sentence above it.

use herd_backends::slurm::evidence::{Evidence, FairShare, LimitUse, Nodes};
use herd_backends::slurm::observe::View;
use herd_core::spec::{AfterWhen, Array};
use herd_jobdir::Home;
use herd_slurm::fit::Obstacle;
use herd_slurm::outcome::Condition;
use herd_slurm::reason::{Class, Reason};
use serde::Serialize;

use crate::backend_slurm;
use crate::jobs::{self, Job};
use crate::{report, text};

/// A job that another comes after.
#[derive(Debug, Serialize)]
struct Other {
    id: String,
    short: String,
    name: String,
    state: String,
    when: AfterWhen,
}

/// A job in the queue.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    /// Slurm's number.
    job: u32,
    /// The cluster, where there are several.
    cluster: Option<String>,
    /// Slurm's word for what it waits for, and what Slurm says besides.
    reason: Option<String>,
    detail: Option<String>,
    /// What kind of reason it is: `turn`, `held`, `never`, `site`, `ended`.
    class: Option<Class>,
    /// What the word means, and what may be changed.
    meaning: Option<String>,
    change: Option<String>,
    /// Whether a limit is less than what the job alone asks for.
    #[serde(skip)]
    beyond: bool,
    /// The tasks of an array that wait, as in a job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<String>,
    /// The jobs that it comes after and that have not ended as they must.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<Other>,
    #[serde(flatten)]
    evidence: Evidence,
}

/// Asks the cluster about a job that waits, or whose tasks do; nothing for any other.
pub(super) fn look(job: &Job, home: &Home) -> Option<Queue> {
    let record = job.slurm.as_ref()?;
    let view = job.observed.as_ref()?;
    if job.is_ended() || !matches!(view.condition, Condition::Pending { .. }) {
        return None;
    }
    let known = view.reason.explain();
    let word = |reason: &Reason| Some(reason.code().to_owned()).filter(|code| !code.is_empty());
    let mut queue = Queue {
        job: record.job,
        cluster: record.cluster.clone(),
        reason: word(&view.reason),
        detail: view.reason.detail().map(str::to_owned),
        class: view.reason.class(),
        meaning: known.as_ref().map(|known| known.meaning.clone()),
        change: known.map(|known| known.change),
        beyond: false,
        tasks: waiting_tasks(job),
        after: others(job, home),
        evidence: backend_slurm::evidence(&job.dir, record, view).unwrap_or_default(),
    };
    queue.judge(&view.reason);
    Some(queue)
}

/// The tasks that wait, of an array of Slurm.
fn waiting_tasks(job: &Job) -> Option<String> {
    let waits = |view: &View| matches!(view.condition, Condition::Pending { .. });
    let tasks = job.tasks_observed.iter().filter(|(_, view)| waits(view));
    let indices: Vec<u32> = tasks.map(|(index, _)| *index).collect();
    if indices.is_empty() {
        return None;
    }
    let limit = None;
    let list = report::task_list(&Array { indices, limit });
    Some(list.unwrap_or_else(|cut| cut))
}

/// The jobs that it comes after and that have not let it go yet.
fn others(job: &Job, home: &Home) -> Vec<Other> {
    let plan = job.dir.attempt(1).read_plan().ok().flatten();
    let after = plan.map(|plan| plan.after).unwrap_or_default();
    after
        .iter()
        .filter_map(|after| {
            let other = jobs::open(home, &after.job).ok()?;
            let ended = other.dir.read_result().ok()?.map(|result| result.state);
            if ended.is_some_and(|state| after.when.is_met_by(state)) {
                return None;
            }
            Some(Other {
                id: other.dir.id().to_string(),
                short: other.short(),
                name: other
                    .summary
                    .as_ref()
                    .map_or_else(String::new, |s| s.name.clone()),
                state: other.status.brief.state,
                when: after.when,
            })
        })
        .collect()
}

impl Queue {
    /// What the evidence makes of the reason: a limit that the job alone exceeds, and who asks.
    fn judge(&mut self, reason: &Reason) {
        if let Some(limit) = self.evidence.limits.iter().find(|limit| limit.is_beyond()) {
            self.class = Some(Class::Never);
            let asked = limit.asked.unwrap_or_default();
            self.meaning = Some(format!(
                "it never starts as it is: it asks for {asked} ({}), and {} allows {}",
                limit.what, limit.of, limit.limit
            ));
            self.beyond = true;
            self.change = Some(match reason.limit() {
                Some(limit) => limit.change_of_one_job(),
                None => format!("ask for less {}", limit.what),
            });
        }
        // What root holds root may let go.
        if reason.code() == "JobHeldAdmin" && nix::unistd::Uid::effective().is_root() {
            self.change = Some("`herd release JOB`, which root may".to_owned());
        }
    }

    /// For people: what was found, then what to change.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let found = &self.evidence;
        let code = self.reason.as_deref().unwrap_or("no reason");
        match (&self.tasks, &self.meaning) {
            (Some(tasks), Some(meaning)) => {
                lines.push(format!("tasks {tasks} wait: {meaning} ({code})"));
            }
            (Some(tasks), None) => lines.push(format!("tasks {tasks} wait ({code})")),
            (None, Some(meaning)) if self.beyond => {
                lines.push(format!("never: {meaning}"));
            }
            (None, _) => {}
        }
        for other in &self.after {
            let Other {
                short, name, state, ..
            } = other;
            let must = match other.when {
                AfterWhen::Ok => "has to succeed",
                AfterWhen::Failed => "has to fail",
                AfterWhen::Any => "has to end",
            };
            lines.push(format!("after: {name} ({short}), which {must}, is {state}"));
        }
        if let Some(charge) = &found.charge {
            let mut words = vec![format!("partition {}", charge.partition)];
            words.extend(charge.account.iter().map(|name| format!("account {name}")));
            words.extend(charge.qos.iter().map(|name| format!("QOS {name}")));
            lines.push(format!("in: {}", words.join(", ")));
        }
        lines.extend(self.detail.iter().map(|text| format!("Slurm adds: {text}")));
        if let Some(nodes) = &found.nodes {
            of_nodes(nodes, &mut lines);
        }
        lines.extend(found.limits.iter().map(of_limit));
        lines.extend(found.shares.iter().map(of_share));
        match found.expected_start {
            Some(at) => lines.push(format!(
                "start: Slurm expects {}",
                text::moment(at.saturating_mul(1000))
            )),
            None => lines.push("start: Slurm has worked out no time".to_owned()),
        }
        for what in &found.unanswered {
            lines.push(format!("not found out: {what}"));
        }
        lines.extend(self.change.iter().map(|text| format!("change: {text}")));
        lines
    }
}

fn of_nodes(nodes: &Nodes, lines: &mut Vec<String>) {
    let Nodes {
        wanted, total, fit, ..
    } = nodes;
    let now = match *fit {
        0 => "none of which is free for it now".to_owned(),
        _ => format!("{fit} of which would do now ({})", nodes.fitting),
    };
    lines.push(format!(
        "nodes: it wants {wanted}, its partition has {total}, {now}"
    ));
    for blocked in &nodes.obstacles {
        lines.push(format!(
            "  {}: {}",
            blocked.nodes,
            obstacle(&blocked.obstacle)
        ));
    }
}

fn obstacle(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::TooSmall => "smaller than what the job asks for".to_owned(),
        Obstacle::OutOfService(state, None) => format!("out of service ({state})"),
        Obstacle::OutOfService(state, Some(why)) => {
            format!("out of service ({state}: {})", with_time(why))
        }
        Obstacle::Cpus(free) => format!("too few CPUs free ({free})"),
        Obstacle::Memory(free) => {
            let free = text::size(free.saturating_mul(1 << 20));
            format!("too little memory free ({free})")
        }
        Obstacle::Gpus(free) => format!("too few GPUs free ({free})"),
    }
}

/// An administrator's words, behind which Slurm puts `[root@1796066705]`.
fn with_time(why: &str) -> String {
    let signed = || {
        let (words, signature) = why.strip_suffix(']')?.rsplit_once(" [")?;
        let (who, at) = signature.rsplit_once('@')?;
        let at: u64 = at.parse().ok()?;
        let at = text::moment(at.checked_mul(1000)?);
        Some(format!("{words}, by {who} at {at}"))
    };
    signed().unwrap_or_else(|| why.to_owned())
}

fn of_limit(limit: &LimitUse) -> String {
    let (of, what, most) = (&limit.of, &limit.what, limit.limit);
    let used = match limit.used {
        Some(used) => format!("{used} of {most} {what}"),
        None => format!("at most {most} {what}"),
    };
    match limit.asked {
        Some(asked) if limit.stands_against() => {
            format!("limit: {of}: {used}, and the job asks for {asked}")
        }
        _ => format!("limit: {of}: {used}"),
    }
}

fn of_share(share: &FairShare) -> String {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let mut words = Vec::new();
    words.extend(share.shares.map(|shares| format!("{shares} shares")));
    words.push(format!("due {}", percent(share.due)));
    words.push(format!("used {}", percent(share.used)));
    words.extend(share.level.map(|level| format!("level {level:.2}")));
    words.extend(share.factor.map(|factor| format!("factor {factor:.2}")));
    format!("share: {}: {}", share.of, words.join(", "))
}
