//! How amounts are read and written.

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
    assert_eq!(Bytes(32 << 30).approximate(), "32GiB");
    assert_eq!(Bytes(33_567_547_392).approximate(), "31.2GiB");
    assert_eq!(Bytes(1 << 20).approximate(), "1MiB");
    assert_eq!(size("4096B"), 4096);
    assert_eq!(size("64 kb"), 64_000);
    for (text, part) in [
        ("", "empty"),
        ("-1G", "negative"),
        ("G", "is not a size"),
        ("1X", "unknown unit"),
        ("1Bi", "unknown unit"),
        ("1GiBs", "unknown unit"),
        ("10", "needs a unit: `10M` or `10G`"),
        ("1.5", "needs a unit: `1.5M` or `1.5G`"),
        ("1.5B", "is not a size"),
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
