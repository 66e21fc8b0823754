//! Where and when the figures were taken.

use std::fmt;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use countersign_approval_core::clock::Timestamp;
use countersign_bench::stats::Summary;
use serde::Serialize;

/// What the machine was doing when a round began.
#[derive(Debug, Serialize)]
pub(crate) struct Conditions {
    pub(crate) at: String,
    /// Over one minute.
    pub(crate) load: f64,
    /// One append of 600 bytes and fdatasync, in microseconds.
    pub(crate) sync: Summary,
}

impl Conditions {
    pub(crate) fn now(sync: Summary) -> Result<Self> {
        let text = fs::read_to_string("/proc/loadavg")?;
        let load = text.split(' ').next().and_then(|load| load.parse().ok()).context("the load average")?;
        Ok(Self { at: now()?, load, sync })
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, load, sync } = self;
        write!(f, "{at}, load average {load:.2}, fdatasync {:.0} us (p99 {:.0})", sync.p50, sync.p99)
    }
}

/// What was measured with what.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processors: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    /// Name and version of what product and bounds are built from.
    pub(crate) crates: Vec<String>,
}

impl Machine {
    /// `crates`: whose versions are told.
    pub(crate) fn here(crates: &[&str]) -> Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let rustc = Command::new("rustc").arg("--version").output()?.stdout;
        let lock =
            fs::read_to_string("Cargo.lock").context("Cargo.lock: start this in the workspace's root")?;
        Ok(Self {
            processors: std::thread::available_parallelism()?.get(),
            processor: processor.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            rustc: String::from_utf8_lossy(&rustc).trim().to_owned(),
            crates: crates.iter().filter_map(|name| version(&lock, name)).collect(),
        })
    }
}

fn version(lock: &str, name: &str) -> Option<String> {
    let (_, after) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(format!("{name} {}", after.split('"').next()?))
}

fn now() -> Result<String> {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(Timestamp::from_millis(i64::try_from(millis)?).to_string())
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"hyper\"\nversion = \"1.8.1\"\n";
        assert_eq!(version(lock, "hyper").as_deref(), Some("hyper 1.8.1"));
        assert_eq!(version(lock, "tokio"), None);
    }
}
