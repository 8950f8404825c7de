//! The batch script: a plan in Slurm's words.
//!
//! Nothing secret is in it: Slurm keeps it, and administrators and accounting may show it. All
//! options stand in it rather than on the command line; its last line becomes the driver.

mod directives;
mod name;

use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::{AfterWhen, SlurmOptions};

use crate::array::Chunk;
use crate::facts::ClusterFacts;
use crate::{quote, refuse, staging};

pub(crate) use directives::MIDDLE;
pub use directives::notice_seconds;
pub use name::job_name;

/// What one submission asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The job.
    pub plan: &'a Plan,
    /// Its own words for Slurm.
    pub options: &'a SlurmOptions,
    /// Container image.
    pub image: Option<&'a str>,
    /// Absolute path of the job's directory, where Slurm puts what the script itself prints.
    pub directory: &'a str,
    /// Nodes to keep off, besides those that the job names; unknown ones are left out.
    pub exclude: &'a [String],
    /// Slurm jobs that have to end first.
    pub after: &'a [Dependency],
    /// Where the nodes share no directory with this side: the job's directory there, which the script
    /// waits for ([`crate::staging`]).
    pub staged_to: Option<&'a str>,
}

/// A Slurm job that has to end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Its number; an array's stands for all its tasks. Slurm has forgotten jobs that ended longer
    /// than `MinJobAge` ago: 22.05 starts the job then, newer releases refuse it, so what has ended
    /// is better left out.
    pub job: u32,
    /// Which end counts.
    pub when: AfterWhen,
}

/// Which part of an array a script is for.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The part.
    pub chunk: &'a Chunk,
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// The part before it, where [`Chunk::after_previous`] asks for it.
    pub previous: Option<u32>,
}

/// The script, or everything that stands against it (I13). `exec` is what its last line becomes.
pub fn script(
    request: &Request<'_>,
    facts: &ClusterFacts,
    part: Option<&Part<'_>>,
    exec: &[String],
) -> Result<String, Vec<Unsupported>> {
    let mut refused = refuse::refusals(request, facts);
    let mut text = format!(
        "#!/bin/sh\n# herd job {}, attempt {}\n",
        request.plan.job, request.plan.attempt
    );
    for (option, value) in directives::directives(request, facts, part) {
        text.push_str("#SBATCH --");
        text.push_str(option);
        match value.as_deref().map(quote::directive) {
            None => {}
            Some(Ok(value)) => {
                text.push('=');
                text.push_str(&value);
            }
            Some(Err(error)) => refused.push(Unsupported {
                key: directives::key(option).to_owned(),
                reason: format!("for `--{option}` of sbatch: {error}"),
                hint: "write it in one line of visible characters".to_owned(),
            }),
        }
        text.push('\n');
    }
    text.push('\n');
    if let Some(directory) = request.staged_to {
        match staging::wait(directory, request.directory) {
            Ok(wait) => text.push_str(&wait),
            Err(error) => refused.push(Unsupported {
                key: "workdir".to_owned(),
                reason: format!(
                    "the directory {} {error}",
                    herd_core::text::quoted(directory)
                ),
                hint: "name another `node_dir` in the configuration of the backend".to_owned(),
            }),
        }
    }
    text.push_str("exec");
    for word in exec {
        text.push(' ');
        match quote::shell(word) {
            Ok(word) => text.push_str(&word),
            Err(error) => refused.push(Unsupported {
                key: "workdir".to_owned(),
                reason: format!("the path or name {} {error}", herd_core::text::quoted(word)),
                hint: "use a directory whose name has visible characters only".to_owned(),
            }),
        }
    }
    text.push('\n');
    if refused.is_empty() {
        Ok(text)
    } else {
        Err(refused)
    }
}

#[cfg(test)]
mod tests;
