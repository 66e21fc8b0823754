//! What was measured with an existing client against a raw server (contract 10.2, last rows).

use crate::support::*;

fn second(type_name: &str, members: &str) -> String {
    play(&paused(), &[started(), line(2, type_name, members), completed(3)]).1
}

#[test]
fn measured_rows() {
    let end = |extra: &str| play(&hello(), &[started(), line(2, "run.completed", &result(extra))]).1;
    let steps = completed(2).replace(r#""steps":1"#, r#""steps":1.0"#);
    assert_eq!(play(&hello(), &[started(), steps]).1, "INVALID_STREAM", "steps: 1.0");
    assert_eq!(end(r#","session":null"#), "INVALID_STREAM");
    assert_eq!(second("step.started", r#""step":1,"text":7"#), "INVALID_STREAM");
    assert_eq!(second("tool.completed", r#""callId":"c1","output":null"#), "ok");
    assert_eq!(end(r#","output":null"#), "ok");
}

/// Members with these names have one type wherever they occur.
#[test]
fn reserved_members() {
    for (members, expected) in [
        (r#""step":1,"text":"x""#, "ok"),
        (r#""step":1,"text":null"#, "INVALID_STREAM"),
        (r#""step":1,"result":{}"#, "INVALID_STREAM"),
        (r#""step":1,"result":null"#, "INVALID_STREAM"),
        (r#""step":1,"error":"x""#, "INVALID_STREAM"),
        (r#""step":1,"error":{"code":"A","message":"","retryable":false}"#, "ok"),
        (r#""step":1,"other":null"#, "ok"),
    ] {
        assert_eq!(second("step.started", members), expected, "{members}");
    }
}

#[test]
fn calls() {
    for (members, expected) in [
        (r#""call":{"id":"c1","name":"write","arguments":{}}"#, "ok"),
        (r#""call":{"id":"c1","name":"write","arguments":{},"more":null}"#, "ok"),
        (r#""call":{"id":"","name":"write","arguments":{}}"#, "INVALID_STREAM"),
        (r#""call":{"id":"c1","name":"","arguments":{}}"#, "INVALID_STREAM"),
        (r#""call":{"id":"c1","name":"write","arguments":[]}"#, "INVALID_STREAM"),
        (r#""call":{"id":"c1","name":"write","arguments":null}"#, "INVALID_STREAM"),
        (r#""call":{"id":"c1","name":"write"}"#, "INVALID_STREAM"),
        (r#""call":{"id":"c1","name":"write","arguments":{"__proto__":1}}"#, "INVALID_STREAM"),
        (r#""call":null"#, "INVALID_STREAM"),
    ] {
        assert_eq!(second("tool.called", members), expected, "{members}");
    }
    for (members, expected) in [
        (r#""callId":"c1","output":{"n":9007199254740993}"#, "ok"),
        (r#""callId":"c1""#, "INVALID_STREAM"),
        (r#""callId":"","output":1"#, "INVALID_STREAM"),
        (r#""callId":null,"output":1"#, "INVALID_STREAM"),
    ] {
        assert_eq!(second("tool.completed", members), expected, "{members}");
    }
}

/// Contract 10.2: `YYYY-MM-DDTHH:MM:SS[.digits](Z|±HH:MM)`, a real date, upper-case letters, no leap second, no year 0.
#[test]
fn timestamps() {
    let ends =
        |time: &str| play(&hello(), &[started().replace("2026-09-20T12:00:00.000Z", time), completed(2)]).1;
    for good in [
        "2026-09-20T12:00:00Z",
        "2026-09-20T12:00:00.123456789Z",
        "2026-09-20T12:00:00+05:30",
        "2026-09-20T12:00:00.5-23:59",
        "2024-02-29T23:59:59Z",
        "0001-01-01T00:00:00Z",
    ] {
        assert_eq!(ends(good), "ok", "{good}");
    }
    for bad in [
        "2026-09-20t12:00:00Z",
        "2026-09-20T12:00:00z",
        "2026-09-20 12:00:00Z",
        "2026-09-20T12:00:00",
        "2026-09-20T12:00Z",
        "2026-09-20T12:00:60Z",
        "2026-09-20T24:00:00Z",
        "2026-02-29T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-09-20T12:00:00.Z",
        "2026-09-20T12:00:00+0530",
        "",
    ] {
        assert_eq!(ends(bad), "INVALID_STREAM", "{bad}");
    }
}
