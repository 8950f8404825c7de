//! Spans of time: `2h`, `1h30m`, and Slurm's `1-02:00:00`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{UnitError, reject_common, scale, split_while};

const SPAN_FORM: &str = "a duration like `90m`, `1h30m`, `180s` or `1-02:00:00`";
const SPAN_UNITS: &str = "ms, s, m, h, d";

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
