//! Task indices of an array job as people write them: `0-99%10`, `1,3,5-9:2`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::spec::Array;

/// Tasks that one array may have.
pub const MAX_TASKS: usize = 1_000_000;

/// Why a text names no tasks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArrayError {
    /// No index at all.
    #[error("names no task")]
    Empty,
    /// A part that is neither an index nor a range.
    #[error("has the part {} that is no index and no range like `0-9` or `0-9:2`", crate::text::quoted(.0))]
    Malformed(String),
    /// A range that ends before it starts.
    #[error("has the range {} that ends before it starts", crate::text::quoted(.0))]
    Reversed(String),
    /// The number after `%` or `:` is 0 or no number.
    #[error("has {} where a number above 0 is expected", crate::text::quoted(.0))]
    NotPositive(String),
    /// More than [`MAX_TASKS`].
    #[error("has more than {MAX_TASKS} tasks")]
    TooMany,
}

impl Array {
    /// An array of these indices, in any order.
    pub fn of(mut indices: Vec<u32>, limit: Option<u32>) -> Result<Self, ArrayError> {
        indices.sort_unstable();
        indices.dedup();
        match indices.len() {
            0 => Err(ArrayError::Empty),
            1..=MAX_TASKS => Ok(Self { indices, limit }),
            _ => Err(ArrayError::TooMany),
        }
    }
}

impl FromStr for Array {
    type Err = ArrayError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (list, limit) = match text.trim().split_once('%') {
            Some((list, limit)) => (list, Some(positive(limit)?)),
            None => (text.trim(), None),
        };
        if list.is_empty() {
            return Err(ArrayError::Empty);
        }
        let mut indices = Vec::new();
        for part in list.split(',').map(str::trim) {
            let malformed = || ArrayError::Malformed(part.to_owned());
            let number = |text: &str| number(text).ok_or_else(malformed);
            let Some((first, rest)) = part.split_once('-') else {
                indices.push(number(part)?);
                continue;
            };
            let (last, step) = match rest.split_once(':') {
                Some((last, step)) => (last, positive(step)?),
                None => (rest, 1),
            };
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(ArrayError::Reversed(part.to_owned()));
            }
            let more = ((last - first) / step) as usize + 1;
            if indices.len().saturating_add(more) > MAX_TASKS {
                return Err(ArrayError::TooMany);
            }
            indices.extend((first..=last).step_by(step as usize));
        }
        Self::of(indices, limit)
    }
}

impl From<Array> for String {
    fn from(array: Array) -> Self {
        array.to_string()
    }
}

impl TryFrom<String> for Array {
    type Error = ArrayError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn positive(text: &str) -> Result<u32, ArrayError> {
    number(text.trim())
        .filter(|number| *number > 0)
        .ok_or_else(|| ArrayError::NotPositive(text.to_owned()))
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.indices.as_slice();
        let mut separator = "";
        while let [first, ..] = rest {
            let run = rest
                .iter()
                .zip(*first..)
                .take_while(|(index, want)| **index == *want);
            let length = run.count();
            write!(f, "{separator}{first}")?;
            if length > 1 {
                write!(f, "-{}", rest[length - 1])?;
            }
            rest = &rest[length..];
            separator = ",";
        }
        match self.limit {
            Some(limit) => write!(f, "%{limit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Array {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn reads_ranges_steps_lists_and_limits() {
        assert_eq!(read("0-99%10").indices.len(), 100);
        assert_eq!(read("0-99%10").limit, Some(10));
        assert_eq!(read("1,3,5-9:2").indices, [1, 3, 5, 7, 9]);
        assert_eq!(read("5,1,5").indices, [1, 5]);
        assert_eq!(read("4294967295").indices, [u32::MAX]);
        assert_eq!(read("4294967290-4294967295").indices.len(), 6);
        assert_eq!(read("0-999999").indices.len(), MAX_TASKS);
    }

    #[test]
    fn refuses_the_rest() {
        for (text, part) in [
            ("", "names no task"),
            ("%3", "names no task"),
            ("1,,2", "no index"),
            ("a-b", "no index"),
            ("-1", "no index"),
            ("9-1", "ends before"),
            ("0-9:0", "above 0"),
            ("0-9%0", "above 0"),
            ("0-4294967295", "more than 1000000"),
            ("0-999999,2000000-2000001", "more than 1000000"),
            ("99999999999", "no index"),
        ] {
            let error = text.parse::<Array>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn round_trips_as_json(indices in prop::collection::vec(0u32..50, 1..30), limit in prop::option::of(1u32..9)) {
            let array = Array::of(indices, limit).unwrap();
            let json = serde_json::to_string(&array).unwrap();
            prop_assert_eq!(serde_json::from_str::<Array>(&json).unwrap(), array);
        }

        #[test]
        fn round_trips(indices in prop::collection::vec(0u32..50, 1..30), limit in prop::option::of(1u32..9)) {
            let array = Array::of(indices, limit).unwrap();
            prop_assert_eq!(array.to_string().parse::<Array>().unwrap(), array);
        }

        #[test]
        fn no_text_panics(text in "[0-9,:%-]{0,20}") {
            drop(text.parse::<Array>());
        }
    }
}
