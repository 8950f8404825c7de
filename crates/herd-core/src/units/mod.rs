//! Amounts with a unit: memory sizes and spans of time, as people write them.
//!
//! A bare number is neither: Slurm would read minutes and mebibytes, most programs seconds and
//! bytes. `G` means `GiB`, as in Slurm; `GB` means 10^9.

mod bytes;
mod span;

pub use bytes::Bytes;
pub use span::Span;
use thiserror::Error;

/// Digits after the decimal point that are looked at.
const MAX_FRACTION_DIGITS: usize = 9;

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Nothing was written.
    #[error("is empty")]
    Empty,
    /// A number without the unit that it needs.
    #[error("needs a unit: `{0}s`, `{0}m` or `{0}h`")]
    NoUnit(String),
    /// A size without the unit that it needs.
    #[error("needs a unit: `{0}M` or `{0}G`")]
    NoSizeUnit(String),
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
mod tests;
