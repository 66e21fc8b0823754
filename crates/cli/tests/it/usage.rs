//! The command line, `init`, and configurations that are wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Host, Place, countersign, finish, run};

#[test]
fn only_what_is_built_is_offered() {
    let help = run(&["--help"]);
    assert_eq!(help.status, Some(0));
    for command in ["demo", "init", "serve", "run", "run-code", "audit"] {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command}: {}", help.out);
    }
    assert!(!help.out.contains("resume"), "{}", help.out);
    assert!(!run(&["demo", "--help"]).out.contains("--code"));
}

#[test]
fn wrong_usage_is_2_and_says_why() {
    let place = Place::new();
    let token = place.arg("token");
    let empty = place.arg("empty");
    fs::write(&empty, "\n").unwrap();
    let good = ["run", "--provider", "mock", "--model", "demo"];
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["resume", "x"], "unrecognized"),
        (&["demo", "--decide", "yes"], "invalid value"),
        (&["audit", "verify", "x", "--head", "abc"], "64 lower-case hex digits"),
        (&["audit", "show", "x", "--run", "abc"], "UUID"),
        (&["--url", "http://127.0.0.1:1", "--token-file", "absent", "--decide", "deny", "hi"], "absent"),
        (&["--url", "http://127.0.0.1:1", "--token-file", &empty, "--decide", "deny", "hi"], "empty"),
        (&["--url", "http://example.org", "--token-file", &token, "--decide", "deny", "hi"], "base URL"),
        (&["--url", "http://127.0.0.1:1", "--token-file", &token, "--decide", "deny", ""], "input"),
        (&["--url", "http://127.0.0.1:1", "--token-file", &token, "--tools", "a b", "hi"], "tool name"),
        (&["--url", "http://127.0.0.1:1", "--token-file", &token, "--expires-after-ms", "0", "hi"], "0"),
        // Without a terminal and without an answer nothing is sent: nobody listens at that port.
        (&["--url", "http://127.0.0.1:1", "--token-file", &token, "--tools", "a, b", "hi"], "--decide"),
        (
            &["--url", "http://127.0.0.1:1", "--token-file", &token, "--tools", "a", "--json", "hi"],
            "--decide",
        ),
        (&["--url", "http://127.0.0.1:1", "--token-file", "absent", "--tools", "a", "hi"], "absent"),
    ];
    for (args, reason) in cases {
        let args: Vec<&str> = if args.first() == Some(&"--url") {
            good.iter().chain(*args).copied().collect()
        } else {
            args.to_vec()
        };
        let ended = run(&args);
        assert_eq!(ended.status, Some(2), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(reason), "{args:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{args:?}");
    }
}

#[test]
fn init_writes_what_only_its_owner_reads_and_overwrites_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("my host");
    let arg = folder.to_str().unwrap();
    let first = run(&["init", arg]);
    assert_eq!(first.status, Some(0), "{}", first.err);
    let mode = |name: &str| folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("token"), mode("host.json")), (0o700, 0o600, 0o600));
    let token = fs::read_to_string(folder.join("token")).unwrap();
    assert_eq!(token.trim().len(), 64);
    // The printed commands are words of a shell.
    assert!(first.out.contains(&format!("countersign serve --config '{arg}/host.json'")), "{}", first.out);
    assert!(first.out.contains(&format!("--token-file '{arg}/token'")), "{}", first.out);
    assert!(!first.out.contains(token.trim()));

    let again = run(&["init", arg]);
    assert_eq!(again.status, Some(2));
    assert!(again.err.contains("there already"), "{}", again.err);
    assert_eq!(fs::read_to_string(folder.join("token")).unwrap(), token);
    let below = run(&["init", parent.path().join("a/b").to_str().unwrap()]);
    assert_eq!(below.status, Some(2), "{}", below.err);
}

#[test]
fn a_good_configuration_is_good_and_starts_nothing() {
    let place = Place::new();
    let checked = run(&["serve", "--check", "--config", &place.arg("host.json")]);
    assert_eq!(checked.status, Some(0), "{}", checked.err);
    assert!(checked.out.ends_with(": good\n"), "{}", checked.out);
    assert!(!place.path("audit.jsonl").exists());
}

// Law 7: what is wrong is found before anything is served, with its code and its field.
#[test]
fn a_wrong_configuration_names_code_and_field() {
    let cases: &[(fn(&mut Value), &str)] = &[
        (|c| c["tokens"][0]["approveTool"] = json!([]), "INVALID_CONFIG: tokens[0].approveTool: "),
        (|c| c["metrics"] = json!(false), "INVALID_CONFIG: metrics: expected true"),
        (|c| c["metrics"] = json!({"tokenRef": {"file": "token"}}), "INVALID_CONFIG: metrics.tokenRef: "),
        (|c| c["log"] = json!({}), "INVALID_CONFIG: log.arguments: required"),
        (|c| c["listen"]["host"] = json!("0.0.0.0"), "TLS_REQUIRED: listen.host: "),
        (|c| c["tools"] = json!({}), "INVALID_CONFIG: tools: expected an array"),
        (|c| c["tools"][0] = json!(3), "INVALID_CONFIG: tools[0]: expected an object"),
        (|c| c["tools"][0]["cwd"] = json!("x"), "INVALID_CONFIG: tools[0].cwd: unknown member"),
        (|c| c["tools"][0]["name"] = json!("save proposal"), "INVALID_CONFIG: tools[0].name: "),
        (
            |c| c["tools"][0]["description"] = json!(null),
            "INVALID_CONFIG: tools[0].description: expected a string",
        ),
        (|c| c["tools"][0]["inputSchema"] = json!([]), "INVALID_CONFIG: tools[0].inputSchema: "),
        (|c| c["tools"][0]["inputSchema"] = json!({"type": 3}), "INVALID_CONFIG: tools[0].inputSchema: "),
        (
            |c| drop(c["tools"][0].as_object_mut().unwrap().remove("requiresApproval")),
            "requiresApproval: required",
        ),
        (
            |c| c["tools"][0]["requiresApproval"] = json!("yes"),
            "tools[0].requiresApproval: expected true or false",
        ),
        (|c| c["tools"][0]["command"] = json!("cat"), "tools[0].command: expected an array"),
        (|c| c["tools"][0]["command"] = json!([]), "tools[0].command: expected a program"),
        (|c| c["tools"][0]["command"] = json!(["cat", 3]), "tools[0].command[1]: expected a string"),
        (|c| c["tools"][0]["command"] = json!(["cat", "a\0b"]), "tools[0].command[1]: it holds a NUL"),
        (
            |c| c["tools"][0]["command"] = json!(["no-such-program-here"]),
            "tools[0].command: there is no program",
        ),
        (|c| c["tools"][0]["command"] = json!(["./host.json"]), "tools[0].command: there is no program"),
        (|c| c["tools"][0]["timeoutMs"] = json!(0), "tools[0].timeoutMs: expected an integer from 1"),
        (|c| c["tools"][0]["env"] = json!({"A-B": "x"}), "tools[0].env: a name must match"),
        (
            |c| c["tools"][0]["env"] = json!({"COUNTERSIGN_SUBJECT": "x"}),
            "tools[0].env: names that begin with",
        ),
        (|c| c["tools"][0]["env"] = json!({"A": 1}), "tools[0].env.A: expected a string"),
        (
            |c| {
                let tool = c["tools"][0].clone();
                c["tools"].as_array_mut().unwrap().push(tool)
            },
            "INVALID_CONFIG: tools[1].name: save_proposal is used twice",
        ),
        (
            |c| c["tokens"][0]["approveTools"] = json!(["save_propsal"]),
            "INVALID_CONFIG: tokens[0].approveTools[0]: no tool \"save_propsal\" is configured (there are: save_proposal)",
        ),
        (
            |c| c["tokens"][0]["tools"] = json!(["save_proposal", "other"]),
            "INVALID_CONFIG: tokens[0].tools[1]: no tool \"other\" is configured",
        ),
        (
            |c| drop(c.as_object_mut().unwrap().remove("tools")),
            "INVALID_CONFIG: tokens[0].tools[0]: no tool \"save_proposal\" is configured (there are: none)",
        ),
        (
            |c| c["tools"][0]["inputSchema"] = json!({"type": "array"}),
            "INVALID_CONFIG: tools[0].inputSchema: type: must allow",
        ),
        // What opening the audit file would find.
        (|c| c["audit"]["file"] = json!("no/such/folder/audit.jsonl"), "INVALID_CONFIG: audit.file: cannot "),
        (|c| c["audit"]["file"] = json!("."), "INVALID_CONFIG: audit.file: cannot open "),
        (|c| c["audit"]["file"] = json!("token"), "INVALID_CONFIG: audit.file: "),
        (|c| c["audit"] = json!("audit.jsonl"), "INVALID_CONFIG: audit: expected an object"),
        (|c| c["audit"]["path"] = json!("x"), "INVALID_CONFIG: audit.path: unknown member"),
        (|c| c["audit"]["file"] = json!(""), "INVALID_CONFIG: audit.file: "),
    ];
    for (change, reason) in cases {
        let place = Place::new();
        place.edit(change);
        for args in [&["serve", "--check", "--config"][..], &["serve", "--config"]] {
            let ended = finish(countersign(args).arg(place.path("host.json")));
            assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{reason}: {}", ended.err);
            let last = ended.err.lines().last().unwrap();
            assert!(last.contains(reason), "expected {reason}\nfound {last}");
        }
    }
}

// The check reads the audit file, names it where it is broken, and changes nothing, not even what a start would mend.
#[test]
fn a_check_reads_the_audit_file() {
    let place = Place::new();
    let host = Host::start(&place);
    let check = || run(&["serve", "--check", "--config", &place.arg("host.json")]);
    assert_eq!(host.run(&["--decide", "deny", "x"]).status, Some(3));
    // A host is at work with it.
    assert_eq!(check().status, Some(0), "{}", check().err);
    assert_eq!(host.stop().code(), Some(0));

    let file = place.path("audit.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    for (text, status) in
        [(good.clone() + "{\"n\":3,", 0), (good.replace("denied", "approved") + &good, 2), (String::new(), 0)]
    {
        fs::write(&file, &text).unwrap();
        let ended = check();
        assert_eq!(ended.status, Some(status), "{}", ended.err);
        let named = format!("INVALID_CONFIG: audit.file: {}: line 3: ", place.arg("audit.jsonl"));
        assert!(status == 0 || ended.err.starts_with(&named), "{}", ended.err);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn tools_that_nobody_could_approve_are_named() {
    let place = Place::new();
    place.edit(|config| drop(config.as_object_mut().unwrap().remove("approvals")));
    let ended = run(&["serve", "--check", "--config", &place.arg("host.json")]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let warns = |text: &str| text.contains("no `approvals`") && text.contains("save_proposal");
    assert!(ended.err.starts_with("warning: ") && warns(&ended.err), "{}", ended.err);
    assert_eq!(Host::start(&place).stop().code(), Some(0));
    assert!(place.log().contains("WARN") && warns(&place.log()), "{}", place.log());
}

/// Contract 7.6: a token may bring tools of its own, and whoever may decide about them is told so by name.
#[test]
fn tools_of_the_application_can_be_approved() {
    for (approve, warned) in [(json!(["save_proposal", "pick"]), false), (json!(["save_proposal"]), true)] {
        let place = Place::new();
        place.edit(|config| {
            config["applicationTools"] = json!({"enabled": true});
            config["tokens"][0]["applicationTools"] = json!([{"name": "pick"}]);
            config["tokens"][0]["approveTools"] = approve;
        });
        let ended = run(&["serve", "--check", "--config", &place.arg("host.json")]);
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        assert_eq!(
            ended.err.contains("`approveTools`") && ended.err.contains("pick"),
            warned,
            "{}",
            ended.err
        );
        assert_eq!(Host::start(&place).stop().code(), Some(0));
        assert_eq!(place.log().contains("`approveTools`"), warned, "{}", place.log());
    }
    let place = Place::new();
    place.edit(|config| {
        config["applicationTools"] = json!({"enabled": true});
        config["tokens"][0]["applicationTools"] = json!([{"name": "pick"}]);
        config["tokens"][0]["tools"] = json!(["save_proposal", "pick"]);
    });
    let ended = run(&["serve", "--check", "--config", &place.arg("host.json")]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.err.contains("tokens[0].tools[1]: no tool \"pick\" is configured"), "{}", ended.err);
}

#[test]
fn what_only_a_start_finds_is_2_too() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let place = Place::new();
    place.edit(|config| config["listen"]["port"] = port.into());
    let ended = run(&["serve", "--config", &place.arg("host.json")]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("LISTEN_FAILED: listen: "), "{}", ended.err);
}
