//! Lists of ranks and of texts.

use std::ops::RangeInclusive;

use super::reader::Bad;

/// Most entries of a list: no list anybody writes comes near it.
const ENTRIES_MAX: usize = 10_000;

/// Some ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSet {
    ranges: Vec<RangeInclusive<u32>>,
}

impl RankSet {
    /// Whether the rank is one of them.
    pub fn contains(&self, rank: u32) -> bool {
        self.ranges.iter().any(|range| range.contains(&rank))
    }
}

/// `0,2`, and unlike torchrun's also `0-3,7`.
pub(super) fn ranks(text: &str) -> Result<RankSet, Bad> {
    let bad = || Bad::new("is no list of ranks", "give ranks like `0,2` or `0-3,7`");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_error| bad());
    let mut ranges = Vec::new();
    for entry in text.split(',').take(ENTRIES_MAX + 1) {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let range = number(first)?..=number(last)?;
        if range.is_empty() {
            return Err(bad());
        }
        ranges.push(range);
    }
    if ranges.len() > ENTRIES_MAX {
        return Err(Bad::new("is too long", "use ranges like `0-3`"));
    }
    Ok(RankSet { ranges })
}

/// Texts between commas, where two commas stand for one. Empty texts are left out: they would be
/// found in every line.
pub(super) fn filters(text: &str) -> Vec<String> {
    let mut filters = Vec::new();
    let mut current = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != ',' {
            current.push(character);
        } else if characters.next_if_eq(&',').is_some() {
            current.push(',');
        } else {
            filters.push(std::mem::take(&mut current));
        }
    }
    filters.push(current);
    filters.retain(|filter| !filter.is_empty());
    filters
}
