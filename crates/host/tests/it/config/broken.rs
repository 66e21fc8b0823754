//! Every rule of contract 6.1 and 6.2, broken once: the answer names the field and the rule.

use serde_json::{Value, json};

use super::{compatible, directory, granting, outcome, put, with, without};
use crate::support::ANN;

#[test]
fn every_broken_rule_is_named_with_its_field() {
    let directory = directory();
    let many: Vec<_> = (0..101).map(|index| format!("https://a{index}.example")).collect();
    let names: Vec<_> = (0..33).map(|index| format!("tool_{index}")).collect();
    let later = "not served by this version";
    let cases = [
        ("version", with("/version", json!(2)), "expected 1"),
        ("version", with("/version", json!("1")), "expected an integer"),
        ("version", without("/version"), "required"),
        ("providers", without("/providers"), "required"),
        ("tokens", without("/tokens"), "required"),
        ("verion", with("/verion", json!(1)), "unknown member"),
        ("listen", with("/listen", json!("127.0.0.1:80")), "expected an object"),
        ("listen", with("/listen", Value::Null), "expected an object"),
        ("listen.port", with("/listen", json!({"port": 65_536})), "expected an integer from 0 to 65535"),
        ("listen.port", with("/listen", json!({"port": "80"})), "expected an integer"),
        ("listen.host", with("/listen", json!({"host": 7})), "expected a string"),
        ("listen.path", with("/listen", json!({"path": "/"})), "unknown member"),
        ("clientUrl", with("/clientUrl", json!("nowhere")), "not a URL"),
        ("providers", with("/providers", json!([])), "expected 1 to 32 elements, found 0"),
        ("providers", with("/providers", json!(vec![0; 33])), "expected 1 to 32 elements, found 33"),
        ("providers[0].kind", without("/providers/0/kind"), "required"),
        ("providers[0].kind", with("/providers/0/kind", json!("claude-code")), later),
        ("providers[0].kind", with("/providers/0/kind", json!("mock")), later),
        ("providers[0].kind", with("/providers/0/kind", json!("other")), "unknown kind"),
        ("providers[0].id", without("/providers/0/id"), "required"),
        ("providers[0].id", with("/providers/0/id", json!("a b")), "must match"),
        ("providers[0].models", with("/providers/0/models", json!([])), ""),
        ("providers[0].models[0]", with("/providers/0/models", json!(["a b"])), "must match"),
        ("providers[0].model", with("/providers/0/model", json!("x")), "unknown member"),
        ("providers[0].default[0].delayMs", with("/providers/0/default", json!([{"delayMs": -1}])), ""),
        (
            "providers[1].id",
            with("/providers/1", put(compatible(), "/id", json!("mock"))),
            "another provider",
        ),
        (
            "providers[1].baseUrl",
            with("/providers/1", put(compatible(), "/baseUrl", json!("http://vendor.example"))),
            "",
        ),
        (
            "providers[1].baseUrl",
            with("/providers/1", put(compatible(), "/baseUrl", json!("nowhere"))),
            "not a URL",
        ),
        ("providers[1].accountId", with("/providers/1", put(compatible(), "/accountId", json!("a"))), later),
        (
            "providers[1].inputMediaTypes",
            with("/providers/1", put(compatible(), "/inputMediaTypes", json!([]))),
            later,
        ),
        (
            "providers[1].apiKey",
            with("/providers/1", put(compatible(), "/apiKey", json!("sk"))),
            "unknown member",
        ),
        (
            "providers[1].apiKeyRef",
            with("/providers/1", put(compatible(), "/apiKeyRef", json!("sk"))),
            "by reference",
        ),
        (
            "providers[1].streaming",
            with("/providers/1", put(compatible(), "/streaming", json!("no"))),
            "true or false",
        ),
        ("tokens", with("/tokens", json!([])), "expected 1 to 100 elements, found 0"),
        ("tokens", with("/tokens", json!(vec![0; 101])), "found 101"),
        ("tokens[0]", with("/tokens/0", json!("ann")), "expected an object"),
        ("tokens[0].id", without("/tokens/0/id"), "required"),
        ("tokens[0].id", with("/tokens/0/id", json!("-a")), "must match"),
        ("tokens[0].subject", without("/tokens/0/subject"), "required"),
        ("tokens[0].subject", with("/tokens/0/subject", json!("")), "expected 1 to 128 characters"),
        (
            "tokens[0].subject",
            with("/tokens/0/subject", json!("x".repeat(129))),
            "expected 1 to 128 characters",
        ),
        ("tokens[0].tokenRef", without("/tokens/0/tokenRef"), "required"),
        ("tokens[0].tokenRef", with("/tokens/0/tokenRef", json!(ANN)), "by reference"),
        ("tokens[0].tokenRef", with("/tokens/0/tokenRef", json!({})), "exactly one of env and file"),
        ("tokens[0].tokenRef", with("/tokens/0/tokenRef", json!({"env": "A", "file": "ann"})), "exactly one"),
        (
            "tokens[0].tokenRef",
            with("/tokens/0/tokenRef", json!({"keychain": {"service": "s", "account": "a"}})),
            "keychain are not served",
        ),
        (
            "tokens[0].tokenRef.value",
            with("/tokens/0/tokenRef", json!({"file": "ann", "value": ANN})),
            "unknown member",
        ),
        ("tokens[0].tokenRef.env", with("/tokens/0/tokenRef", json!({"env": "A-B"})), "must match"),
        ("tokens[0].tokenRef.file", with("/tokens/0/tokenRef", json!({"file": ""})), "expected 1 to 4096"),
        ("tokens[0].token", with("/tokens/0/token", json!(ANN)), "by reference"),
        ("tokens[0].providers[0]", with("/tokens/0/providers", json!(["other"])), "no provider with this id"),
        ("tokens[0].tools", with("/tokens/0/tools", json!(names)), "expected 0 to 32 elements, found 33"),
        ("tokens[0].tools[0]", with("/tokens/0/tools", json!(["a-b"])), "must match"),
        ("tokens[0].approveTools", with("/tokens/0/approveTools", json!("write")), "expected an array"),
        (
            "tokens[0].applicationTools",
            with("/tokens/0/applicationTools", json!(vec![json!({"name": "a"}); 33])),
            "expected 0 to 32 elements, found 33",
        ),
        ("tokens[0].applicationTools[0]", granting(json!("pick")), "expected an object"),
        ("tokens[0].applicationTools[0].name", granting(json!({})), "required"),
        ("tokens[0].applicationTools[0].name", granting(json!({"name": "a-b"})), "must match"),
        (
            "tokens[0].applicationTools[0].requiresApproval",
            granting(json!({"name": "a", "requiresApproval": "no"})),
            "expected true or false",
        ),
        (
            "tokens[0].applicationTools[0].approve",
            granting(json!({"name": "a", "approve": true})),
            "unknown member",
        ),
        (
            "tokens[0].applicationTools[1].name",
            with(
                "/tokens/0/applicationTools",
                json!([{"name": "a"}, {"name": "a", "requiresApproval": false}]),
            ),
            "the tool is granted twice",
        ),
        ("tokens[0].manageProviders", with("/tokens/0/manageProviders", json!(true)), later),
        ("tokens[0].grants", with("/tokens/0/grants", json!([])), "unknown member"),
        (
            "tokens[1].id",
            with("/tokens/1", json!({"id": "ann", "subject": "b", "tokenRef": {"file": "bob"}})),
            "another token has this id",
        ),
        (
            "tokens[1].tokenRef",
            with("/tokens/1", json!({"id": "b", "subject": "b", "tokenRef": {"file": "ann"}})),
            "another token has the same value",
        ),
        ("approvals.interactive", with("/approvals", json!({})), "required"),
        ("approvals.interactive", with("/approvals", json!({"interactive": false})), "expected true"),
        (
            "approvals.interactive",
            with("/approvals", json!({"interactive": "true"})),
            "expected true or false",
        ),
        ("approvals.maxPending", with("/approvals", json!({"interactive": true, "maxPending": 0})), "from 1"),
        (
            "approvals.maxPending",
            with("/approvals", json!({"interactive": true, "maxPending": 1.5})),
            "integer",
        ),
        (
            "approvals.maxPending",
            with("/approvals", json!({"interactive": true, "maxPending": 9_007_199_254_740_992_i64})),
            "from 1 to 9007199254740991",
        ),
        (
            "approvals.maxRejectedPerMinute",
            with("/approvals", json!({"interactive": true, "maxRejectedPerMinute": 0})),
            "from 1",
        ),
        (
            "approvals.features[0]",
            with("/approvals", json!({"interactive": true, "features": ["batch-approvals"]})),
            later,
        ),
        (
            "approvals.features[1]",
            with(
                "/approvals",
                json!({"interactive": true, "features": ["approval-digest", "approval-digest"]}),
            ),
            "named twice",
        ),
        (
            "approvals.features[0]",
            with("/approvals", json!({"interactive": true, "features": ["x"]})),
            "unknown feature",
        ),
        (
            "approvals.onAudit",
            with("/approvals", json!({"interactive": true, "onAudit": "x"})),
            "unknown member",
        ),
        ("limits.maxSteps", with("/limits", json!({"maxSteps": 65})), "from 1 to 64"),
        ("limits.maxSteps", with("/limits", json!({"maxSteps": 0})), "from 1 to 64"),
        ("limits.maxOutputTokens", with("/limits", json!({"maxOutputTokens": 65_537})), "from 1 to 65536"),
        (
            "limits.idleTimeoutMs",
            with("/limits", json!({"idleTimeoutMs": 2_147_483_648_i64})),
            "from 0 to 2147483647",
        ),
        ("limits.maxAttempts", with("/limits", json!({"maxAttempts": 0})), "from 1 to 5"),
        ("limits.maxAttempts", with("/limits", json!({"maxAttempts": 6})), "from 1 to 5"),
        ("limits.deadline", with("/limits", json!({"deadline": 1})), "unknown member"),
        ("allowedOrigins", with("/allowedOrigins", json!(many)), "found 101"),
        ("allowedOrigins[0]", with("/allowedOrigins", json!(["https://app.example/"])), "expected an origin"),
        ("allowedOrigins[0]", with("/allowedOrigins", json!(["*"])), "expected an origin"),
        ("allowedOrigins[0]", with("/allowedOrigins", json!(["null"])), "expected an origin"),
        ("concurrency.total", with("/concurrency", json!({"total": 0})), "from 1 to 100000"),
        ("log", with("/log", json!(true)), "expected an object"),
        ("log.arguments", with("/log", json!({})), "required"),
        ("log.arguments", with("/log", json!({"arguments": "yes"})), "expected true or false"),
        ("log.level", with("/log", json!({"arguments": true, "level": "info"})), "unknown member"),
        ("concurrency.perSubject", with("/concurrency", json!({"perSubject": 100_001})), "from 1 to 100000"),
        (
            "concurrency.subjects.ann",
            with("/concurrency", json!({"subjects": {"ann": 0}})),
            "from 1 to 100000",
        ),
        ("concurrency.subjects.", with("/concurrency", json!({"subjects": {"": 1}})), "1 to 128 characters"),
        ("concurrency.subjects", with("/concurrency", json!({"subjects": 4})), "expected an object"),
        ("concurrency.queue", with("/concurrency", json!({"queue": 4})), "expected an object"),
        ("concurrency.queue.total", with("/concurrency", json!({"queue": {"perSubject": 1}})), "required"),
        ("concurrency.queue.perSubject", with("/concurrency", json!({"queue": {"total": 1}})), "required"),
        (
            "concurrency.queue.total",
            with("/concurrency", json!({"queue": {"total": 0, "perSubject": 1}})),
            "from 1 to 100000",
        ),
        (
            "concurrency.queue.perSubject",
            with("/concurrency", json!({"queue": {"total": 1, "perSubject": 100_001}})),
            "from 1 to 100000",
        ),
        (
            "concurrency.queue.wait",
            with("/concurrency", json!({"queue": {"total": 1, "perSubject": 1, "wait": 1}})),
            "unknown member",
        ),
        (
            "concurrency.perAccount",
            with("/concurrency", json!({"perAccount": 1})),
            "not served by this version, whose providers have no accounts",
        ),
        ("concurrency.accounts", with("/concurrency", json!({"accounts": {"a": 1}})), "have no accounts"),
        ("concurrency.runs", with("/concurrency", json!({"runs": 1})), "unknown member"),
        ("tls", with("/tls", json!("cert.pem")), "expected an object"),
        ("tls.certFile", with("/tls", json!({"keyRef": {"file": "key"}})), "required"),
        ("tls.keyRef", with("/tls", json!({"certFile": "cert.pem"})), "required"),
        (
            "tls.keyRef",
            with("/tls", json!({"certFile": "cert.pem", "keyRef": "-----BEGIN PRIVATE KEY-----"})),
            "by reference",
        ),
        (
            "tls.minVersion",
            with("/tls", json!({"certFile": "a", "keyRef": {"file": "key"}, "minVersion": "1.3"})),
            "unknown member",
        ),
        ("usageLog", with("/usageLog", json!({})), later),
        ("usagestat", with("/usagestat", json!({})), later),
        ("context", with("/context", json!({})), later),
        ("retrieval", with("/retrieval", json!({})), later),
        ("management", with("/management", json!({})), later),
        ("connections", with("/connections", json!({})), later),
        ("applicationTools", with("/applicationTools", json!(true)), "expected an object"),
        ("applicationTools.enabled", with("/applicationTools", json!({})), "required"),
        ("applicationTools.enabled", with("/applicationTools", json!({"enabled": false})), "expected true"),
        (
            "applicationTools.requireApproval",
            with("/applicationTools", json!({"enabled": true, "requireApproval": null})),
            "expected true or false",
        ),
        (
            "applicationTools.maxPending",
            with("/applicationTools", json!({"enabled": true, "maxPending": 0})),
            "from 1",
        ),
        (
            "applicationTools.tools",
            with("/applicationTools", json!({"enabled": true, "tools": []})),
            "unknown member",
        ),
        ("operations.directory", with("/operations", json!({})), "required"),
        (
            "operations.directory",
            with("/operations", json!({"directory": ""})),
            "expected 1 to 4096 characters",
        ),
        (
            "operations.maxRecordBytes",
            with("/operations", json!({"directory": "o", "maxRecordBytes": 0})),
            "from 1 to",
        ),
        ("operations.days", with("/operations", json!({"directory": "o", "days": 1})), "unknown member"),
        ("resources", with("/resources", json!({})), later),
        ("usage", with("/usage", json!({})), later),
        ("sessions", with("/sessions", json!({})), later),
        ("jobs", with("/jobs", json!({})), later),
        ("tools", with("/tools", json!([])), "unknown member"),
    ];
    for (field, config, reason) in cases {
        let error = outcome(&directory, &config);
        let expected = format!("INVALID_CONFIG: {field}: ");
        assert!(error.starts_with(&expected) && error.contains(reason), "{field}, {reason}: {error}");
        assert!(!error.contains('\n') && !error.contains(ANN), "{error}");
    }
}

// The more special codes of contract 6.1.
