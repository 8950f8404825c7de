//! Times and spans as Slurm prints and reads them.

use herd_core::units::Span;
use serde::{Deserialize, Serialize};

use crate::text::given;

/// Seconds since the Unix epoch, on Slurm's clock and not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Reads what Slurm prints under `SLURM_TIME_FORMAT=%s`; nothing for `N/A`, `Unknown`, `NONE`.
    pub fn parse(text: &str) -> Option<Self> {
        match given(text)?.parse() {
            // 0 stands for "not yet".
            Ok(0) | Err(_) => None,
            Ok(seconds) => Some(Self(seconds)),
        }
    }
}

/// A limit on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// So long.
    Of(Span),
    /// None.
    Unlimited,
}

impl Limit {
    /// The limit where there is one.
    pub fn span(self) -> Option<Span> {
        match self {
            Self::Of(span) => Some(span),
            Self::Unlimited => None,
        }
    }

    /// Reads `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours[:minutes[:seconds]]`
    /// and `UNLIMITED`: the forms of `--time`, and what Slurm prints.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if ["UNLIMITED", "INFINITE", "-1"]
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word))
        {
            return Some(Self::Unlimited);
        }
        let (days, rest) = match text.split_once('-') {
            Some((days, rest)) => (Some(number(days)?), rest),
            None => (None, text),
        };
        let fields: Vec<u64> = rest.splitn(4, ':').map(number).collect::<Option<_>>()?;
        let (hours, minutes, seconds) = match (days, fields.as_slice()) {
            (Some(_), [hours]) => (*hours, 0, 0),
            (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
            (None, [minutes]) => (0, *minutes, 0),
            (None, [minutes, seconds]) => (0, *minutes, *seconds),
            (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
            _ => return None,
        };
        let total = days
            .unwrap_or(0)
            .checked_mul(86_400)?
            .checked_add(hours.checked_mul(3600)?)?
            .checked_add(minutes.checked_mul(60)?)?
            .checked_add(seconds)?;
        Some(Self::Of(Span {
            ms: total.checked_mul(1000)?,
        }))
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The value of `--time`, rounded up to whole minutes as Slurm counts them, and never 0: that
/// would mean "no limit".
pub fn render_limit(span: Span) -> String {
    let minutes = span.ms.div_ceil(60_000).max(1);
    let (days, rest) = (minutes / 1440, minutes % 1440);
    let (hours, minutes) = (rest / 60, rest % 60);
    if days > 0 {
        format!("{days}-{hours:02}:{minutes:02}:00")
    } else {
        format!("{hours:02}:{minutes:02}:00")
    }
}

/// A setting in seconds: `30 sec`, `300`.
pub(crate) fn seconds(text: &str) -> Option<Span> {
    let text = given(text)?;
    let number = text.split_ascii_whitespace().next()?;
    Some(Span::from_secs(number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_a_limit_is_read() {
        for (text, seconds) in [
            ("90", 5400),
            ("1:30", 90),
            ("01:00:00", 3600),
            ("365-00:00:00", 31_536_000),
            ("1-12", 129_600),
            ("1-12:30", 131_400),
        ] {
            let limit = Limit::parse(text).unwrap();
            assert_eq!(limit.span(), Some(Span::from_secs(seconds)), "{text}");
        }
        assert_eq!(Limit::parse("UNLIMITED"), Some(Limit::Unlimited));
        for text in [
            "",
            "x",
            "1:2:3:4",
            "1-",
            "-1:0",
            "1.5",
            "99999999999999999999",
            "N/A",
        ] {
            assert_eq!(Limit::parse(text), None, "{text}");
        }
    }

    #[test]
    fn no_time_is_not_the_beginning_of_time() {
        assert_eq!(Time::parse("1796039686"), Some(Time(1_796_039_686)));
        for text in ["N/A", "Unknown", "NONE", "", "0", "2026-11-30T11:54:46"] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_limit_is_never_shortened_and_at_most_a_minute_longer(ms in 1u64..4_000_000_000_000) {
            let text = render_limit(Span { ms });
            let read = Limit::parse(&text).unwrap().span().unwrap();
            prop_assert!(read.ms >= ms && read.ms < ms + 60_000, "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[-0-9:]{0,24}|.{0,12}") {
            let read = Limit::parse(&text);
            prop_assert!(read.is_none() || Time::parse(&text).is_none() || !text.contains(':'));
        }
    }
}
