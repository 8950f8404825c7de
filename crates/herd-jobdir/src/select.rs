//! Which job a person means by a few characters; a pure function over ids and names.

use herd_core::JobId;
use thiserror::Error;

use crate::error::JobDirError;

/// Fewest hex digits that may stand for an id.
const SHORTEST_FRAGMENT: usize = 4;
/// Candidates and near names shown to a person.
const SHOWN: usize = 8;
/// Jobs whose names are compared for a hint, newest first.
const COMPARED: usize = 1000;

/// No job, or not one.
#[derive(Debug, Error)]
pub enum SelectError {
    /// Nothing matches.
    #[error("no job matches {text:?}")]
    NotFound {
        /// What was asked for.
        text: String,
        /// Names that look like it, nearest first.
        nearest: Vec<String>,
    },
    /// Several jobs match.
    #[error("{text:?} matches {count} jobs: {}", list(candidates))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// How many match.
        count: usize,
        /// The newest of them, with their names.
        candidates: Vec<(JobId, String)>,
    },
    /// The home could not be read.
    #[error("cannot look through the jobs")]
    Unreadable(#[source] JobDirError),
}

/// `jobs` are newest first.
pub(crate) fn select(jobs: &[(JobId, &str)], text: &str) -> Result<JobId, SelectError> {
    if text == "last" {
        return jobs
            .first()
            .map(|(id, _)| *id)
            .ok_or_else(|| not_found(jobs, text));
    }
    let mut matching = by_fragment(jobs, text);
    if let Some(named) = jobs.iter().find(|(_, name)| *name == text) {
        // A name of hex digits may look like another job's id: guessing would act on the wrong one.
        if !matching.iter().any(|(id, _)| *id == named.0) {
            matching.push(*named);
        }
    }
    match matching.as_slice() {
        [] => Err(not_found(jobs, text)),
        [(id, _)] => Ok(*id),
        several => Err(SelectError::Ambiguous {
            text: text.to_owned(),
            count: several.len(),
            candidates: several
                .iter()
                .take(SHOWN)
                .map(|(id, name)| (*id, (*name).to_owned()))
                .collect(),
        }),
    }
}

/// Jobs whose id ends so; where none does, those whose id begins so.
fn by_fragment<'a>(jobs: &[(JobId, &'a str)], text: &str) -> Vec<(JobId, &'a str)> {
    let fragment: String = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_ascii_lowercase())
        .collect();
    if fragment.len() < SHORTEST_FRAGMENT || !fragment.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Vec::new();
    }
    let mut ends = Vec::new();
    let mut begins = Vec::new();
    for job in jobs {
        let hex = job.0.to_string().replace('-', "");
        if hex.ends_with(&fragment) {
            ends.push(*job);
        } else if hex.starts_with(&fragment) {
            begins.push(*job);
        }
    }
    if ends.is_empty() { begins } else { ends }
}

fn not_found(jobs: &[(JobId, &str)], text: &str) -> SelectError {
    let mut near: Vec<(usize, &str)> = Vec::new();
    for (_, name) in jobs.iter().take(COMPARED) {
        let distance = edit_distance(text, name);
        let bound = text.chars().count() / 3;
        if distance <= bound && !near.iter().any(|(_, seen)| seen == name) {
            near.push((distance, name));
        }
    }
    near.sort_by_key(|(distance, _)| *distance);
    let nearest = near
        .into_iter()
        .take(SHOWN)
        .map(|(_, name)| name.to_owned())
        .collect();
    SelectError::NotFound {
        text: text.to_owned(),
        nearest,
    }
}

/// Insertions, deletions and replacements between two texts.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn list(candidates: &[(JobId, String)]) -> String {
    let shown: Vec<String> = candidates
        .iter()
        .map(|(id, name)| format!("{id} ({name})"))
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0190aaaa-0000-7000-8000-00000000beef";
    const B: &str = "0190bbbb-0000-7000-8000-00000001beef";
    const C: &str = "0190cccc-0000-7000-8000-00000000cafe";

    fn id(text: &str) -> JobId {
        text.parse().unwrap()
    }

    fn jobs() -> Vec<(JobId, &'static str)> {
        vec![(id(C), "train"), (id(B), "digits"), (id(A), "train")]
    }

    #[test]
    fn ends_beginnings_names_and_last_find_the_job() {
        for (text, want) in [
            ("cafe", C),
            ("0000CAFE", C),
            ("00000001beef", B),
            ("0190b", B),
            ("train", C),
            ("digits", B),
            ("last", C),
        ] {
            assert_eq!(select(&jobs(), text).unwrap(), id(want), "{text}");
        }
    }

    #[test]
    fn several_matches_are_listed() {
        let error = select(&jobs(), "beef").unwrap_err();
        assert!(matches!(error, SelectError::Ambiguous { count: 2, .. }));
        assert!(error.to_string().contains(B) && error.to_string().contains("(digits)"));
        assert!(matches!(
            select(&jobs(), "0190"),
            Err(SelectError::Ambiguous { count: 3, .. })
        ));
    }

    #[test]
    fn a_name_that_looks_like_another_jobs_id_is_ambiguous() {
        let jobs = [(id(B), "cafe"), (id(C), "train")];
        assert!(matches!(
            select(&jobs, "cafe"),
            Err(SelectError::Ambiguous { count: 2, .. })
        ));
    }

    #[test]
    fn near_names_are_offered() {
        let Err(SelectError::NotFound { nearest, .. }) = select(&jobs(), "digts") else {
            panic!("must not be found");
        };
        assert_eq!(nearest, ["digits"]);
        // One letter is near to every other one.
        let Err(SelectError::NotFound { nearest, .. }) = select(&[(id(A), "w")], "0") else {
            panic!("must not be found");
        };
        assert!(nearest.is_empty());
        for text in ["bee", "", "zzzz", "last"] {
            assert!(matches!(
                select(&[], text),
                Err(SelectError::NotFound { .. })
            ));
        }
    }
}
