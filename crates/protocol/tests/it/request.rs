//! The run request: each member at its edge, over it, of a wrong type, null, and unknown members at each level
//! (contract 2, design 4, law 9).

use countersign_approval_core::review::IdlePolicy;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::request::{Approvals, Message, OnDeny, Retry, Role, RunRequest, Unavailable};
use expect_test::expect;

use crate::support::{hello, with_approvals};

fn with(member: &str) -> String {
    format!(r#"{{"provider":"mock","model":"demo","input":"Hello",{member}}}"#)
}

#[track_caller]
fn good(member: &str) -> RunRequest {
    RunRequest::decode(&with(member)).unwrap()
}

fn refusal(member: &str) -> String {
    match RunRequest::decode(&with(member)) {
        Ok(_) => format!("accepted: {member}"),
        Err(error) => {
            assert_eq!(error.code(), Code::INVALID_REQUEST);
            error.to_string()
        }
    }
}

fn s(length: usize) -> String {
    format!("\"{}\"", "x".repeat(length))
}

fn items(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

#[test]
fn the_least_request() {
    assert_eq!(RunRequest::decode(r#"{"provider":"mock","model":"demo","input":"Hello"}"#).unwrap(), hello());
    for (body, message) in [
        (r#"{"model":"m","input":"x"}"#, "provider: is required"),
        (r#"{"provider":"p","input":"x"}"#, "model: is required"),
        (r#"{"provider":"p","model":"m"}"#, "input: is required"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        (
            r#"{"provider":"p","model":"m","input":""}"#,
            "input: expected a string of 1 to 100000 characters (UTF-16 units)",
        ),
        (
            r#"{"provider":"-","model":"m","input":"x"}"#,
            "provider: must match ^[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}$",
        ),
        (r#"{"provider":"p","model":7,"input":"x"}"#, "model: expected a string"),
    ] {
        assert_eq!(RunRequest::decode(body).unwrap_err().to_string(), message, "{body}");
    }
    for body in
        ["", "{", r#"{"provider":"p"} x"#, r#"{"provider":"p","provider":"p","model":"m","input":"x"}"#]
    {
        assert!(RunRequest::decode(body).is_err(), "{body}");
    }
}

/// At each edge the request passes.
#[test]
fn at_the_edges() {
    let input =
        |input: &str| RunRequest::decode(&format!(r#"{{"provider":"p","model":"m","input":{input}}}"#));
    assert!(input(&s(100_000)).is_ok());
    // 50,000 characters outside the basic plane are 100,000 UTF-16 units (contract 12.2).
    assert!(input(&format!("\"{}\"", "🌍".repeat(50_000))).is_ok());
    assert!(input(&format!("\"{}\"", "🌍".repeat(50_001))).is_err());
    let message = r#"{"role":"user","content":""}"#;
    for member in [
        format!(r#""instructions":{}"#, s(100_000)),
        r#""instructions":"""#.to_owned(),
        format!(r#""history":{}"#, items(message, 100)),
        r#""history":[]"#.to_owned(),
        format!(r#""history":[{{"role":"assistant","content":{}}}]"#, s(100_000)),
        format!(r#""tools":{}"#, items(&s(64), 32)),
        format!(r#""requiredCapabilities":[{}]"#, s(80)),
        r#""maxSteps":1"#.to_owned(),
        r#""maxSteps":64"#.to_owned(),
        r#""maxSteps":8.0"#.to_owned(),
        r#""maxSteps":0.8e1"#.to_owned(),
        r#""maxOutputTokens":65536"#.to_owned(),
        r#""idleTimeoutMs":0"#.to_owned(),
        r#""idleTimeoutMs":2147483647"#.to_owned(),
        format!(r#""metadata":{{{}:{}}}"#, s(80), s(500)),
        format!(r#""idempotencyKey":{}"#, s(128)),
        r#""retry":{"maxAttempts":5,"baseDelayMs":60000,"maxDelayMs":0}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":2147483647}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":1}"#.to_owned(),
    ] {
        good(&member);
    }
    let labels: Vec<_> = (0..32).map(|i| format!(r#""k{i}":"""#)).collect();
    assert_eq!(good(&format!(r#""metadata":{{{}}}"#, labels.join(","))).metadata.len(), 32);
    let capabilities: Vec<_> = (0..32).map(|i| format!(r#""c{i}""#)).collect();
    good(&format!(r#""requiredCapabilities":[{}]"#, capabilities.join(",")));
    // Names given twice are refused later, at step 11 of contract 2.1.
    assert_eq!(good(r#""tools":["a","a"]"#).tools.len(), 2);
}

/// One step over each edge, and of another type, with the path of the offending member.
#[test]
fn over_the_edges() {
    let message = r#"{"role":"user","content":""}"#;
    let labels: Vec<_> = (0..33).map(|i| format!(r#""k{i}":"""#)).collect();
    let capabilities: Vec<_> = (0..33).map(|i| format!(r#""c{i}""#)).collect();
    let refusals = [
        format!(r#""instructions":{}"#, s(100_001)),
        format!(r#""history":{}"#, items(message, 101)),
        format!(r#""history":[{{"role":"user","content":{}}}]"#, s(100_001)),
        r#""history":[{"role":"system","content":""}]"#.to_owned(),
        r#""history":[{"role":"user"}]"#.to_owned(),
        format!(r#""tools":{}"#, items(r#""a""#, 33)),
        format!(r#""tools":["ok",{}]"#, s(65)),
        r#""tools":["a-b"]"#.to_owned(),
        format!(r#""requiredCapabilities":[{}]"#, capabilities.join(",")),
        r#""requiredCapabilities":["a","a"]"#.to_owned(),
        format!(r#""requiredCapabilities":[{}]"#, s(81)),
        r#""requiredCapabilities":["1a"]"#.to_owned(),
        r#""maxSteps":0"#.to_owned(),
        r#""maxSteps":65"#.to_owned(),
        r#""maxSteps":8.5"#.to_owned(),
        r#""maxSteps":"8""#.to_owned(),
        r#""maxOutputTokens":65537"#.to_owned(),
        r#""idleTimeoutMs":-1"#.to_owned(),
        r#""idleTimeoutMs":2147483648"#.to_owned(),
        r#""idleTimeoutMs":1e400"#.to_owned(),
        format!(r#""metadata":{{{}}}"#, labels.join(",")),
        format!(r#""metadata":{{{}:""}}"#, s(81)),
        format!(r#""metadata":{{"secret":{}}}"#, s(501)),
        r#""metadata":{"secret":7}"#.to_owned(),
        format!(r#""idempotencyKey":{}"#, s(129)),
        r#""idempotencyKey":"""#.to_owned(),
        r#""retry":{"maxAttempts":6}"#.to_owned(),
        r#""retry":{"baseDelayMs":1}"#.to_owned(),
        r#""retry":{"maxAttempts":1,"baseDelayMs":60001}"#.to_owned(),
        r#""retry":{"maxAttempts":1,"maxDelayMs":60001}"#.to_owned(),
        r#""approvals":{"idlePolicy":"pause"}"#.to_owned(),
        r#""approvals":{"mode":"interactive"}"#.to_owned(),
        r#""approvals":{"mode":"Interactive","idlePolicy":"pause"}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"wait"}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":0}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":2147483648}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","onDeny":"retry"}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","digest":1}"#.to_owned(),
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","batch":"true"}"#.to_owned(),
    ]
    .map(|member| refusal(&member))
    .join("\n");
    expect![[r#"
        instructions: expected a string of 0 to 100000 characters (UTF-16 units)
        history: expected an array of 0 to 100 items
        history[0].content: expected a string of 0 to 100000 characters (UTF-16 units)
        history[0].role: expected "user" or "assistant"
        history[0].content: is required
        tools: expected an array of 0 to 32 items
        tools[1]: must match ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$
        tools[0]: must match ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$
        requiredCapabilities: expected an array of 0 to 32 items
        requiredCapabilities: names a capability twice
        requiredCapabilities[0]: must match ^[a-zA-Z][a-zA-Z0-9._-]{0,79}$
        requiredCapabilities[0]: must match ^[a-zA-Z][a-zA-Z0-9._-]{0,79}$
        maxSteps: expected an integer from 1 to 64
        maxSteps: expected an integer from 1 to 64
        maxSteps: expected an integer from 1 to 64
        maxSteps: expected an integer from 1 to 64
        maxOutputTokens: expected an integer from 1 to 65536
        idleTimeoutMs: expected an integer from 0 to 2147483647
        idleTimeoutMs: expected an integer from 0 to 2147483647
        idleTimeoutMs: expected an integer from 0 to 2147483647
        metadata: expected at most 32 members
        metadata: expected keys of at most 80 characters (UTF-16 units)
        metadata: expected values that are strings of at most 500 characters (UTF-16 units)
        metadata: expected values that are strings of at most 500 characters (UTF-16 units)
        idempotencyKey: must match ^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}$
        idempotencyKey: must match ^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}$
        retry.maxAttempts: expected an integer from 1 to 5
        retry.maxAttempts: is required
        retry.baseDelayMs: expected an integer from 0 to 60000
        retry.maxDelayMs: expected an integer from 0 to 60000
        approvals.mode: is required
        approvals.idlePolicy: is required
        approvals.mode: expected "interactive"
        approvals.idlePolicy: expected "pause" or "continue"
        approvals.expiresAfterMs: expected an integer from 1 to 2147483647
        approvals.expiresAfterMs: expected an integer from 1 to 2147483647
        approvals.onDeny: expected "fail" or "continue"
        approvals.digest: expected true or false
        approvals.batch: expected true or false"#]]
    .assert_eq(&refusals);
}

/// Null stands for nothing anywhere (contract 2), and an unknown member is refused at every level.
#[test]
fn null_and_unknown() {
    for name in [
        "instructions",
        "history",
        "tools",
        "requiredCapabilities",
        "maxSteps",
        "maxOutputTokens",
        "idleTimeoutMs",
        "metadata",
        "idempotencyKey",
        "retry",
        "approvals",
        "outputSchema",
        "applicationTools",
        "session",
        "attachments",
        "outputArtifact",
        "retrieval",
    ] {
        let message = refusal(&format!(r#""{name}":null"#));
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
    }
    let inside = [
        r#""approvals":{"mode":null,"idlePolicy":"pause"}"#,
        r#""approvals":{"mode":"interactive","idlePolicy":null}"#,
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":null}"#,
        r#""retry":{"maxAttempts":1,"baseDelayMs":null}"#,
        r#""history":[null]"#,
        r#""tools":[null]"#,
        r#""surprise":1"#,
        r#""history":[{"role":"user","content":"","surprise":1}]"#,
        r#""retry":{"maxAttempts":1,"surprise":1}"#,
        r#""approvals":{"mode":"interactive","idlePolicy":"pause","subject":"root"}"#,
    ]
    .map(refusal)
    .join("\n");
    expect![[r#"
        approvals.mode: expected "interactive"
        approvals.idlePolicy: expected "pause" or "continue"
        approvals.expiresAfterMs: expected an integer from 1 to 2147483647
        retry.baseDelayMs: expected an integer from 0 to 60000
        history[0]: expected an object
        tools[0]: expected a string
        surprise: unknown member
        history[0].surprise: unknown member
        retry.surprise: unknown member
        approvals.subject: unknown member"#]]
    .assert_eq(&inside);
}

/// No error text repeats what a client wrote in a value, nor a key that may be content.
#[test]
fn errors_are_not_an_echo() {
    for member in [
        r#""instructions":["S3CRET"]"#,
        r#""tools":["S3CRET!"]"#,
        r#""metadata":{"S3CRET":7}"#,
        r#""idempotencyKey":"S3CRET key""#,
        r#""approvals":{"mode":"S3CRET","idlePolicy":"pause"}"#,
        r#""my S3CRET is here":1"#,
        r#""history":[{"role":"S3CRET","content":""}]"#,
        r#""session":"S3CRET""#,
    ] {
        let error = RunRequest::decode(&with(member)).unwrap_err();
        assert!(!ErrorInfo::from(&error).message.contains("S3CRET"), "{error}");
    }
}

/// Contract 2, 7.5: an object, carried as it is written; whether it is a schema is not this crate's business.
#[test]
fn output_schema() {
    let schema = r#"{"$schema":7,"maximum":9007199254740993.0,"b":1,"a":[1e400]}"#;
    let request = good(&format!(r#""outputSchema": {schema}"#));
    assert_eq!(request.output_schema.as_ref().unwrap().text(), schema);
    assert!(serde_json::to_string(&request).unwrap().contains(&format!(r#""outputSchema":{schema}"#)));
    let nested = |n: usize| format!(r#""outputSchema":{}1{}"#, r#"{"not":"#.repeat(n), "}".repeat(n));
    good(&nested(64));
    let too_deep = refusal(&nested(65));
    assert_eq!(too_deep, "outputSchema: expected at most 64 levels, and no key `__proto__`");
    assert_eq!(refusal(r#""outputSchema":{"properties":{"__proto__":{}}}"#), too_deep);
    for value in ["true", "[]", r#""{}""#, "7"] {
        assert_eq!(refusal(&format!(r#""outputSchema":{value}"#)), "outputSchema: expected an object");
    }
}

/// Members that the contract has and this version does not serve are seen, in order, and only their kind is checked.
#[test]
fn unserved_members_are_noted() {
    let request = good(r#""session":{"id":"x"},"retrieval":{},"attachments":[{}],"outputArtifact":{}"#);
    assert_eq!(
        request.unavailable,
        [Unavailable::Session, Unavailable::Retrieval, Unavailable::Attachments, Unavailable::OutputArtifact]
    );
    assert!(!serde_json::to_string(&request).unwrap().contains("session"));
    // Some clients write the empty list.
    assert!(good(r#""attachments":[]"#).unavailable.is_empty());
    for member in [r#""attachments":[1]"#, r#""session":[]"#] {
        assert!(RunRequest::decode(&with(member)).is_err(), "{member}");
    }
}

/// What our client writes is what the host reads: absent and empty members are left out, `mode` is always there.
#[test]
fn written_and_read_back() {
    assert_eq!(
        serde_json::to_string(&hello()).unwrap(),
        r#"{"provider":"mock","model":"demo","input":"Hello"}"#
    );
    let request = RunRequest {
        instructions: Some(String::new()),
        history: vec![Message { role: Role::Assistant, content: "\u{2028}".to_owned() }],
        tools: vec!["write"]
            .into_iter()
            .map(|name| countersign_approval_core::ids::ToolName::parse(name).unwrap())
            .collect(),
        required_capabilities: vec!["tools".to_owned()],
        max_steps: Some(8),
        max_output_tokens: Some(1),
        idle_timeout_ms: Some(0),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        idempotency_key: Some("key:1".to_owned()),
        retry: Some(Retry { max_attempts: 2, base_delay_ms: Some(0), max_delay_ms: None }),
        ..with_approvals(Approvals {
            expires_after_ms: Some(1000),
            digest: Some(true),
            on_deny: Some(OnDeny::Continue),
            batch: Some(false),
            ..Approvals::new(IdlePolicy::Continue)
        })
    };
    let text = serde_json::to_string(&request).unwrap();
    expect![[r#"{"provider":"mock","model":"demo","input":"Hello","instructions":"","history":[{"role":"assistant","content":" "}],"tools":["write"],"requiredCapabilities":["tools"],"maxSteps":8,"maxOutputTokens":1,"idleTimeoutMs":0,"metadata":{"k":"v"},"idempotencyKey":"key:1","retry":{"maxAttempts":2,"baseDelayMs":0},"approvals":{"mode":"interactive","idlePolicy":"continue","expiresAfterMs":1000,"digest":true,"onDeny":"continue","batch":false}}"#]].assert_eq(&text);
    assert_eq!(RunRequest::decode(&text).unwrap(), request);
}

/// Contract 1.2, step 12: one byte order mark is tolerated, bytes that are not UTF-8 are not.
#[test]
fn bodies() {
    assert_eq!(countersign_protocol::body_text(b"\xef\xbb\xbf{}").unwrap(), "{}");
    assert_eq!(countersign_protocol::body_text(b"{}").unwrap(), "{}");
    assert_eq!(countersign_protocol::body_text(b"\xff{}").unwrap_err().code(), Code::INVALID_REQUEST);
    assert!(RunRequest::decode("\u{feff}{}").is_err());
}

/// A definition with these members beside `name` and `description`.
fn defined(members: &str) -> String {
    format!(r#""applicationTools":[{{"name":"pick","description":"Picks.",{members}}}]"#)
}

/// Contract 7.6: definitions are read strictly and kept as written; 2: null is nothing.
#[test]
fn application_tools() {
    let text = defined(
        r#""inputSchema": { "minimum" : 1.0 },"outputSchema":{"type":"string"},"requiresApproval":false"#,
    );
    let request = good(&text);
    let [tool] = &request.application_tools[..] else { panic!("{request:?}") };
    assert_eq!((tool.name.as_str(), tool.description.as_str()), ("pick", "Picks."));
    assert_eq!(tool.input_schema.text(), r#"{"minimum":1.0}"#);
    assert_eq!(tool.output_schema.as_ref().unwrap().text(), r#"{"type":"string"}"#);
    assert_eq!(tool.requires_approval, Some(false));
    assert_eq!(RunRequest::decode(&serde_json::to_string(&request).unwrap()).unwrap(), request);
    let least = good(&defined(r#""inputSchema":{}"#));
    let [tool] = &least.application_tools[..] else { panic!("{least:?}") };
    assert_eq!((tool.output_schema.as_ref(), tool.requires_approval), (None, None));
    let many = |count: usize| {
        let one = |at| format!(r#"{{"name":"t{at}","description":"d","inputSchema":{{}}}}"#);
        format!(r#""applicationTools":[{}]"#, (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    assert_eq!(good(&many(32)).application_tools.len(), 32);
    // Names given twice pass here: the contract's 2.1 refuses them later, with a code of their own.
    let twice = r#"{"name":"t","description":"d","inputSchema":{}}"#;
    good(&format!(r#""applicationTools":[{twice},{twice}]"#));
    let long = |units: usize| {
        format!(
            r#""applicationTools":[{{"name":"t","description":"{}","inputSchema":{{}}}}]"#,
            "\u{1F30D}".repeat(units / 2)
        )
    };
    good(&long(10_000));
    let refusals = [
        r#""applicationTools":[]"#.to_owned(),
        r#""applicationTools":{}"#.to_owned(),
        many(33),
        r#""applicationTools":[{"description":"d","inputSchema":{}}]"#.to_owned(),
        r#""applicationTools":[{"name":"a-b","description":"d","inputSchema":{}}]"#.to_owned(),
        r#""applicationTools":[{"name":"a","inputSchema":{}}]"#.to_owned(),
        r#""applicationTools":[{"name":"a","description":"","inputSchema":{}}]"#.to_owned(),
        long(10_002),
        defined(r#""requiresApproval":true"#),
        defined(r#""inputSchema":true"#),
        defined(r#""inputSchema":null"#),
        defined(r#""inputSchema":{},"outputSchema":null"#),
        defined(r#""inputSchema":{},"requiresApproval":null"#),
        defined(r#""inputSchema":{},"execute":"rm""#),
        defined(r#""inputSchema":{"properties":{"__proto__":{}}}"#),
    ]
    .iter()
    .map(|member| refusal(member))
    .collect::<Vec<_>>()
    .join("\n");
    expect![[r#"
        applicationTools: expected an array of 1 to 32 items
        applicationTools: expected an array of 1 to 32 items
        applicationTools: expected an array of 1 to 32 items
        applicationTools[0].name: is required
        applicationTools[0].name: must match ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$
        applicationTools[0].description: is required
        applicationTools[0].description: expected a string of 1 to 10000 characters (UTF-16 units)
        applicationTools[0].description: expected a string of 1 to 10000 characters (UTF-16 units)
        applicationTools[0].inputSchema: is required
        applicationTools[0].inputSchema: expected an object
        applicationTools[0].inputSchema: expected an object
        applicationTools[0].outputSchema: expected an object
        applicationTools[0].requiresApproval: expected true or false
        applicationTools[0].execute: unknown member
        applicationTools[0].inputSchema: expected at most 64 levels, and no key `__proto__`"#]]
    .assert_eq(&refusals);
}

/// Contract 2.1, row 12: the bound counts the definition as compact JSON, however it was spelled.
#[test]
fn definitions_are_measured_as_compact_json() {
    let read = |text: &str| {
        let mut request = good(&format!(r#""applicationTools":[{text}]"#));
        request.application_tools.remove(0).compact_len()
    };
    for compact in [
        r#"{"name":"a","description":"d","inputSchema":{}}"#,
        r#"{"name":"a","description":"\"\\\n","inputSchema":{"type":"object"},"outputSchema":{"a":[1,2]}}"#,
        r#"{"name":"a","description":"d","inputSchema":{},"requiresApproval":false}"#,
    ] {
        assert_eq!(read(compact), compact.len(), "{compact}");
    }
    let spelled = r#"{ "name" : "\u0061", "description":"d", "inputSchema": { "minimum" : 1.00e0 } }"#;
    assert_eq!(read(spelled), r#"{"name":"a","description":"d","inputSchema":{"minimum":1}}"#.len());
}
