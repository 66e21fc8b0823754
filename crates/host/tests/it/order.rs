//! The fixed order of checks (contract 1.2): of two things that are wrong with a request, the earlier step answers.

use crate::support::{ANN, Ask, Fixture, ORIGIN, plain};

/// A token that nobody has.
const NOBODY: &str = "nobody-nobody-nobody-nobody-nobody-nobody";

#[tokio::test]
async fn the_earlier_check_answers() {
    let fixture = Fixture::new();
    let get = |path: &str| Ask::get(path);
    let post = |path: &str| Ask::post(path);
    let large = vec![b' '; 1_000_001];
    let version = "AgenticDriver-Version";
    let cases = [
        // Step 3: the origin, even before health and the token.
        (
            "foreign origin, health",
            get("/health").header("Origin", "https://evil.example"),
            (403, "ORIGIN_DENIED"),
        ),
        (
            "null origin, good token",
            get("/v1/protocol").header("Origin", "null").token(ANN),
            (403, "ORIGIN_DENIED"),
        ),
        (
            "origin in another case",
            get("/health").header("Origin", "https://APP.example"),
            (403, "ORIGIN_DENIED"),
        ),
        (
            "two origins",
            get("/health").header("Origin", ORIGIN).header("Origin", ORIGIN),
            (403, "ORIGIN_DENIED"),
        ),
        (
            "foreign origin, preflight",
            Ask::new("OPTIONS", "/v1/runs").header("Origin", "https://evil.example"),
            (403, "ORIGIN_DENIED"),
        ),
        ("preflight, no token", Ask::new("OPTIONS", "/v1/runs").header("Origin", ORIGIN), (204, "")),
        ("preflight, unknown path", Ask::new("OPTIONS", "/nowhere").header("Origin", ORIGIN), (204, "")),
        ("options without origin", Ask::new("OPTIONS", "/v1/runs"), (401, "UNAUTHORIZED")),
        ("options without origin, token", Ask::new("OPTIONS", "/v1/runs").token(ANN), (404, "NOT_FOUND")),
        // Step 4: health, before the token and the version.
        ("health, no token", get("/health"), (200, "")),
        ("health, bad version", get("/health").header(version, "9.9"), (200, "")),
        ("health, query", get("/health?x"), (401, "UNAUTHORIZED")),
        ("health, query, token", get("/health?x").token(ANN), (404, "NOT_FOUND")),
        ("health, other method", post("/health").token(ANN), (404, "NOT_FOUND")),
        // Step 6: the token, before the version and the path.
        ("no token, unknown path", get("/nowhere"), (401, "UNAUTHORIZED")),
        (
            "bad token, bad version",
            get("/v1/protocol").token(NOBODY).header(version, "9.9"),
            (401, "UNAUTHORIZED"),
        ),
        ("token in the query", get(&format!("/v1/protocol?access_token={ANN}")), (401, "UNAUTHORIZED")),
        (
            "scheme in lower case",
            get("/v1/protocol").header("Authorization", &format!("bearer {ANN}")),
            (401, "UNAUTHORIZED"),
        ),
        (
            "two spaces",
            get("/v1/protocol").header("Authorization", &format!("Bearer  {ANN}")),
            (401, "UNAUTHORIZED"),
        ),
        (
            "the first of two tokens counts",
            get("/v1/protocol").token(NOBODY).token(ANN),
            (401, "UNAUTHORIZED"),
        ),
        ("the second of two tokens does not", get("/v1/protocol").token(ANN).token(NOBODY), (200, "")),
        ("exchange, no token", post("/v1/connections/exchange").text("{}"), (401, "UNAUTHORIZED")),
        ("exchange", post("/v1/connections/exchange").token(ANN).text("{}"), (404, "NOT_FOUND")),
        // Step 7: the version, before the path.
        (
            "unknown path, bad version",
            get("/nowhere").token(ANN).header(version, "2.0"),
            (400, "UNSUPPORTED_PROTOCOL_VERSION"),
        ),
        (
            "run, bad version",
            post("/v1/runs").token(ANN).header(version, "1.1"),
            (400, "UNSUPPORTED_PROTOCOL_VERSION"),
        ),
        // Step 8 and 9: the path and the method.
        ("providers, other query", get("/v1/providers?refresh=false").token(ANN), (404, "NOT_FOUND")),
        ("providers, empty query", get("/v1/providers?").token(ANN), (404, "NOT_FOUND")),
        ("runs with a query", post("/v1/runs?x=1").token(ANN).json(&plain("quick")), (404, "NOT_FOUND")),
        (
            "absolute target",
            post("http://countersign.test/v1/runs").token(ANN).json(&plain("quick")),
            (404, "NOT_FOUND"),
        ),
        ("wrong method", get("/v1/runs").token(ANN), (404, "NOT_FOUND")),
        // Scenario F5: no run can be read again, so another's cannot either.
        ("replay", get("/v1/runs").token(ANN).header("Last-Event-ID", "1"), (404, "NOT_FOUND")),
        ("one run", get("/v1/runs/6f0c2d1e-0000-4000-8000-000000000000").token(ANN), (404, "NOT_FOUND")),
        ("wrong method, wrong body", Ask::new("PUT", "/v1/runs").token(ANN).body("{"), (404, "NOT_FOUND")),
        ("post to protocol", post("/v1/protocol").token(ANN).text("{}"), (404, "NOT_FOUND")),
        // Step 10 before 11, 11 before 12.
        ("no content type", post("/v1/runs").token(ANN).body("{}"), (400, "INVALID_REQUEST")),
        (
            "other content type, too large",
            post("/v1/runs").token(ANN).header("Content-Type", "text/plain").body(large.clone()),
            (400, "INVALID_REQUEST"),
        ),
        (
            "encoding, too large",
            post("/v1/runs")
                .token(ANN)
                .header("Content-Type", "application/json")
                .header("Content-Encoding", "gzip")
                .body(large.clone()),
            (400, "INVALID_REQUEST"),
        ),
        (
            "identity",
            post("/v1/runs").token(ANN).header("Content-Encoding", "identity").json(&plain("quick")),
            (200, ""),
        ),
        // Step 12 before 13: size before syntax, syntax before meaning.
        (
            "too large, not JSON",
            post("/v1/runs").token(ANN).header("Content-Type", "application/json").body(large),
            (413, "BODY_TOO_LARGE"),
        ),
        ("not JSON", post("/v1/jobs/submit").token(ANN).text("{"), (400, "INVALID_REQUEST")),
        ("empty", post("/v1/runs").token(ANN).text(""), (400, "INVALID_REQUEST")),
    ];
    for (name, ask, (status, code)) in cases {
        assert_eq!(fixture.ask(&ask).await.outcome(), (status, code.to_owned()), "{name}");
    }
}

// Contract 1.9: what is known but not served.
#[tokio::test]
async fn endpoints_that_are_not_served_say_so() {
    let fixture = Fixture::new();
    let identity = r#"{"executionId":"e","runId":"r","callId":"c"}"#;
    let post = |path: &str, body: &str| Ask::post(path).token(ANN).text(body);
    let progress = |body: &str| post("/v1/tool-executions/progress", body);
    let result = |body: &str| post("/v1/tool-executions/results", body);
    let long = format!(r#"{{"executionId":"{}","runId":"r","callId":"c"}}"#, "x".repeat(257));
    let cases = [
        (progress(identity), (404, "TOOL_EXECUTION_NOT_FOUND")),
        (progress("{}"), (400, "INVALID_TOOL_EXECUTION")),
        (progress("[]"), (400, "INVALID_TOOL_EXECUTION")),
        (progress(&long), (400, "INVALID_TOOL_EXECUTION")),
        (progress(r#"{"executionId":"","runId":"r","callId":"c"}"#), (400, "INVALID_TOOL_EXECUTION")),
        (
            progress(r#"{"executionId":"e","runId":"r","callId":"c","output":1}"#),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        (
            result(r#"{"executionId":"e","runId":"r","callId":"c","output":null}"#),
            (404, "TOOL_EXECUTION_NOT_FOUND"),
        ),
        (
            result(r#"{"executionId":"e","runId":"r","callId":"c","error":"APPLICATION_TOOL_FAILED"}"#),
            (404, "TOOL_EXECUTION_NOT_FOUND"),
        ),
        (result(identity), (400, "INVALID_TOOL_EXECUTION")),
        (
            result(r#"{"executionId":"e","runId":"r","callId":"c","error":"OTHER"}"#),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        (
            result(
                r#"{"executionId":"e","runId":"r","callId":"c","output":1,"error":"APPLICATION_TOOL_FAILED"}"#,
            ),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        (
            result(r#"{"executionId":"e","runId":"r","callId":"c","output":{"__proto__":1}}"#),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        (post("/v1/sessions/create", "{}"), (400, "SESSIONS_UNAVAILABLE")),
        (post("/v1/sessions/read", "{}"), (400, "SESSIONS_UNAVAILABLE")),
        (post("/v1/sessions/delete", "{}"), (400, "SESSIONS_UNAVAILABLE")),
        (post("/v1/jobs/submit", "{}"), (503, "JOBS_UNAVAILABLE")),
        (post("/v1/jobs/read", "{}"), (503, "JOBS_UNAVAILABLE")),
        (post("/v1/jobs/cancel", "{}"), (503, "JOBS_UNAVAILABLE")),
        (post("/v1/jobs/events", "{}"), (503, "JOBS_UNAVAILABLE")),
        (post("/v1/retrieval/search", "{}"), (403, "FORBIDDEN")),
        (post("/v1/retrieval/ingest", "{}"), (403, "FORBIDDEN")),
        (Ask::get("/v1/management").token(ANN), (403, "FORBIDDEN")),
        (Ask::post("/v1/management/setup").token(ANN), (403, "FORBIDDEN")),
        (Ask::post("/v1/management/invitations").token(ANN), (403, "FORBIDDEN")),
        (Ask::get("/v1/management/connections").token(ANN), (403, "FORBIDDEN")),
        (Ask::post("/v1/management/connections/revoke").token(ANN), (403, "FORBIDDEN")),
        (Ask::post("/v1/management").token(ANN).text("{}"), (404, "NOT_FOUND")),
    ];
    for (index, (ask, (status, code))) in cases.into_iter().enumerate() {
        assert_eq!(fixture.ask(&ask).await.outcome(), (status, code.to_owned()), "case {index}");
    }
}
