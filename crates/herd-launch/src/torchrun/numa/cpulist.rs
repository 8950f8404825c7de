//! Lists of processors as Linux writes them: `0-3,8`.

use std::collections::BTreeSet;

/// Processors are numbered below this.
const CPUS_MAX: usize = 65_536;

/// The numbers of a list; `None` where it is none.
pub(super) fn parse(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(numbers);
    }
    for entry in text.split(',') {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Ascending numbers in the shortest form: `0-2,4`.
pub fn ranges(numbers: &[usize]) -> String {
    let mut entries: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match entries.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            Some(_) | None => entries.push((*number, *number)),
        }
    }
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    entries.join(",")
}
