//! Slurm's short form for lists of host names: `n[01-03,7]`, `r[1-2]n[1-4]-ib,login`.
//!
//! Expanding is bounded before anything is allocated. Folding keeps order, repeats and leading
//! zeros, so that expanding gives back exactly the same list.

use thiserror::Error;

/// Names that one list may expand to.
pub const MAX_NAMES: usize = 100_000;

/// Longest host name, bytes.
const MAX_NAME: usize = 255;

/// Digits that are read as a number; longer runs are text.
const MAX_DIGITS: usize = 18;

/// Why a text is no list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostlistError {
    /// `[` without `]`, or the other way round, or one inside another.
    #[error("unbalanced brackets at byte {at}")]
    Brackets {
        /// Byte offset.
        at: usize,
    },
    /// Nothing between two commas.
    #[error("empty name at byte {at}")]
    EmptyName {
        /// Byte offset.
        at: usize,
    },
    /// Something in brackets that is no number or range.
    #[error("{} is no number and no range of numbers", crate::text::quoted(.0))]
    Range(String),
    /// A range that ends before it starts.
    #[error("the range {} ends before it starts", crate::text::quoted(.0))]
    Reversed(String),
    /// White space or a control character in a name.
    #[error("a name with a space or control character at byte {at}")]
    Character {
        /// Byte offset.
        at: usize,
    },
    /// A name longer than a host name can be.
    #[error("a name longer than {MAX_NAME} bytes")]
    TooLong,
    /// More than [`MAX_NAMES`].
    #[error("more than {MAX_NAMES} names")]
    TooMany,
}

/// One piece of a name.
enum Piece<'t> {
    Text(&'t str),
    /// Ranges with the width their numbers are padded to.
    Numbers(Vec<Range>),
}

struct Range {
    first: u64,
    last: u64,
    width: usize,
}

/// Every name of the list, in order.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    if list.trim().is_empty() {
        return Ok(names);
    }
    for (at, item) in items(list)? {
        let pieces = pieces(item, at)?;
        let mut count: usize = 1;
        let mut length: usize = 0;
        for piece in &pieces {
            match piece {
                Piece::Text(text) => length = length.saturating_add(text.len()),
                Piece::Numbers(ranges) => {
                    count = count.saturating_mul(ranges.iter().map(Range::count).sum());
                    length += ranges.iter().map(Range::longest).max().unwrap_or(0);
                }
            }
        }
        if names.len().saturating_add(count) > MAX_NAMES {
            return Err(HostlistError::TooMany);
        }
        if length > MAX_NAME {
            return Err(HostlistError::TooLong);
        }
        let mut expanded = vec![String::new()];
        for piece in &pieces {
            expanded = match piece {
                Piece::Text(text) => expanded.into_iter().map(|name| name + text).collect(),
                Piece::Numbers(ranges) => expanded
                    .iter()
                    .flat_map(|name| {
                        ranges
                            .iter()
                            .flat_map(Range::texts)
                            .map(move |text| format!("{name}{text}"))
                    })
                    .collect(),
            };
        }
        names.append(&mut expanded);
    }
    Ok(names)
}

/// The parts between commas outside brackets, with their offsets.
fn items(list: &str) -> Result<Vec<(usize, &str)>, HostlistError> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut open = false;
    for (at, c) in list.char_indices() {
        match c {
            '[' if open => return Err(HostlistError::Brackets { at }),
            ']' if !open => return Err(HostlistError::Brackets { at }),
            '[' => open = true,
            ']' => open = false,
            ',' if !open => {
                items.push((start, &list[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        // Every item holds at least one name.
        if items.len() > MAX_NAMES {
            return Err(HostlistError::TooMany);
        }
    }
    if open {
        return Err(HostlistError::Brackets { at: list.len() });
    }
    items.push((start, &list[start..]));
    items
        .into_iter()
        .map(|(at, item)| match item.trim() {
            "" => Err(HostlistError::EmptyName { at }),
            item => Ok((at, item)),
        })
        .collect()
}

/// The text and the brackets of one item; brackets are balanced already.
fn pieces(item: &str, at: usize) -> Result<Vec<Piece<'_>>, HostlistError> {
    if item.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(HostlistError::Character { at });
    }
    let mut pieces = Vec::new();
    let mut rest = item;
    while let Some((text, after)) = rest.split_once('[') {
        let (inside, after) = after
            .split_once(']')
            .ok_or(HostlistError::Brackets { at })?;
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        pieces.push(Piece::Numbers(
            inside.split(',').map(range).collect::<Result<_, _>>()?,
        ));
        rest = after;
        if pieces.len() > MAX_NAME {
            return Err(HostlistError::TooLong);
        }
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn range(text: &str) -> Result<Range, HostlistError> {
    let malformed = || HostlistError::Range(text.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let digits = |text: &str| -> Option<u64> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        (digits && (1..=MAX_DIGITS).contains(&text.len()))
            .then(|| text.parse().ok())
            .flatten()
    };
    let width = first.len();
    let (first, last) = (
        digits(first).ok_or_else(malformed)?,
        digits(last).ok_or_else(malformed)?,
    );
    if last < first {
        return Err(HostlistError::Reversed(text.to_owned()));
    }
    Ok(Range { first, last, width })
}

impl Range {
    fn count(&self) -> usize {
        usize::try_from(self.last - self.first)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
            .min(MAX_NAMES + 1)
    }

    fn longest(&self) -> usize {
        self.width.max(self.last.to_string().len())
    }

    fn texts(&self) -> impl Iterator<Item = String> + '_ {
        (self.first..=self.last).map(|number| format!("{number:0width$}", width = self.width))
    }
}

/// The list in its short form. Names with brackets, commas or spaces cannot be written in it and
/// are refused by [`expand`].
pub fn fold<S: AsRef<str>>(names: &[S]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut rest = names;
    while let [first, ..] = rest {
        let first = first.as_ref();
        let Some((prefix, _, suffix)) = split(first) else {
            items.push(first.to_owned());
            rest = &rest[1..];
            continue;
        };
        // Every name that follows and differs in the number alone.
        let mut ranges: Vec<(&str, &str)> = Vec::new();
        let mut taken = 0;
        for name in rest {
            let Some((p, digits, s)) = split(name.as_ref()) else {
                break;
            };
            if (p, s) != (prefix, suffix) {
                break;
            }
            taken += 1;
            match ranges.last_mut() {
                Some((from, to)) if follows(from.len(), to, digits) => *to = digits,
                _ => ranges.push((digits, digits)),
            }
        }
        if taken == 1 {
            items.push(first.to_owned());
        } else {
            let ranges: Vec<String> = ranges
                .into_iter()
                .map(|(a, b)| {
                    if a == b {
                        a.to_owned()
                    } else {
                        format!("{a}-{b}")
                    }
                })
                .collect();
            items.push(format!("{prefix}[{}]{suffix}", ranges.join(",")));
        }
        rest = &rest[taken..];
    }
    items.join(",")
}

/// Whether a range of numbers padded to `width` that ends at `last` goes on with `next`.
fn follows(width: usize, last: &str, next: &str) -> bool {
    last.parse::<u64>()
        .is_ok_and(|last| format!("{:0width$}", last + 1) == next)
}

/// What stands before, in and after the last run of digits.
fn split(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end].rfind(|c: char| !c.is_ascii_digit());
    let start = start.map_or(0, |at| {
        at + name[at..].chars().next().map_or(1, char::len_utf8)
    });
    let digits = &name[start..end];
    (digits.len() < MAX_DIGITS).then(|| (&name[..start], digits, &name[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &str) -> String {
        expand(list)
            .unwrap_or_else(|error| panic!("{list}: {error}"))
            .join(" ")
    }

    #[test]
    fn expands() {
        assert_eq!(names("n[01-03,7]"), "n01 n02 n03 n7");
        assert_eq!(
            names("r[1-2]n[1-2]-ib,login"),
            "r1n1-ib r1n2-ib r2n1-ib r2n2-ib login"
        );
        assert_eq!(names("n[8-11]"), "n8 n9 n10 n11");
        assert_eq!(names("n[098-101]"), "n098 n099 n100 n101");
        assert_eq!(names("[1-2]"), "1 2");
        assert_eq!(names("a, b"), "a b");
        assert_eq!(names(""), "");
    }

    #[test]
    fn refuses() {
        for (list, part) in [
            ("n[1-", "brackets"),
            ("n]1", "brackets"),
            ("n[1[2]]", "brackets"),
            ("a,,b", "empty name"),
            ("a,", "empty name"),
            ("n[]", "no range"),
            ("n[a-b]", "no range"),
            ("n[1-2-3]", "no range"),
            ("n[3-1]", "ends before"),
            ("n[0-100000]", "more than 100000"),
            ("n[0-999][0-999]", "more than 100000"),
            ("n[0-999999999999999999]", "more than 100000"),
            ("a b", "space"),
        ] {
            let error = expand(list).unwrap_err().to_string();
            assert!(error.contains(part), "{list}: {error}");
        }
        assert_eq!(expand(&"x".repeat(300)), Err(HostlistError::TooLong));
        assert_eq!(expand(&"[1]".repeat(300_000)), Err(HostlistError::TooLong));
        assert_eq!(expand(&"a,".repeat(300_000)), Err(HostlistError::TooMany));
        assert_eq!(expand("n[0-99999]").unwrap().len(), MAX_NAMES);
    }

    #[test]
    fn folds() {
        assert_eq!(fold(&["n01", "n02", "n03", "n7"]), "n[01-03,7]");
        assert_eq!(fold(&["n9", "n10", "n11"]), "n[9-11]");
        assert_eq!(fold(&["n09", "n10", "m1", "x"]), "n[09-10],m1,x");
        assert_eq!(fold(&["a1-ib", "a2-ib"]), "a[1-2]-ib");
        assert_eq!(fold(&["n2", "n1", "n1"]), "n[2,1,1]");
        assert_eq!(fold::<&str>(&[]), "");
    }

    proptest! {
        #[test]
        fn folding_loses_nothing(
            names in prop::collection::vec("[a-c]{0,2}[0-9]{1,3}(-i|é)?|[0-9]{17,20}|[a-z]", 0..40)
        ) {
            let folded = fold(&names);
            prop_assert_eq!(expand(&folded).unwrap(), names, "{}", folded);
        }

        #[test]
        fn runs_stay_short(start in 0u64..2000, length in 2u64..2000) {
            let names: Vec<_> = (start..start + length).map(|n| format!("node{n:04}")).collect();
            let folded = fold(&names);
            prop_assert!(folded.len() < 20, "{}", folded);
            prop_assert_eq!(expand(&folded).unwrap(), names);
        }

        #[test]
        fn no_text_panics(text in "[n0-9,\\[\\]é -]{0,30}") {
            drop(expand(&text));
        }
    }
}
