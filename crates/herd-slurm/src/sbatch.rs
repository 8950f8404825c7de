//! Submission: `sbatch`, its answer, and its refusals.

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::reason::Reason;

/// Submits a script: a file, or what is written to standard input. Everything about the job stands
/// in the script, so the command line, which accounting records and everybody sees, says nothing.
pub fn submit_call(script: Option<&str>) -> Call {
    Call::new("sbatch", ["--parsable"].into_iter().chain(script))
}

/// Asks whether the script would be accepted, and when it might start.
pub fn test_call(script: Option<&str>) -> Call {
    Call::new("sbatch", ["--test-only"].into_iter().chain(script))
}

/// A job that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its number.
    pub job: u32,
    /// The cluster that has it, where there are several.
    pub cluster: Option<String>,
}

/// Reads `17` or `17;cluster`: the last line of that form, since a site may greet before it.
pub fn parse(output: &str) -> Option<Submitted> {
    output.lines().rev().find_map(|line| {
        let (job, cluster) = match line.trim().split_once(';') {
            Some((job, cluster)) => (job, Some(cluster)),
            None => (line.trim(), None),
        };
        let digits = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let named = cluster.is_none_or(|name| !name.is_empty() && name.chars().all(plain));
        (digits && named).then_some(())?;
        Some(Submitted {
            job: job.parse().ok().filter(|job| *job > 0)?,
            cluster: cluster.map(str::to_owned),
        })
    })
}

/// What a failed `sbatch` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The account does not exist, or not for this user and partition.
    Account,
    /// The partition does not exist, or cannot take the job.
    Partition,
    /// The QOS does not exist, or may not be used.
    Qos,
    /// No nodes have what is asked for.
    Nodes,
    /// More memory than nodes have.
    Memory,
    /// A feature that no node has.
    Constraint,
    /// GPUs or other generic resources that no node has, or that are named otherwise.
    Gres,
    /// A node that does not exist.
    NodeName,
    /// The reservation does not exist, or does not let the job in.
    Reservation,
    /// A license that does not exist.
    License,
    /// A time limit beyond the partition's.
    TimeLimit,
    /// Indices that the site does not take.
    Array,
    /// A job to come after that Slurm does not know.
    Dependency,
    /// A limit on jobs or resources of the account, user or QOS.
    Limit,
    /// An option that this release does not know.
    Option,
    /// The controller cannot be reached, or does not answer. It may have accepted the job: it has
    /// to be looked for by name before it is sent again (I2).
    Unavailable,
    /// Something else; the text says what.
    Other,
}

impl Refusal {
    /// The key of the job file that it is about.
    pub fn key(self) -> Option<&'static str> {
        Some(match self {
            Self::Account => "slurm.account",
            Self::Partition => "slurm.partition",
            Self::Qos => "slurm.qos",
            Self::Nodes => "resources",
            Self::Memory => "resources.memory",
            Self::Gres => "resources.gpus",
            Self::Constraint
            | Self::NodeName
            | Self::Reservation
            | Self::License
            | Self::Option => "slurm.extra",
            Self::TimeLimit => "walltime",
            Self::Array => "array",
            Self::Dependency => "after",
            Self::Limit | Self::Unavailable | Self::Other => return None,
        })
    }
}

/// Parts of messages, 20.11 to 26.05, the more telling first. REST has numbers, `sbatch` has not.
const MESSAGES: &[(&str, Refusal)] = &[
    ("Unable to contact slurm controller", Refusal::Unavailable),
    ("Unable to establish", Refusal::Unavailable),
    ("Socket timed out", Refusal::Unavailable),
    ("Zero Bytes were transmitted", Refusal::Unavailable),
    ("Connection refused", Refusal::Unavailable),
    ("Connection timed out", Refusal::Unavailable),
    ("standby mode", Refusal::Unavailable),
    ("Resource temporarily unavailable", Refusal::Unavailable),
    ("Transport endpoint is not connected", Refusal::Unavailable),
    ("Unexpected message received", Refusal::Unavailable),
    ("temporarily disabled", Refusal::Unavailable),
    ("Invalid account", Refusal::Account),
    ("nvalid partition", Refusal::Partition),
    ("not available in that partition", Refusal::Partition),
    ("Required partition not available", Refusal::Partition),
    (
        "group not permitted to use this partition",
        Refusal::Partition,
    ),
    ("Invalid qos", Refusal::Qos),
    ("Memory specification", Refusal::Memory),
    ("Memory required by task", Refusal::Memory),
    ("Invalid feature", Refusal::Constraint),
    ("nvalid generic resource", Refusal::Gres),
    ("Invalid GRES", Refusal::Gres),
    ("Invalid Trackable RESource", Refusal::Gres),
    ("Invalid node name", Refusal::NodeName),
    ("reservation", Refusal::Reservation),
    ("license", Refusal::License),
    // It names time limits among others.
    ("violates accounting/QOS policy", Refusal::Limit),
    ("time limit", Refusal::TimeLimit),
    ("job array", Refusal::Array),
    ("dependency", Refusal::Dependency),
    ("job submit limit", Refusal::Limit),
    ("Job limit", Refusal::Limit),
    ("unrecognized option", Refusal::Option),
    ("unrecognised option", Refusal::Option),
    ("invalid option", Refusal::Option),
    (
        "Requested node configuration is not available",
        Refusal::Nodes,
    ),
    ("Node count", Refusal::Nodes),
    ("More processors requested", Refusal::Nodes),
];

/// Characters of a message that are kept.
const MAX_MESSAGE: usize = 500;

/// Whether what a command of Slurm said means that the controller was not there, or did not answer.
pub fn is_unavailable(text: &str) -> bool {
    explain(text).0 == Refusal::Unavailable
}

/// What `sbatch` printed on standard error when it failed: what it means, and in its own words.
pub fn explain(errors: &str) -> (Refusal, String) {
    let known = MESSAGES.iter().find(|(part, _)| errors.contains(part));
    let refusal = known.map_or(Refusal::Other, |(_, refusal)| *refusal);
    let part = known.map(|(part, _)| *part);
    if refusal == Refusal::Limit
        && let Some(limit) = errors.lines().find_map(limit)
    {
        return (refusal, limit);
    }
    // The line that told, else the last that speaks.
    let telling = |line: &&str| part.is_some_and(|part| line.contains(part));
    let line = errors
        .lines()
        .find(telling)
        .or_else(|| errors.lines().rev().find(|line| !line.trim().is_empty()))
        .unwrap_or_default();
    let mut line = line.trim();
    for before in [
        "/usr/bin/",
        "sbatch:",
        "error:",
        "Batch job submission failed:",
        "allocation failure:",
    ] {
        line = line.strip_prefix(before).unwrap_or(line).trim_start();
    }
    (refusal, line.chars().take(MAX_MESSAGE).collect())
}

/// `sbatch: error: AssocMaxSubmitJobLimit`: which limit it is, in words.
fn limit(line: &str) -> Option<String> {
    let word = line.rsplit(": ").next()?.trim();
    let known = Reason::parse(word).explain()?;
    Some(format!("{} ({})", known.meaning, known.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_number_is_found_behind_a_greeting() {
        let read = |text| parse(text).map(|job| (job.job, job.cluster));
        assert_eq!(read("17\n"), Some((17, None)));
        assert_eq!(read("17;big\n"), Some((17, Some("big".to_owned()))));
        assert_eq!(
            read("Welcome to 2 clusters\n2026\nsbatch: lua: ok\n17;big\n"),
            Some((17, Some("big".to_owned())))
        );
        for text in [
            "",
            "Submitted batch job 17",
            "17;",
            "17;a b",
            "0",
            "-5",
            "99999999999",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn row_14_a_refusal_names_what_is_wrong() {
        for (text, refusal, words) in [
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
                Refusal::Account,
                "Invalid account or account/partition combination specified",
            ),
            (
                "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n",
                Refusal::Partition,
                "invalid partition specified: nope",
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid qos specification",
                Refusal::Qos,
                "Invalid qos specification",
            ),
            (
                "sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                Refusal::Memory,
                "Memory specification can not be satisfied",
            ),
            (
                "sbatch: error: Something new\n\n",
                Refusal::Other,
                "Something new",
            ),
            ("", Refusal::Other, ""),
        ] {
            assert_eq!(explain(text), (refusal, words.to_owned()));
        }
    }

    #[test]
    fn a_limit_is_named() {
        let policy = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job \
                      submit limit, user's size and/or time limits)\n";
        let (refusal, text) = explain(policy);
        assert_eq!(refusal, Refusal::Limit);
        assert!(text.starts_with("Job violates accounting"), "{text}");
        let (refusal, text) = explain(&format!("sbatch: error: AssocMaxSubmitJobLimit\n{policy}"));
        assert_eq!(refusal, Refusal::Limit);
        assert!(text.ends_with("(AssocMaxSubmitJobLimit)"), "{text}");
    }

    #[test]
    fn a_time_out_is_no_refusal() {
        for text in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        ] {
            assert_eq!(explain(text).0, Refusal::Unavailable);
            assert!(is_unavailable(text));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", lines in "[0-9;\na]{0,20}") {
            drop((explain(&text), parse(&lines)));
        }
    }
}
