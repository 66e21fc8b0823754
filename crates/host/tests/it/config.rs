//! The configuration file (contract 6.1, 6.2): each field at its edge, over it, of a wrong type, unknown.

use std::fs;
use std::path::Path;

use countersign_driver::{Output, ToolSpec, tool};
use countersign_host::{Extras, HostConfig, StartError, configured_driver, serve};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::{ANN, Ask, BOB, Peer, plain};

mod broken;

/// A directory with private files: `ann`, `bob` and `key`.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    // Editors end a file with a line end, so white space at the end is not part of a secret.
    private(directory.path(), "ann", format!("{ANN}\r\n \n").as_bytes());
    private(directory.path(), "bob", BOB.as_bytes());
    private(directory.path(), "key", b"sk-key");
    let certificate = include_str!("../../../client/tests/it/tls/trusted.pem");
    fs::write(directory.path().join("cert.pem"), certificate).unwrap();
    directory
}

fn private(directory: &Path, name: &str, content: &[u8]) {
    fs::write(directory.join(name), content).unwrap();
    mode(directory, name, 0o600);
}

fn mode(directory: &Path, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn minimal() -> Value {
    json!({
        "version": 1,
        "providers": [{"id": "mock", "kind": "scripted", "models": ["demo"], "default": [{"text": "Hello."}]}],
        "tokens": [{"id": "ann", "subject": "ann", "tokenRef": {"file": "ann"}, "providers": ["mock"]}],
    })
}

fn compatible() -> Value {
    json!({
        "id": "vendor", "kind": "openai-compatible", "baseUrl": "https://vendor.example/v1", "models": ["m"],
        "apiKeyRef": {"file": "key"},
    })
}

/// An entry of a kind that knows where its vendor is.
fn vendor(kind: &str) -> Value {
    json!({"id": "vendor", "kind": kind, "models": ["m"], "apiKeyRef": {"file": "key"}})
}

/// `minimal` with one value put at a path such as `/tokens/0/subject`.
pub(crate) fn with(path: &str, value: Value) -> Value {
    put(minimal(), path, value)
}

fn put(mut config: Value, path: &str, value: Value) -> Value {
    let mut at = &mut config;
    for step in path.trim_start_matches('/').split('/') {
        at = match step.parse::<usize>() {
            Ok(index) => {
                let array = at.as_array_mut().unwrap();
                if index == array.len() {
                    array.push(Value::Null);
                }
                &mut array[index]
            }
            Err(_) => &mut at[step],
        };
    }
    *at = value;
    config
}

/// `minimal` with one entry in the first token's `applicationTools`.
fn granting(entry: Value) -> Value {
    with("/tokens/0/applicationTools", json!([entry]))
}

fn without(path: &str) -> Value {
    let mut config = minimal();
    let (parent, name) = path.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
    config
}

fn outcome(directory: &TempDir, config: &Value) -> String {
    match HostConfig::parse(&config.to_string(), directory.path()) {
        Ok(_) => "ok".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_field_is_accepted_within_its_rule() {
    let directory = directory();
    let origins: Vec<_> = (0..100).map(|index| format!("https://a{index}.example:8443")).collect();
    let models: Vec<_> = (0..1000).map(|index| format!("m{index}")).collect();
    let names: Vec<_> = (0..32).map(|index| format!("tool_{index}")).collect();
    let providers: Vec<_> = (0..32)
        .map(|index| json!({"id": format!("p{index}"), "kind": "scripted", "models": ["m"]}))
        .collect();
    let cases = [
        ("minimal", minimal()),
        ("version", with("/version", json!(1.0))),
        ("listen", with("/listen", json!({}))),
        ("host", with("/listen", json!({"host": "LocalHost", "port": 0}))),
        ("port", with("/listen", json!({"host": "::1", "port": 65535}))),
        ("application tools", with("/applicationTools", json!({"enabled": true}))),
        (
            "application tools",
            with("/applicationTools", json!({"enabled": true, "requireApproval": false, "maxPending": 1})),
        ),
        ("grants", with("/tokens/0/applicationTools", json!([]))),
        ("grants", granting(json!({"name": "pick"}))),
        ("grants", granting(json!({"name": "pick", "requiresApproval": false}))),
        ("client", with("/clientUrl", json!("https://host.example/base"))),
        ("client", with("/clientUrl", json!("http://localhost:7433"))),
        ("client", with("/clientUrl", json!("http://[::1]:7433"))),
        ("providers", put(with("/tokens/0/providers", json!([])), "/providers", json!(providers))),
        ("provider", with("/providers/1", compatible())),
        ("provider", with("/providers/1", put(compatible(), "/name", json!("x".repeat(100))))),
        ("provider", with("/providers/1", put(compatible(), "/streaming", json!(false)))),
        ("provider", with("/providers/1", put(compatible(), "/models", json!(models)))),
        ("provider", with("/providers/1", put(compatible(), "/baseUrl", json!("http://127.0.0.1:8080/v1")))),
        ("provider", with("/providers/1", vendor("openai"))),
        ("provider", with("/providers/1", put(vendor("openai"), "/streaming", json!(false)))),
        ("provider", with("/providers/1", put(vendor("openai"), "/baseUrl", json!("http://127.0.0.1:1/v1")))),
        ("provider", with("/providers/1", vendor("xai"))),
        ("provider", with("/providers/1", put(vendor("xai"), "/streaming", json!(false)))),
        ("provider", with("/providers/1", vendor("anthropic"))),
        ("provider", with("/providers/1", put(vendor("anthropic"), "/baseUrl", json!("https://a.example")))),
        ("provider", with("/providers/1", vendor("gemini"))),
        ("provider", with("/providers/1", put(vendor("gemini"), "/name", json!("G")))),
        ("token", with("/tokens/1", json!({"id": "b", "subject": "ann", "tokenRef": {"file": "bob"}}))),
        ("subject", with("/tokens/0/subject", json!("x".repeat(128)))),
        ("tools", with("/tokens/0/tools", json!(names))),
        ("approveTools", with("/tokens/0/approveTools", json!(names))),
        ("approvals", with("/approvals", json!({"interactive": true}))),
        (
            "approvals",
            with(
                "/approvals",
                json!({
                    "interactive": true, "allowIdlePause": false, "maxPending": 9_007_199_254_740_991_i64,
                    "maxRejectedPerMinute": 4_294_967_295_u32, "features": [],
                }),
            ),
        ),
        (
            "approvals",
            with("/approvals", json!({"interactive": true, "maxPending": 1, "maxRejectedPerMinute": 1})),
        ),
        (
            "approvals",
            with(
                "/approvals",
                json!({"interactive": true, "features": ["denial-feedback", "approval-digest"]}),
            ),
        ),
        (
            "limits",
            with(
                "/limits",
                json!({
                    "maxSteps": 64, "maxOutputTokens": 65_536, "idleTimeoutMs": 2_147_483_647, "maxAttempts": 5,
                }),
            ),
        ),
        ("limits", with("/limits", json!({"maxSteps": 1, "maxOutputTokens": 1, "idleTimeoutMs": 0}))),
        ("origins", with("/allowedOrigins", json!(origins))),
        ("origins", with("/allowedOrigins", json!(["http://localhost:3000"]))),
        ("concurrency", with("/concurrency", json!({"total": 100_000, "perSubject": 100_000}))),
        ("concurrency", with("/concurrency", json!({"total": 1, "perSubject": 1}))),
        ("log", with("/log", json!({"arguments": true}))),
        ("log", with("/log", json!({"arguments": false}))),
        ("concurrency", with("/concurrency", json!({"subjects": {}}))),
        ("concurrency", with("/concurrency", json!({"subjects": {"ann": 1, "\u{1f600} nobody": 100_000}}))),
        ("concurrency", with("/concurrency", json!({"queue": {"total": 1, "perSubject": 100_000}}))),
        ("operations", with("/operations", json!({"directory": "ops"}))),
        ("operations", with("/operations", json!({"directory": "/x/ops", "maxRecordBytes": 1}))),
        (
            "operations",
            with("/operations", json!({"directory": "o", "maxRecordBytes": 9_007_199_254_740_991_i64})),
        ),
    ];
    for (name, config) in cases {
        assert_eq!(outcome(&directory, &config), "ok", "{name}: {config}");
    }
}

/// Each kind has its own members, and says whose another one is.
#[test]
fn every_kind_is_strict() {
    let directory = directory();
    for kind in ["openai", "openai-compatible", "xai", "anthropic", "gemini"] {
        let good = put(vendor(kind), "/baseUrl", json!("https://vendor.example/v1"));
        let check = |path: &str, value: Value, expected: &str| {
            let config = with("/providers/1", put(good.clone(), path, value));
            let field = path.trim_start_matches('/');
            let outcome = outcome(&directory, &config);
            let start = format!("INVALID_CONFIG: providers[1].{field}");
            assert!(outcome.starts_with(&start) && outcome.contains(expected), "{kind} {field}: {outcome}");
        };
        let of_scripted = format!("not a member of the kind {kind}, only of scripted");
        for member in ["scripts", "default", "capabilities"] {
            check(&format!("/{member}"), json!({}), &of_scripted);
        }
        for member in ["accountId", "inputMediaTypes", "accountDirectory", "binary"] {
            check(&format!("/{member}"), json!("x"), "not served by this version");
        }
        check("/apiKey", json!("sk-inline"), "unknown member");
        check("/apiKeyRef", json!("sk-inline"), "named by reference");
        check("/apiKeyRef", json!({"env": "A", "file": "key"}), "exactly one of env and file");
        check("/baseUrl", json!("nowhere"), "not a URL");
        for mended in [
            "https://vendor.example\n/v1",
            " https://vendor.example",
            "https:\\\\vendor.example",
            "https:///v1",
        ] {
            check("/baseUrl", json!(mended), "not a URL as it should be");
        }
        check("/baseUrl", json!("http://vendor.example/v1"), "HTTPS");
        check("/baseUrl", json!("https://u:p@vendor.example/v1"), "credentials");
        check("/baseUrl", json!("https://vendor.example/v1?key=x"), "query");
        check("/models", json!([]), "expected 1 to 1000");
        check("/name", json!(""), "expected 1 to 100 characters");
        match kind {
            "anthropic" | "gemini" => check(
                "/streaming",
                json!(true),
                &format!("not a member of the kind {kind}, only of openai, openai-compatible and xai"),
            ),
            _ => check("/streaming", json!("yes"), "expected true or false"),
        }
        for member in ["apiKeyRef", "models", "id"] {
            let mut entry = good.clone();
            entry.as_object_mut().unwrap().remove(member);
            let outcome = outcome(&directory, &with("/providers/1", entry));
            assert_eq!(outcome, format!("INVALID_CONFIG: providers[1].{member}: required"), "{kind}");
        }
        let outcome = outcome(&directory, &with("/providers/1", vendor(kind)));
        let expected = match kind {
            "openai-compatible" => "INVALID_CONFIG: providers[1].baseUrl: required",
            _ => "ok",
        };
        assert_eq!(outcome, expected, "{kind} without a base URL");
    }
    // The key comes from a file or from a variable; empty is missing.
    let missing = put(vendor("gemini"), "/apiKeyRef", json!({"env": "COUNTERSIGN_TEST_NO_SUCH_KEY"}));
    let outcome = outcome(&directory, &with("/providers/1", missing));
    assert!(
        outcome.starts_with("AUTH_REQUIRED: ") && outcome.contains("COUNTERSIGN_TEST_NO_SUCH_KEY"),
        "{outcome}"
    );
    for member in ["apiKeyRef", "baseUrl", "streaming"] {
        let outcome = outcome_of_scripted(&directory, member);
        assert!(outcome.contains("unknown member") && outcome.contains(member), "{outcome}");
    }
}

fn outcome_of_scripted(directory: &TempDir, member: &str) -> String {
    outcome(directory, &with(&format!("/providers/0/{member}"), json!({})))
}

#[test]
fn special_codes_are_used_where_the_contract_has_them() {
    let directory = directory();
    let path = directory.path();
    private(path, "loose", ANN.as_bytes());
    mode(path, "loose", 0o640);
    private(path, "large", &[b'a'; 65_537]);
    private(path, "largest", &[b'a'; 65_536]);
    private(path, "latin", b"\xe4\xf6\xfc");
    private(path, "short", &ANN.as_bytes()[..31]);
    private(path, "lines", format!("{ANN}\n{BOB}").as_bytes());
    private(path, "long", &[b'a'; 4097]);
    private(path, "empty", b" \n");
    fs::create_dir(path.join("folder")).unwrap();
    // The whole path is told, on one line.
    let no_file =
        |name: &str| format!("AUTH_REQUIRED: tokens[0].tokenRef.file: the file {}/{name}", path.display());
    let missing = no_file("missing does not exist");
    let tilde = no_file("~/a\\nb does not exist; ~ is not expanded");
    let token = |file: &str| with("/tokens/0/tokenRef", json!({"file": file}));
    let client = |url: &str| with("/clientUrl", json!(url));
    fs::write(path.join("huge"), [b'a'; 1_000_001]).unwrap();
    let tls = |certificate: &str, key: &str| json!({"certFile": certificate, "keyRef": {"file": key}});
    let cases = [
        ("SECRET_PERMISSIONS: tokens[0].tokenRef.file: others may use the file (mode 640)", token("loose")),
        ("SECRET_TOO_LARGE: tokens[0].tokenRef.file: the file is larger than 65536 bytes", token("large")),
        (
            "AUTH_REQUIRED: tokens[0].tokenRef: a token has 32 to 4096 characters; this one has 65536",
            token("largest"),
        ),
        ("SECRET_UNAVAILABLE: tokens[0].tokenRef.file: the file is not valid UTF-8", token("latin")),
        ("SECRET_UNAVAILABLE: tokens[0].tokenRef.file: not a regular file", token("folder")),
        (&missing, token("missing")),
        ("AUTH_REQUIRED: tokens[0].tokenRef.file: the file /nowhere/a does not exist", token("/nowhere/a")),
        (&tilde, token("~/a\nb")),
        (
            "AUTH_REQUIRED: tokens[0].tokenRef: a token has 32 to 4096 characters; this one has 0",
            token("empty"),
        ),
        (
            "AUTH_REQUIRED: tokens[0].tokenRef: a token has 32 to 4096 characters; this one has 31",
            token("short"),
        ),
        (
            "AUTH_REQUIRED: tokens[0].tokenRef: a token has 32 to 4096 characters; this one has 4097",
            token("long"),
        ),
        ("AUTH_REQUIRED: tokens[0].tokenRef: a token is one line", token("lines")),
        (
            "AUTH_REQUIRED: tokens[0].tokenRef.env: the variable COUNTERSIGN_TEST_NO_SUCH_VARIABLE is not set",
            with("/tokens/0/tokenRef", json!({"env": "COUNTERSIGN_TEST_NO_SUCH_VARIABLE"})),
        ),
        (
            "AUTH_REQUIRED: providers[1].apiKeyRef: the key is empty",
            with("/providers/1", put(compatible(), "/apiKeyRef", json!({"file": "empty"}))),
        ),
        ("TLS_REQUIRED: listen.host: ", with("/listen", json!({"host": "0.0.0.0"}))),
        ("TLS_REQUIRED: listen.host: ", with("/listen", json!({"host": "host.example"}))),
        ("INVALID_TLS: tls.certFile: cannot read ", with("/tls", tls("nowhere.pem", "key"))),
        ("INVALID_TLS: tls.certFile: not a regular file", with("/tls", tls("folder", "key"))),
        ("INVALID_TLS: tls.certFile: larger than 1000000 bytes", with("/tls", tls("huge", "key"))),
        ("INVALID_TLS: tls.keyRef.file: the file ", with("/tls", tls("cert.pem", "nowhere"))),
        (
            "SECRET_PERMISSIONS: tls.keyRef.file: others may use the file (mode 640)",
            with("/tls", tls("cert.pem", "loose")),
        ),
        ("INSECURE_TRANSPORT: clientUrl: ", client("http://host.example")),
        ("INSECURE_TRANSPORT: clientUrl: ", client("ftp://localhost")),
        ("INSECURE_TRANSPORT: clientUrl: ", client("https://user@host.example")),
        ("INSECURE_TRANSPORT: clientUrl: ", client("https://host.example?x")),
        ("INSECURE_TRANSPORT: clientUrl: ", client("https://host.example#x")),
    ];
    for (expected, config) in cases {
        let error = outcome(&directory, &config);
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
}

// Contract 6.1, 6.3: with a certificate any address may be listened on.
#[cfg(feature = "tls")]
#[test]
fn tls_opens_other_addresses() {
    let directory = directory();
    private(directory.path(), "tls.key", include_bytes!("../../../client/tests/it/tls/server.key.pem"));
    let tls = json!({"certFile": "cert.pem", "keyRef": {"file": "tls.key"}});
    for host in ["0.0.0.0", "::", "host.example", "127.0.0.1"] {
        let config = put(with("/listen", json!({"host": host})), "/tls", tls.clone());
        assert_eq!(outcome(&directory, &config), "ok", "{host}");
    }
    let config = HostConfig::parse(&with("/tls", tls).to_string(), directory.path()).unwrap();
    assert!(config.options().tls.is_some());
    for (certificate, key, expected) in [
        ("key", "tls.key", "INVALID_TLS: tls.certFile: there is no certificate in it"),
        ("cert.pem", "key", "INVALID_TLS: tls.keyRef: there is no private key in it"),
    ] {
        let tls = json!({"certFile": certificate, "keyRef": {"file": key}});
        let error = outcome(&directory, &with("/tls", tls));
        assert!(error.starts_with(expected), "{error}");
    }
}

// Law 9: the bound on connections leaves room for every run, every place in the queue, and decisions.
#[test]
fn connections_are_bounded_by_what_is_configured() {
    let directory = directory();
    let bound = |concurrency: Value| {
        let config = with("/concurrency", concurrency).to_string();
        HostConfig::parse(&config, directory.path()).unwrap().options().max_connections
    };
    assert_eq!(bound(json!({})), 10_240);
    assert_eq!(bound(json!({"total": 9_000})), 10_240);
    let many = json!({"total": 100_000, "queue": {"total": 100_000, "perSubject": 1}});
    assert_eq!(bound(many), 201_024);
}

// A person edits this text: an error says where in terms of an editor, and gives no advice for senders of requests.
#[test]
fn an_error_of_the_text_has_file_line_and_column() {
    let directory = directory();
    let path = directory.path().join("host.json");
    let cases = [
        ("{\n  \"version\": 1,\n}\n", ":3:1: expected a key"),
        ("{\"ä\": 1, x", ":1:10: expected a key"),
        ("{}\r\n{}", ":2:1: expected "),
        ("", ":1:1: expected a value"),
        ("[]", ": expected a JSON object"),
        ("{\"a\":[{\"b\":1,\"b\":1}]}", ": a repeated key at /a/0/b; name each member once"),
    ];
    for (text, expected) in cases {
        fs::write(&path, text).unwrap();
        let error = HostConfig::load(&path).unwrap_err().to_string();
        let expected = format!("INVALID_CONFIG: {}{expected}", path.display());
        assert!(error.starts_with(&expected) && !error.contains("; send"), "{expected}: {error}");
    }
    let error = HostConfig::parse("{\n,", directory.path()).unwrap_err().to_string();
    assert!(error.starts_with("INVALID_CONFIG: line 2, column 1: expected "), "{error}");
}

// Law 7: what the driver refuses of a tool is told with the tool's place in the list.
#[test]
fn a_tool_that_cannot_be_registered_is_named_with_its_field() {
    let directory = directory();
    let config = HostConfig::parse(&minimal().to_string(), directory.path()).unwrap();
    let register = |tools: &[(&str, &str)]| {
        let spec = |(name, schema): &(&str, &str)| ToolSpec::new(name, "Does it.", schema).unwrap();
        let tools = tools
            .iter()
            .map(|given| tool(spec(given), async |_, _| Ok(Output::json(&json!(null))?)))
            .collect();
        match configured_driver(&config, Extras { tools, ..Extras::default() }) {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                assert!(error.field().is_some(), "{error}");
                error.to_string()
            }
        }
    };
    let good = r#"{"type":"object"}"#;
    let not_an_object = "inputSchema: type: must allow \"object\", as the arguments of a call are one";
    assert_eq!(register(&[("a", good), ("b", "{}"), ("c", r#"{"type":["null","object"]}"#)]), "ok");
    assert_eq!(
        register(&[("a", good), ("b", good), ("a", good)]),
        "INVALID_CONFIG: tools[2].name: a is used twice"
    );
    for schema in [r#"{"type":"array"}"#, r#"{"type":["string","null"]}"#] {
        assert_eq!(
            register(&[("a", good), ("b", schema)]),
            format!("INVALID_CONFIG: tools[1].{not_an_object}")
        );
    }
    assert!(register(&[("a", r#"{"type":3}"#)]).starts_with("INVALID_CONFIG: tools[0].inputSchema: "));
    // The second of a name is told as such, whatever its schema is.
    assert_eq!(
        register(&[("a", good), ("a", r#"{"type":3}"#)]),
        "INVALID_CONFIG: tools[1].name: a is used twice"
    );
}

#[test]
fn a_text_that_is_not_exact_json_is_refused() {
    let directory = directory();
    let twice = r#"{"version":1,"version":1}"#;
    for text in ["", "{", "[]", "null", "{\"version\":1}}", "\u{feff}{}", twice, &"[".repeat(100_000)] {
        let error = HostConfig::parse(text, directory.path()).unwrap_err();
        assert_eq!(error.code().as_str(), "INVALID_CONFIG");
        assert!(error.to_string().starts_with("INVALID_CONFIG: "), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

// Contract 6.1: a regular file of at most 1,000,000 bytes, UTF-8; relative paths resolve against its directory.
#[test]
fn a_file_is_read_within_its_bounds() {
    let directory = directory();
    let path = directory.path().join("host.json");
    let text = minimal().to_string();
    fs::write(&path, format!("{text}{}", " ".repeat(1_000_000 - text.len()))).unwrap();
    HostConfig::load(&path).unwrap();
    let problem = |path: &Path| match HostConfig::load(path).unwrap_err() {
        StartError::File { reason, .. } => reason,
        other => other.to_string(),
    };
    fs::write(&path, format!("{text}{}", " ".repeat(1_000_001 - text.len()))).unwrap();
    assert_eq!(problem(&path), "larger than 1000000 bytes");
    fs::write(&path, b"{\"version\":\"\xff\"}").unwrap();
    assert_eq!(problem(&path), "not valid UTF-8");
    assert_eq!(problem(directory.path()), "not a regular file");
    assert!(problem(&directory.path().join("none")).contains("No such file"));
}

// Design 7: a program takes its own members out; without that they are refused.
#[test]
fn a_program_can_keep_members_of_its_own() {
    let directory = directory();
    let text = put(minimal(), "/tools", json!([{"name": "write", "n": 1}])).to_string();
    let text = text.replace("\"n\":1", "\"n\": 9007199254740993");
    let (_, own) = HostConfig::parse_with_extensions(&text, directory.path(), &["tools", "audit"]).unwrap();
    assert_eq!(own.keys().collect::<Vec<_>>(), ["tools"]);
    assert_eq!(own["tools"].text().matches("9007199254740993").count(), 1, "as it was written");
    let error = HostConfig::parse(&text, directory.path()).unwrap_err();
    assert_eq!(error.to_string(), "INVALID_CONFIG: tools: unknown member");
}

#[test]
fn secrets_are_not_shown() {
    let directory = directory();
    let config = put(minimal(), "/providers/1", compatible());
    let config = HostConfig::parse(&config.to_string(), directory.path()).unwrap();
    let shown = format!("{config:?} {:?}", config.options());
    assert!(!shown.contains(ANN) && !shown.contains("sk-key"), "{shown}");
    assert_eq!(config.options().tokens[0].token.expose_secret(), ANN, "trimmed at its end");
}

// From file to answer: what a configuration describes is what is served.
#[tokio::test]
async fn a_configured_host_serves() {
    let directory = directory();
    let config = put(
        with("/listen", json!({"port": 0})),
        "/approvals",
        json!({"interactive": true, "features": ["denial-feedback"]}),
    );
    let config = put(config, "/limits", json!({"maxSteps": 3}));
    let config = HostConfig::parse(&config.to_string(), directory.path()).unwrap();
    let driver = configured_driver(&config, Extras::default()).unwrap();
    let host = serve(driver, config.options()).await.unwrap();
    let mut peer = Peer::new(TcpStream::connect(host.local_addr()).await.unwrap());
    let answer = peer.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("x"))).await;
    assert_eq!(answer.json()["text"], "Hello.");
    let features = peer.ask(&Ask::get("/v1/protocol").token(ANN)).await.json()["features"].take();
    let features = features.as_array().unwrap();
    for (name, offered) in
        [("interactive-approvals", true), ("denial-feedback", true), ("approval-digest", false)]
    {
        assert_eq!(features.contains(&json!(name)), offered, "{name}");
    }
    host.close().await;
}

/// What the reference page says must be true: its complete example is read, and every field is described.
#[test]
fn the_reference_page_is_right() {
    const PAGE: &str = include_str!("../../../../docs/configuration.md");
    const OF_THE_PROGRAM: [&str; 4] = ["tools", "audit", "metrics", "code"];
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("secrets")).unwrap();
    private(directory.path(), "secrets/app.token", ANN.as_bytes());
    private(directory.path(), "secrets/reviewer.token", BOB.as_bytes());
    private(directory.path(), "secrets/person.token", format!("{ANN}{BOB}").as_bytes());
    private(directory.path(), "secrets/model.key", b"key");
    let examples: Vec<_> =
        PAGE.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 2, "the smallest and the complete one");
    for example in &examples {
        let read = HostConfig::parse_with_extensions(example, directory.path(), &OF_THE_PROGRAM);
        let (config, _) = read.unwrap_or_else(|error| panic!("{error}"));
        let operations = config.open_operations().unwrap();
        configured_driver(&config, Extras { operations, ..Extras::default() }).unwrap();
    }
    let complete: Value = serde_json::from_str(examples[1]).unwrap();
    let mut fields = Vec::new();
    collect_fields("", &complete, &mut fields);
    for field in fields {
        assert!(PAGE.contains(&format!("`{field}`")), "{field} is not described");
    }
}

/// The paths of all fields, without what scripts, schemas and environments hold.
fn collect_fields(path: &str, value: &Value, fields: &mut Vec<String>) {
    let foreign = [
        "concurrency.subjects",
        "providers[].scripts",
        "providers[].default",
        "providers[].capabilities",
        "tools[].inputSchema",
        "tools[].env",
    ];
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let here = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields.push(here.clone());
                if foreign.contains(&here.as_str()) {
                    continue;
                }
                collect_fields(&here, value, fields);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_fields(&format!("{path}[]"), item, fields);
            }
        }
        _ => {}
    }
}
