//! `serve --check --probe` against a real server: it tells a good provider, a wrong key and a wrong port apart.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::review::{PROVIDERS, provider};
use super::server::{Server, write_secret};

pub(crate) fn tells_them_apart(binary: &Path, folder: &Path, model: &Server) -> Result<()> {
    let wrong_key = "not-the-key-of-this-server-0123456789";
    write_secret(&folder.join("wrong-key"), wrong_key)?;
    // Nobody listens there any more.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let url = model.base_url();
    let nobody = format!("http://127.0.0.1:{port}/v1");
    let elsewhere = format!("{url}/nothing/here");
    let mut providers = Vec::new();
    let mut expected = Vec::new();
    for (id, kind) in PROVIDERS {
        for (what, url, key, verdict) in [
            ("good", &url, "key", "good, 1 model"),
            ("key", &url, "wrong-key", "wrong key: the server does not accept it (HTTP 401)"),
            ("port", &nobody, "key", "unreachable: nobody listens there"),
            // It says the same of a path as others of a model.
            ("path", &elsewhere, "key", "wrong "),
        ] {
            let id = format!("{id}-{what}");
            expected.push(format!("provider {id} ({kind}): {verdict}"));
            providers.push(provider(&id, kind, url, key));
        }
    }
    let config = json!({
        "version": 1,
        "providers": providers,
        "tokens": [{"id": "app", "subject": "app", "tokenRef": {"file": "token"}}],
    });
    let file = folder.join("probe.json");
    fs::write(&file, config.to_string())?;
    let output = Command::new(binary).args(["serve", "--check", "--probe", "--config"]).arg(file).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(1), "the probe ended with {}: {told}", output.status);
    for line in expected {
        ensure!(told.lines().any(|told| told.starts_with(&line)), "no line `{line}` in:\n{told}");
    }
    ensure!(!told.contains(wrong_key) && !told.contains(&model.key), "the probe shows a key");
    println!("probe: good providers, wrong keys, wrong ports and wrong paths are told apart, for each kind");
    Ok(())
}
