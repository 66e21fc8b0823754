//! Real programs in Node and Python, with nothing but their standard libraries, review a call over a real socket.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use countersign_client::Client;
use countersign_host::serve;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::AWKWARD;
use crate::contract::sized;
use crate::support::{ANN, ROOMY, World, options, question, rest, reviewed};

/// Runs the program with the event on standard input; it answers with `<status> <outcome or code>`. None if there is
/// no such program.
async fn review(program: &str, script: &str, url: &str, how: &str, event: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/encodings");
    let spawned = Command::new(program)
        .arg(folder.join(script))
        .args([url, how])
        .env("REVIEW_TOKEN", ANN)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{program}: {error}"),
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(event.as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{program} {script} {how}: {}", output.status);
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

async fn reviews(program: &str, script: &str, spellings: &[&str]) {
    let largest = sized(128_000);
    for arguments in [AWKWARD, &largest] {
        let world = World::proposing(arguments);
        let host = serve(world.driver.clone(), options(ROOMY)).await.unwrap();
        let client = Client::builder(host.url(), ANN.into()).build().unwrap();
        for how in spellings {
            let mut events = client.stream(&reviewed("write")).await.unwrap();
            let (seen, _) = question(&mut events).await;
            let event = seen.last().unwrap().to_json();
            let Some(answer) = review(program, script, host.url(), how, &event).await else {
                // Past the capture of the test harness: that this was not tested must be seen.
                let _ = writeln!(std::io::stderr(), "SKIPPED: there is no {program} here to review with");
                return;
            };
            assert_eq!(answer, "200 approved", "{program} {how}");
            assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
        }
        assert_eq!(world.effects.texts(), vec![arguments.to_owned(); spellings.len()], "{program}");
        host.close().await;
    }
}

// Scenarios B13 and L9, contract 4.5: `JSON.parse` and `JSON.stringify` in between.
#[tokio::test]
async fn node_reviews_a_call() {
    reviews("node", "review.mjs", &["plain", "escaped", "reversed"]).await;
}

// The same with Python's `json`, which keeps integers and floats apart.
#[tokio::test]
async fn python_reviews_a_call() {
    reviews("python3", "review.py", &["plain", "utf8", "reversed"]).await;
}
