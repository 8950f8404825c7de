//! Helpers for messages: quoting what a person wrote, and finding what they probably meant.
//!
//! Nothing here decides anything about jobs.

use std::error::Error;

/// Characters of a quoted value that a message shows.
const QUOTED_LIMIT: usize = 60;

/// Names longer than this are compared with nothing: a guess would be noise.
const NEAREST_LIMIT: usize = 64;

/// An error and its causes in one line.
pub fn error_line(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.extend([": ", &cause.to_string()]);
    }
    text
}

/// An error as a program reports it: its causes on lines of their own, ending with a newline.
pub fn error_report(error: &(dyn Error + 'static)) -> String {
    let mut text = format!("error: {error}\n");
    for cause in causes(error) {
        text.extend(["caused by: ", &cause.to_string(), "\n"]);
    }
    text
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn Error + 'static)| {
        (*cause).source()
    })
}

/// `value` in backticks, without control characters, cut to a readable length.
pub fn quoted(value: &str) -> String {
    let mut shown: String = value.chars().take(QUOTED_LIMIT).map(visible).collect();
    if value.chars().nth(QUOTED_LIMIT).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// The character, or a stand-in of the same width where a terminal would act on it.
pub fn visible(character: char) -> char {
    match character {
        '\t' => ' ',
        // Direction marks can make a line read as another one.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        other if other.is_control() => '\u{fffd}',
        other => other,
    }
}

/// The candidate nearest to `word`, where one is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > NEAREST_LIMIT {
        return None;
    }
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = fold(word);
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits from one word to the other, where swapping two neighbours is one edit.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let replaced = above[j] + usize::from(a != b);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_meant() {
        let keys = ["name", "nodes", "procs_per_node", "gpus", "gpu_type"];
        assert_eq!(nearest("gpuz", keys), Some("gpus"));
        assert_eq!(nearest("ndoes", keys), Some("nodes"));
        assert_eq!(nearest("procs-per-node", keys), Some("procs_per_node"));
        assert_eq!(nearest("Name", keys), Some("name"));
        assert_eq!(nearest("zzzz", keys), None);
        assert_eq!(nearest(&"n".repeat(10_000), keys), None);
    }

    #[test]
    fn quotes_without_terminal_control() {
        assert_eq!(quoted("a\u{1b}[31mb\n"), "`a\u{fffd}[31mb\u{fffd}`");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 63);
    }
}
