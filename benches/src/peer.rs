//! A server under load, and what is said to it: the real protocol to the product, the least to a bound.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The product's bearer token. It guards nothing: the host lives for one measurement, on loopback.
pub const TOKEN: &str = "bench-bench-bench-bench-bench-bench-0001";
/// The gated tool.
pub const TOOL: &str = "send_mail";
/// Its schema: the product validates each call.
pub const SCHEMA: &str = r#"{"type":"object","properties":{"to":{"type":"string"},"subject":{"type":"string"},"body":{"type":"string"}},"required":["to","subject","body"],"additionalProperties":false}"#;

/// A server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Peer {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it speaks.
    pub dialect: Dialect,
    /// Its process.
    pub pid: u32,
}

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// Protocol 1.0, with a token, interactive review and an expiry.
    Product,
    /// Three paths without headers that matter: `/run`, `/decide`, `/echo`.
    Bound,
}

/// The arguments of the call under review; `bytes` is the length of the mail's body.
pub fn arguments(bytes: usize) -> String {
    let body = "x".repeat(bytes);
    format!(r#"{{"to":"ops@example.com","subject":"Quarterly numbers","body":"{body}"}}"#)
}

impl Dialect {
    /// The request that starts a run. A bound is sent the call that it will put to a person; the product's own model
    /// proposes it.
    pub fn start(self, bytes: usize) -> Vec<u8> {
        match self {
            Self::Product => {
                let body = format!(
                    r#"{{"provider":"bench","model":"bench","input":"Send the numbers.","tools":["{TOOL}"],"approvals":{{"mode":"interactive","idlePolicy":"pause","expiresAfterMs":3600000}}}}"#
                );
                self.post("/v1/runs", "accept: text/event-stream\r\n", &body)
            }
            Self::Bound => {
                let arguments = arguments(bytes);
                self.post(
                    "/run",
                    "",
                    &format!(r#"{{"id":"call-1","name":"{TOOL}","arguments":{arguments}}}"#),
                )
            }
        }
    }

    /// The request that carries a decision.
    pub fn decide(self, decision: &str) -> Vec<u8> {
        let path = match self {
            Self::Product => "/v1/approvals/decisions",
            Self::Bound => "/decide",
        };
        self.post(path, "", decision)
    }

    /// The body of the decision that approves what a frame of `approval.requested` asks. The call goes back in the very
    /// text in which it came.
    ///
    /// # Errors
    /// The frame asks nothing.
    pub fn approve(self, frame: &str) -> Result<String> {
        let data =
            frame.lines().find_map(|line| line.strip_prefix("data: ")).context("a frame without data")?;
        let asked = match self {
            Self::Product => serde_json::from_str::<Event<'_>>(data)?.approval,
            Self::Bound => serde_json::from_str(data)?,
        };
        let Asked { approval_id, run_id, call } = asked;
        let call = call.get();
        ensure!(call.contains(TOOL), "another call");
        Ok(format!(
            r#"{{"approvalId":"{approval_id}","runId":"{run_id}","call":{call},"decision":"approve"}}"#
        ))
    }

    fn post(self, path: &str, headers: &str, body: &str) -> Vec<u8> {
        let own = match self {
            Self::Product => format!("authorization: Bearer {TOKEN}\r\nagenticdriver-version: 1.0\r\n"),
            Self::Bound => String::new(),
        };
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{own}{headers}content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// The request that has the bound `floor` read a body as JSON and write it back.
pub fn echo(body: &str) -> Vec<u8> {
    Dialect::Bound.post("/echo", "", body)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    approval: Asked<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    approval_id: &'a str,
    run_id: &'a str,
    #[serde(borrow)]
    call: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_goes_back_as_it_came() {
        let call = r#"{"id":"c","name":"send_mail","arguments":{"n":1.0}}"#;
        let asked = format!(r#"{{"approvalId":"a","runId":"r","call":{call}}}"#);
        let expected = format!(r#"{{"approvalId":"a","runId":"r","call":{call},"decision":"approve"}}"#);
        let bound = format!("event: approval.requested\ndata: {asked}\n\n");
        assert_eq!(Dialect::Bound.approve(&bound).unwrap(), expected);
        let product = format!("id: 4\ndata: {{\"type\":\"x\",\"approval\":{asked}}}\n\n");
        assert_eq!(Dialect::Product.approve(&product).unwrap(), expected);
        assert!(Dialect::Product.approve(&bound).is_err());
    }
}
