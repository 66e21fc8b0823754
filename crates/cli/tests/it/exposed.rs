//! A host as the network meets it: TLS, and more connections than it can have.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::support::{Host, Place, countersign, finish, run, until, wait};

const CA: &str = include_str!("../../../client/tests/it/tls/ca.pem");
pub(crate) const CERTIFICATE: &str = include_str!("../../../client/tests/it/tls/trusted.pem");
const ELSEWHERE: &str = include_str!("../../../client/tests/it/tls/elsewhere.pem");
const STRANGER: &str = include_str!("../../../client/tests/it/tls/stranger.pem");
pub(crate) const KEY: &str = include_str!("../../../client/tests/it/tls/server.key.pem");

pub(crate) fn secured(certificate: &str) -> Place {
    let place = Place::new();
    fs::write(place.path("ca.pem"), CA).unwrap();
    fs::write(place.path("cert.pem"), certificate).unwrap();
    fs::write(place.path("key.pem"), KEY).unwrap();
    fs::set_permissions(place.path("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    place.edit(|config| {
        config["tls"] = json!({"certFile": "cert.pem", "keyRef": {"file": "key.pem"}});
    });
    place
}

// Contract 6.1, 10.5: a reviewed call over TLS; without trust in its authority, or under another name, nothing is sent.
#[test]
fn a_run_over_tls() {
    let place = secured(CERTIFICATE);
    let checked = run(&["serve", "--check", "--config", &place.arg("host.json")]);
    assert_eq!(checked.status, Some(0), "{}", checked.err);
    let host = Host::start(&place);
    assert!(host.url.starts_with("https://127.0.0.1:"), "{}", host.url);
    let trusting = |host: &Host<'_>| {
        let mut client = host.client(&["--json", "--decide", "approve", "Propose"]);
        finish(client.env("SSL_CERT_FILE", place.arg("ca.pem")))
    };
    let ended = trusting(&host);
    assert_eq!(ended.status, Some(0), "{}{}", ended.err, ended.out);
    assert_eq!(place.effects().len(), 1);
    let ended = host.run(&["--json", "--decide", "approve", "Propose"]);
    assert_ne!(ended.status, Some(0), "an authority that the system does not know");
    assert!(ended.err.contains("SSL_CERT_FILE"), "{}", ended.err);
    drop(host);
    for certificate in [ELSEWHERE, STRANGER] {
        let other = secured(certificate);
        let host = Host::start(&other);
        let ended = trusting(&host);
        assert_ne!(ended.status, Some(0), "{}", ended.out);
        assert!(other.effects().is_empty() && other.audited().is_empty());
    }
}

#[test]
fn a_pair_that_cannot_be_used_is_found_before_anything_is_served() {
    let place = secured(CERTIFICATE);
    fs::write(place.path("cert.pem"), KEY).unwrap();
    for more in [&["--check"][..], &[]] {
        let ended = run(&[&["serve", "--config", &place.arg("host.json")][..], more].concat());
        assert_eq!(ended.status, Some(2), "{}", ended.out);
        assert!(ended.err.starts_with("INVALID_TLS: tls.certFile: "), "{}", ended.err);
    }
}

// Issue of the design, law 9: connections that send nothing, more than the process may have files, keep nobody out.
#[test]
fn more_connections_than_files() {
    let place = Place::new();
    // Standard output is the host's, so that its first line can be read.
    let serve = format!("ulimit -n 100; exec \"$0\" serve --config '{}'", place.arg("host.json"));
    let program = countersign(&[]).get_program().to_owned();
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", &serve])
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(place.path("serve.log")).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url =
        line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{}", place.log())).to_owned();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let host = Host { place: &place, child, url };
    let mut waiting = host
        .client(&["--json", "--decide", "approve", "Propose"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More by the command of `docs/security.md`, whose shell may have as many files.
    let many = std::env::var("COUNTERSIGN_SILENT").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let silent: Vec<_> = (0..many).map(|_| TcpStream::connect(&address)).collect();
    assert!(silent.iter().filter(|peer| peer.is_ok()).count() > 100);
    // Somebody with something to say is heard at once, and so is a whole reviewed run.
    let mut peer = TcpStream::connect(&address).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    peer.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let ended = host.run(&["--json", "--decide", "approve", "Propose"]);
    assert_eq!(ended.status, Some(0), "{}{}", ended.err, ended.out);
    assert_eq!(wait(&mut waiting).code(), Some(0), "a run that was there before goes on");
    assert_eq!(place.effects().len(), 2);
    assert!(place.log().contains("at most 50 connections at once"), "{}", place.log());
    until("the log of a full host", || {
        place.log().contains("as many connections as there may be").then_some(())
    });
    drop(silent);
    assert_eq!(host.stop().code(), Some(0));
}

// Contract 6, said where somebody who changed the file looks.
#[test]
fn a_change_needs_a_restart_and_the_log_says_so() {
    let place = Place::new();
    let host = Host::start(&place);
    assert!(place.log().contains("read once: a change of it needs a restart"), "{}", place.log());
    place.edit(|config| config["approvals"] = json!({"interactive": false}));
    assert_eq!(host.run(&["--json", "--decide", "approve", "Propose"]).status, Some(0));
    assert_eq!(host.stop().code(), Some(0));
}
