//! Amounts with a unit: memory sizes and spans of time, as people write them.
//!
//! A bare number is no span: Slurm would read minutes, most programs seconds. A bare number is a
//! size in bytes. `G` means `GiB`, as in Slurm; `GB` means 10^9.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Digits after the decimal point that are looked at.
const MAX_FRACTION_DIGITS: usize = 9;

/// An amount of memory or disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A span of time, whole milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span {
    /// Milliseconds.
    pub ms: u64,
}

impl Span {
    /// A span of whole seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Self {
        Self {
            ms: seconds.saturating_mul(1000),
        }
    }

    /// The same span for the standard library.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Nothing was written.
    #[error("is empty")]
    Empty,
    /// A number without the unit that it needs.
    #[error("needs a unit: `{0}s`, `{0}m` or `{0}h`")]
    NoUnit(String),
    /// A unit that does not exist.
    #[error("has the unknown unit {}; known are {known}", crate::text::quoted(.unit))]
    UnknownUnit {
        /// What was written.
        unit: String,
        /// What could have been.
        known: &'static str,
    },
    /// Not a number where one was expected.
    #[error("is not {expected}")]
    Malformed {
        /// What it should look like.
        expected: &'static str,
    },
    /// Below zero.
    #[error("is negative")]
    Negative,
    /// Does not fit.
    #[error("is too large")]
    TooLarge,
    /// Finer than the smallest unit.
    #[error("is finer than a millisecond")]
    TooFine,
    /// A field of a clock-like text is too large.
    #[error("has a field over its limit: minutes and seconds end at 59, hours after days at 23")]
    ClockField,
}

const SPAN_FORM: &str = "a duration like `90m`, `1h30m`, `180s` or `1-02:00:00`";
const SPAN_UNITS: &str = "ms, s, m, h, d";
const SIZE_FORM: &str = "a size like `32GiB`, `512M` or a number of bytes";
const SIZE_UNITS: &str = "B, K, KB, KiB and likewise M, G, T, P";

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        reject_common(text)?;
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(UnitError::NoUnit(text.chars().take(20).collect()));
        }
        if text.contains(':') || text.contains('-') {
            return clock(text);
        }
        let mut rest = text;
        let mut total: u64 = 0;
        let mut last_unit = u64::MAX;
        while !rest.is_empty() {
            let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
            let (unit, after) = split_while(after, |c| !c.is_ascii_digit() && c != '.');
            let malformed = UnitError::Malformed {
                expected: SPAN_FORM,
            };
            if number.is_empty() {
                return Err(malformed);
            }
            let unit_ms = match unit.trim() {
                "ms" => 1,
                "s" | "sec" => 1000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "" => return Err(UnitError::NoUnit(number.chars().take(20).collect())),
                other => {
                    let unit = other.to_owned();
                    return Err(UnitError::UnknownUnit {
                        unit,
                        known: SPAN_UNITS,
                    });
                }
            };
            // `30m1h` and `1h1h` are more likely slips than meant.
            if unit_ms >= last_unit {
                return Err(malformed);
            }
            last_unit = unit_ms;
            let (whole, exact) = scale(number, unit_ms).ok_or(malformed)??;
            if !exact {
                return Err(UnitError::TooFine);
            }
            total = total.checked_add(whole).ok_or(UnitError::TooLarge)?;
            rest = after;
        }
        Ok(Self { ms: total })
    }
}

/// Slurm's forms: `days-hours[:minutes[:seconds]]`, `hours:minutes:seconds`, `minutes:seconds`.
fn clock(text: &str) -> Result<Span, UnitError> {
    let malformed = || UnitError::Malformed {
        expected: SPAN_FORM,
    };
    let field = |text: &str| -> Result<u64, UnitError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        text.parse().map_err(|_overflow| UnitError::TooLarge)
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(field(days)?), rest),
        None => (None, text),
    };
    let fields = rest.split(':').map(field).collect::<Result<Vec<_>, _>>()?;
    let (hours, minutes, seconds) = match (days, fields.as_slice()) {
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (None, [minutes, seconds]) if *seconds < 60 => {
            let seconds = minutes
                .checked_mul(60)
                .and_then(|s| s.checked_add(*seconds));
            return whole_seconds(seconds);
        }
        _ => return Err(malformed()),
    };
    if minutes > 59 || seconds > 59 || (days.is_some() && hours > 23) {
        return Err(UnitError::ClockField);
    }
    let hours = days
        .unwrap_or(0)
        .checked_mul(24)
        .and_then(|h| h.checked_add(hours));
    whole_seconds(hours.and_then(|h| h.checked_mul(3600)?.checked_add(minutes * 60 + seconds)))
}

fn whole_seconds(seconds: Option<u64>) -> Result<Span, UnitError> {
    let ms = seconds
        .and_then(|s| s.checked_mul(1000))
        .ok_or(UnitError::TooLarge)?;
    Ok(Span { ms })
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms == 0 {
            return f.pad("0s");
        }
        let mut rest = self.ms;
        let mut text = String::new();
        for (size, unit) in [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1000, "s"),
            (1, "ms"),
        ] {
            let number = rest / size;
            rest %= size;
            if number > 0 {
                text += &number.to_string();
                text += unit;
            }
        }
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        reject_common(text)?;
        let (number, unit) = split_while(text, |c| c.is_ascii_digit() || c == '.');
        let malformed = UnitError::Malformed {
            expected: SIZE_FORM,
        };
        if number.is_empty() {
            return Err(malformed);
        }
        let lower = unit.trim().to_ascii_lowercase();
        let mut letters = lower.chars();
        let power = match letters.next() {
            None | Some('b') => 0,
            Some('k') => 1,
            Some('m') => 2,
            Some('g') => 3,
            Some('t') => 4,
            Some('p') => 5,
            Some(_) => 6,
        };
        let base: u64 = match letters.as_str() {
            "" | "i" | "ib" => 1024,
            "b" => 1000,
            _ => 0,
        };
        if power == 6 || base == 0 || (power == 0 && lower.len() > 1) {
            let unit = unit.trim().to_owned();
            return Err(UnitError::UnknownUnit {
                unit,
                known: SIZE_UNITS,
            });
        }
        let (whole, exact) = scale(number, base.pow(power)).ok_or(malformed)??;
        if !exact && power == 0 {
            return Err(UnitError::Malformed {
                expected: SIZE_FORM,
            });
        }
        Ok(Self(whole))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 10] = [
            ("PiB", 1 << 50),
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("PB", 1_000_000_000_000_000),
            ("TB", 1_000_000_000_000),
            ("GB", 1_000_000_000),
            ("MB", 1_000_000),
            ("KB", 1000),
        ];
        // The shortest number that loses nothing; the binary unit where both are as short.
        let best = UNITS
            .iter()
            .filter(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size))
            .min_by_key(|(_, size)| self.0 / size);
        match best {
            Some((unit, size)) => f.pad(&format!("{}{unit}", self.0 / size)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

fn reject_common(text: &str) -> Result<(), UnitError> {
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    Ok(())
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

/// `number` (digits, perhaps a decimal point) times `unit`, and whether nothing was cut off.
/// `None` where it is no number.
fn scale(number: &str, unit: u64) -> Option<Result<(u64, bool), UnitError>> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let pointed = number.contains('.');
    if whole.is_empty() || (pointed && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    if fraction.len() > MAX_FRACTION_DIGITS {
        return Some(Err(UnitError::TooFine));
    }
    let Ok(whole) = whole.parse::<u64>() else {
        return Some(Err(UnitError::TooLarge));
    };
    let parts = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let fraction = u128::from(fraction.parse::<u64>().unwrap_or(0)) * u128::from(unit);
    let total = u128::from(whole) * u128::from(unit) + fraction / parts;
    let exact = fraction.is_multiple_of(parts);
    Some(
        u64::try_from(total)
            .map(|total| (total, exact))
            .map_err(|_big| UnitError::TooLarge),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(text: &str) -> u64 {
        text.parse::<Span>()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .ms
    }

    #[test]
    fn reads_durations() {
        assert_eq!(ms("2h"), 7_200_000);
        assert_eq!(ms("90m"), 5_400_000);
        assert_eq!(ms("1h30m"), 5_400_000);
        assert_eq!(ms("1.5h"), 5_400_000);
        assert_eq!(ms("180s"), 180_000);
        assert_eq!(ms("500ms"), 500);
        assert_eq!(ms("1d"), 86_400_000);
        assert_eq!(ms("1-02:00:00"), 93_600_000);
        assert_eq!(ms("1-02"), 93_600_000);
        assert_eq!(ms("02:00:00"), 7_200_000);
        assert_eq!(ms("10:30"), 630_000);
        assert_eq!(ms("100:00:00"), 360_000_000);
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for (text, part) in [
            ("", "empty"),
            ("10", "needs a unit"),
            ("-5m", "negative"),
            ("5x", "unknown unit"),
            ("h", "is not a duration"),
            ("1h1h", "is not a duration"),
            ("30m1h", "is not a duration"),
            ("1..5h", "is not a duration"),
            ("1.h", "is not a duration"),
            ("0.0001s", "finer"),
            ("99999999999999999999h", "too large"),
            ("300000000000000d", "too large"),
            ("00:61:00", "field"),
            ("1-24:00:00", "field"),
            ("1:2:3:4", "is not a duration"),
            ("1--2", "is not a duration"),
            ("٣h", "is not a duration"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn reads_sizes() {
        let size = |text: &str| {
            text.parse::<Bytes>()
                .unwrap_or_else(|e| panic!("{text}: {e}"))
                .0
        };
        assert_eq!(size("32GiB"), 32 << 30);
        assert_eq!(size("32G"), 32 << 30);
        assert_eq!(size("32Gi"), 32 << 30);
        assert_eq!(size("32GB"), 32_000_000_000);
        assert_eq!(size("512M"), 512 << 20);
        assert_eq!(size("1.5T"), 3 << 39);
        assert_eq!(size("4096"), 4096);
        assert_eq!(size("4096B"), 4096);
        assert_eq!(size("64 kb"), 64_000);
        for (text, part) in [
            ("", "empty"),
            ("-1G", "negative"),
            ("G", "is not a size"),
            ("1X", "unknown unit"),
            ("1Bi", "unknown unit"),
            ("1GiBs", "unknown unit"),
            ("1.5", "is not a size"),
            ("16E", "unknown unit"),
            ("99999999P", "too large"),
        ] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn spans_round_trip(ms in any::<u64>()) {
            let span = Span { ms };
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }

        #[test]
        fn sizes_round_trip(bytes in any::<u64>(), shift in 0u32..50) {
            for bytes in [bytes, bytes >> shift << shift, bytes / 1_000_000 * 1_000_000] {
                prop_assert_eq!(Bytes(bytes).to_string().parse::<Bytes>().unwrap(), Bytes(bytes));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            drop(text.parse::<Span>());
            drop(text.parse::<Bytes>());
        }
    }
}
