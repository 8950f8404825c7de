//! Why a job waits, is held or ended: every reason of Slurm 26.05 with what it means and what its
//! owner may change. Reasons of releases back to 20.11 that went away are kept.

mod limit;
mod limits;
mod plain;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use limit::{Holder, Limit, Measure, Resource};

/// What kind of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It starts by itself when its turn comes.
    Turn,
    /// Somebody holds it; it starts after a release.
    Held,
    /// It never starts as it is; something of the job has to change.
    Never,
    /// The site has to act.
    Site,
    /// It is over, and this is why.
    Ended,
}

/// A reason as Slurm printed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reason {
    code: String,
    detail: Option<String>,
}

/// What a known reason means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Slurm's word.
    pub code: &'static str,
    /// Its kind.
    pub class: Class,
    /// One sentence, without a capital and a full stop.
    pub meaning: String,
    /// What the user may change.
    pub change: String,
}

/// Bytes of a reason that are kept.
const MAX_REASON: usize = 512;

/// What stands in the place of a word for jobs that were queued again and held at once, by
/// `scontrol requeuehold`, because of their exit code, or because a node could not start them.
const HELD_IN_WORDS: &[&str] = &[
    "job requeued in held state",
    "job requeued in special exit state",
    "launch failed requeued held",
    "launch failure limit exceeded requeued held",
    "user env retrieval failed requeued held",
];

/// Other sentences in the place of a word: how they begin, in small letters, and the word that has their
/// meaning.
const SENTENCES: &[(&str, &str)] = &[
    ("nodes required for job are down", NODES),
    ("required node not available", "ReqNodeNotAvail"),
    ("job's account not permitted", "AccountNotAllowed"),
    ("job's qos not permitted", "QOSNotAllowed"),
];

/// What such a sentence begins with for which Slurm has no word: the commonest, with nodes out of service.
const NODES: &str = "Nodes";

impl Reason {
    /// Reads `Resources`, `(Resources)`, `RaisedSignal:11(Segmentation fault)` and
    /// `ReqNodeNotAvail, UnavailableNodes:node1`: a word, and what is said besides.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let bare = text
            .strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'))
            .unwrap_or(text);
        let mut end = bare.len().min(MAX_REASON);
        while !bare.is_char_boundary(end) {
            end -= 1;
        }
        let bare = &bare[..end];
        let words = bare.replace('_', " ");
        if HELD_IN_WORDS.contains(&words.as_str()) {
            return Self {
                code: "JobHeldUser".to_owned(),
                detail: Some(words),
            };
        }
        let small = words.to_ascii_lowercase();
        let known = SENTENCES
            .iter()
            .find(|(begins, _)| small.starts_with(begins));
        if let Some((_, code)) = known {
            return Self {
                code: (*code).to_owned(),
                detail: Some(words),
            };
        }
        let cut = bare.find(|c: char| !c.is_ascii_alphanumeric());
        let (code, detail) = bare.split_at(cut.unwrap_or(bare.len()));
        let detail = detail.trim_start_matches([',', ':', '_', ' ']).trim();
        Self {
            code: code.to_owned(),
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
        }
    }

    /// Slurm's word; empty where it printed none.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What Slurm says besides, as it came: nodes, a signal's name.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Its kind, where the word is known.
    pub fn class(&self) -> Option<Class> {
        let plain = self.plain().map(|plain| plain.class);
        plain.or_else(|| self.limit().map(class_of))
    }

    /// The limit behind it, where it is one.
    pub fn limit(&self) -> Option<&'static Limit> {
        let at = limits::LIMITS.binary_search_by(|limit| limit.code.cmp(&self.code));
        limits::LIMITS.get(at.ok()?)
    }

    fn plain(&self) -> Option<&'static plain::Plain> {
        let at = plain::PLAIN.binary_search_by(|plain| plain.code.cmp(&self.code));
        plain::PLAIN.get(at.ok()?)
    }

    /// What it means; nothing where the word is not known.
    pub fn explain(&self) -> Option<Explanation> {
        let plain = self.plain().map(explain_plain);
        plain.or_else(|| self.limit().map(explain_limit))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.code),
            None => f.write_str(&self.code),
        }
    }
}

/// Every known reason, those that are no limits first.
pub fn explanations() -> impl Iterator<Item = Explanation> {
    let plain = plain::PLAIN.iter().map(explain_plain);
    plain.chain(limits::LIMITS.iter().map(explain_limit))
}

fn explain_plain(plain: &plain::Plain) -> Explanation {
    Explanation {
        code: plain.code,
        class: plain.class,
        meaning: plain.meaning.to_owned(),
        change: plain.change.to_owned(),
    }
}

fn explain_limit(limit: &Limit) -> Explanation {
    Explanation {
        code: limit.code,
        class: class_of(limit),
        meaning: limit.meaning(),
        change: limit.change(),
    }
}

fn class_of(limit: &Limit) -> Class {
    if limit.is_final() {
        Class::Never
    } else {
        Class::Turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_reason_stands_once_and_says_what_to_do() {
        let all: Vec<_> = explanations().collect();
        let codes: BTreeSet<_> = all.iter().map(|known| known.code).collect();
        assert_eq!((codes.len(), all.len()), (222, 222));
        for known in &all {
            for text in [&known.meaning, &known.change] {
                assert!(text.len() > 10 && !text.ends_with('.'), "{}", known.code);
            }
            assert_eq!(Reason::parse(known.code).explain().as_ref(), Some(known));
            assert_eq!(Reason::parse(known.code).class(), Some(known.class));
        }
    }

    #[test]
    fn words_and_details_are_told_apart() {
        let read = |text| {
            let reason = Reason::parse(text);
            (
                reason.code().to_owned(),
                reason.detail().unwrap_or("").to_owned(),
            )
        };
        let pair = |code: &str, detail: &str| (code.to_owned(), detail.to_owned());
        assert_eq!(read("(Resources)"), pair("Resources", ""));
        assert_eq!(
            read("RaisedSignal:11(Segmentation fault)"),
            pair("RaisedSignal", "11(Segmentation fault)")
        );
        assert_eq!(
            read("ReqNodeNotAvail,_UnavailableNodes:node[1-2]"),
            pair("ReqNodeNotAvail", "UnavailableNodes:node[1-2]")
        );
        assert_eq!(read(""), pair("", ""));
    }

    #[test]
    fn a_hold_that_slurm_puts_into_words_is_a_hold() {
        for text in [
            "job_requeued_in_held_state",
            "(launch failed requeued held)",
        ] {
            let reason = Reason::parse(text);
            assert_eq!(reason.class(), Some(Class::Held), "{text}");
            assert!(reason.detail().unwrap().contains("requeued"));
        }
    }

    #[test]
    fn a_sentence_in_the_place_of_a_word_is_understood() {
        let nodes = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher \
                     priority partitions";
        for (text, code, class) in [
            (nodes, "Nodes", Class::Turn),
            (&nodes.replace(' ', "_"), "Nodes", Class::Turn),
            (
                "(Job's account not permitted to use this partition (gpu allows a not b))",
                "AccountNotAllowed",
                Class::Never,
            ),
            (
                "Job's_QOS_not_permitted_to_use_this_partition",
                "QOSNotAllowed",
                Class::Never,
            ),
            (
                "Required node not available (down, drained or reserved)",
                "ReqNodeNotAvail",
                Class::Turn,
            ),
            (
                "user_env_retrieval_failed_requeued_held",
                "JobHeldUser",
                Class::Held,
            ),
        ] {
            let reason = Reason::parse(text);
            assert_eq!(
                (reason.code(), reason.class()),
                (code, Some(class)),
                "{text}"
            );
            assert!(reason.detail().unwrap().contains(' '), "{reason}");
        }
    }

    #[test]
    fn limits_are_put_into_sentences() {
        let explain = |code| Reason::parse(code).explain().unwrap();
        assert_eq!(
            explain("AssocGrpGRES").meaning,
            "the running jobs of the account have all the GPUs (or other GRES) that its limit \
             allows"
        );
        assert_eq!(explain("QOSMaxWallDurationPerJobLimit").class, Class::Never);
        assert_eq!(explain("QOSMaxJobsPerUserLimit").class, Class::Turn);
        assert!(
            explain("AssocGrpGRESMinutes")
                .change
                .contains("slurm.account")
        );
        assert_eq!(Reason::parse("SomethingNew").explain(), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}", long in "é{250,300}") {
            drop((Reason::parse(&text), Reason::parse(&long)));
        }
    }
}
