//! Output cut into records and fields by separators that Slurm is told to print.
//!
//! Text of users (names, comments) is never asked for: it comes raw, separators and line breaks
//! included. What an administrator or Slurm itself writes in free words stands last in its record.

/// Between fields.
pub(crate) const FIELD: char = '\u{1f}';

/// After each record of commands that can print one; a line break follows it.
pub(crate) const RECORD: char = '\u{1e}';

/// A format of `-o`: the letters, separated, and the end of the record.
pub(crate) fn record_format(letters: &[&str]) -> String {
    let mut format = letters.join("\u{1f}");
    format.push(RECORD);
    format
}

/// The records of a command that was given [`record_format`]. A last record without its end was cut off
/// and is left out: half of it is not true.
pub(crate) fn records(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(RECORD)
        .filter_map(|record| record.strip_suffix(RECORD))
        .map(|record| record.trim_start_matches(['\n', '\r']))
}

/// Exactly so many fields; what comes after the last separator belongs to the last field.
pub(crate) fn fields<const N: usize>(record: &str) -> Option<[&str; N]> {
    let mut found = [""; N];
    let mut parts = record.splitn(N, FIELD);
    for field in &mut found {
        *field = parts.next()?;
    }
    Some(found)
}

/// The value of a text that may be one of Slurm's words for nothing.
pub(crate) fn given(text: &str) -> Option<&str> {
    match text.trim() {
        "" | "(null)" | "N/A" | "n/a" | "NONE" | "None" | "Unknown" | "None assigned" => None,
        text => Some(text),
    }
}

/// A number, unless there is none or no limit.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    given(text)?.parse().ok()
}

/// `key=value` words of a line of `scontrol -o`, in order. A word without `=` continues a value
/// with spaces and is left out: no value with spaces is asked for.
pub(crate) fn pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
}

/// The first value of a key; what a user or administrator could forge stands behind it.
pub(crate) fn value<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    pairs(line).find(|(k, _)| *k == key).map(|(_, v)| v)
}
