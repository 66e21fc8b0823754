//! The least of HTTP/1.0 that asks a server on this machine.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// A whole answer may take this long.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The status and body of a GET, or of a POST if there is a body.
pub(crate) fn ask(port: u16, path: &str, key: &str, body: Option<&Value>) -> Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let method = if body.is_empty() { "GET" } else { "POST" };
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).with_context(|| format!("{method} {path}: not an HTTP answer"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parses_an_answer() {
        assert_eq!(parse("HTTP/1.1 503 Busy\r\nA: b\r\n\r\n{}"), Some((503, "{}".to_owned())));
        assert_eq!(parse("HTTP/1.1 503 Busy\r\n"), None);
        assert_eq!(parse("nonsense\r\n\r\n"), None);
    }
}
