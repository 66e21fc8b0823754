//! What Linux says about a process, and the bound on open files.

use std::fs;
use std::io;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Clock ticks a second in /proc/PID/stat: fixed for programs on every Linux that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resident memory in bytes, by `smaps_rollup`.
///
/// # Errors
/// The process has gone, or this is not Linux.
pub fn resident_bytes(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("Rss:")?.split_whitespace().next()?.parse::<f64>().ok())
        .with_context(|| format!("no Rss in {path}"))?;
    Ok(kilobytes * 1024.0)
}

/// Processor time that was used so far, in seconds.
///
/// # Errors
/// The process has gone, or this is not Linux.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The second field is the program's name in brackets, which may hold anything; utime and stime are fields 14 and 15.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let used = ticks(11).zip(ticks(12)).with_context(|| format!("no times in {path}"))?;
    Ok((used.0 + used.1) / TICKS_PER_SECOND)
}

/// Allows this process as many open files as the system lets it have.
///
/// # Errors
/// The system refuses.
pub fn raise_file_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
