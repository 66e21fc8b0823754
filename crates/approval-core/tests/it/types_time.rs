//! [`Timestamp`]: what contract 10.2 accepts and refuses.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use countersign_approval_core::clock::Timestamp;
use proptest::prelude::*;

#[test]
fn accepted_times() {
    // Contract 10.2. What is written back is UTC with three decimals (contract 3.1).
    let zeros = "0".repeat(500);
    let cases = [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05.600Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z"),
        ("2026-01-02T03:04:05.6789Z", "2026-01-02T03:04:05.678Z"),
        ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05.999Z"),
        ("2026-01-02T03:04:05.0000000009Z", "2026-01-02T03:04:05.000Z"),
        (&format!("2026-01-02T03:04:05.12{zeros}Z"), "2026-01-02T03:04:05.120Z"),
        (&format!("2026-01-02T03:04:05.12{zeros}-01:00"), "2026-01-02T04:04:05.120Z"),
        ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05.5+05:30", "2026-01-01T21:34:05.500Z"),
        ("2026-01-02T03:04:05-23:59", "2026-01-03T03:03:05.000Z"),
        ("2026-01-02T03:04:05+23:59", "2026-01-01T03:05:05.000Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z"),
        ("2000-02-29T23:59:59Z", "2000-02-29T23:59:59.000Z"),
        ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ];
    for (text, written) in cases {
        let time = Timestamp::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(time.to_string(), written, "{text}");
        assert_eq!(Timestamp::parse(written), Some(time));
    }
}

#[test]
fn refused_times() {
    // Contract 10.2; the calendar is real and the shape is one.
    let cases = [
        "",
        "Z",
        "2026-01-02",
        "2026-01-02T03:04Z",
        "2026-01-02T03:04:05",
        "2026-01-02t03:04:05Z",
        "2026-01-02T03:04:05z",
        "2026-01-02 03:04:05Z",
        "20260102T030405Z",
        " 2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z ",
        "2026-01-02T03:04:05Z\n",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05,5Z",
        "2026-01-02T03:04:05.5.5Z",
        "2026-01-02T03:04:05.5",
        "2026-01-02T03:04:05+01",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:04:05+01:0",
        "2026-01-02T03:04:05+01:00:00",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T03:04:05+00:60",
        "2026-01-02T03:04:05\u{2212}01:00",
        "2026-01-02T03:04:05Z[UTC]",
        "2026-01-02T03:04:05+01:00[Europe/Paris]",
        // Seconds up to 59: no leap second, not even a real one.
        "2016-12-31T23:59:60Z",
        "2026-01-02T03:04:60Z",
        "2026-01-02T03:04:61Z",
        "2026-01-02T03:60:05Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T25:04:05Z",
        "2026-00-02T03:04:05Z",
        "2026-13-02T03:04:05Z",
        "2026-01-00T03:04:05Z",
        "2026-01-32T03:04:05Z",
        "2026-04-31T03:04:05Z",
        "2026-02-29T03:04:05Z",
        "1900-02-29T03:04:05Z",
        "0000-01-01T00:00:00Z",
        "0000-12-31T23:59:59-23:59",
        "-001-01-01T00:00:00Z",
        "+2026-01-02T03:04:05Z",
        "12026-01-02T03:04:05Z",
        "2026-1-2T3:4:5Z",
        "２026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.１Z",
        // Outside the years 0001 to 9999 once the offset is applied: it could not be written again.
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    ];
    for text in cases {
        assert_eq!(Timestamp::parse(text), None, "{text}");
        let json = serde_json::to_string(text).unwrap();
        assert!(serde_json::from_str::<Timestamp>(&json).is_err(), "{text}");
    }
    assert!(serde_json::from_str::<Timestamp>("1800000000000").is_err());
}

#[test]
fn times_stay_writable() {
    // Law 9: no sum overflows, and each result has a four-digit year.
    for millis in [i64::MIN, -62_135_596_800_001, 253_402_300_800_000, i64::MAX] {
        let time = Timestamp::from_millis(millis);
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
    }
    assert_eq!(Timestamp::from_millis(i64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(i64::MIN).saturating_add(Duration::MAX), Timestamp::MAX);
    let start = Timestamp::from_millis(1_000);
    assert_eq!(start.saturating_add(Duration::from_micros(1_999)).as_millis(), 1_001, "cut, not rounded");
}

proptest! {
    #[test]
    fn written_times_are_read_back_and_sort_as_text(a in -62_135_596_800_000i64..=253_402_300_799_999, b in -62_135_596_800_000i64..=253_402_300_799_999) {
        let (a, b) = (Timestamp::from_millis(a), Timestamp::from_millis(b));
        prop_assert_eq!(Timestamp::parse(&a.to_string()), Some(a));
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}", near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,20})?(Z|[+-][0-9]{2}:[0-9]{2})") {
        let _ = Timestamp::parse(&text);
        if let Some(time) = Timestamp::parse(&near) {
            prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        }
    }
}
