//! Times and spans as people read and write them on the command line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, now.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A span with the precision a person cares for: `12 ms`, `3.4 s`, `2m05s`, `1h02m`, `3d04h`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..=59 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// How old facts are that were heard at this moment: `as of 40.2 s ago`.
pub(crate) fn as_of(at_ms: u64) -> String {
    format!("as of {} ago", span(now_ms().saturating_sub(at_ms)))
}

/// An amount of bytes with a unit: `512 B`, `3.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// A moment in the local time zone, to the second, with the offset.
pub(crate) fn moment(ms: u64) -> String {
    let zoned = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map_or_else(
        || ms.to_string(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
    )
}

/// The time of day with milliseconds, for a line of events.
pub(crate) fn clock(ms: u64) -> String {
    let zoned = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map_or_else(
        || ms.to_string(),
        |time| time.strftime("%H:%M:%S%.3f").to_string(),
    )
}

/// A moment a person wrote: RFC 3339, or a date with a time of day in the local zone.
pub(crate) fn parse_moment(text: &str) -> Option<u64> {
    let stamp = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        civil
            .to_zoned(jiff::tz::TimeZone::system())
            .ok()
            .map(|zoned| zoned.timestamp())
    })?;
    u64::try_from(stamp.as_millisecond()).ok()
}

/// A word as a shell reads it, quoted only where it must be.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        for (word, text) in [
            ("a/b-c=1", "a/b-c=1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(shell_word(word), text);
        }
    }

    #[test]
    fn spans_have_the_precision_of_their_size() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_049, "1.0 s"),
            (59_999, "59.9 s"),
            (125_000, "2m05s"),
            (3_720_000, "1h02m"),
            (273_600_000, "3d04h"),
        ];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
        assert!(!span(u64::MAX).is_empty());
        assert!(!moment(u64::MAX).is_empty());
    }

    #[test]
    fn sizes_have_binary_units() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (3 << 30, "3.0 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(u64::MAX), "15.9 EiB");
    }

    #[test]
    fn moments_are_read_in_both_forms() {
        assert_eq!(parse_moment("1970-01-01T00:00:10Z"), Some(10_000));
        assert!(parse_moment("2026-01-31 12:00:00").is_some());
        assert_eq!(parse_moment("yesterday"), None);
        assert_eq!(parse_moment("-1"), None);
    }
}
