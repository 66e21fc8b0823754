//! Files that the process may have open: every connection is one, and what runs and records need must be left.

use countersign_host::Options;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The process's own: the program, its log, the audit file, stores.
const OWN: u64 = 64;
/// What a run may need beside its connection: one to its model's vendor, and the pipes of a command.
const OF_A_RUN: u64 = 8;

/// The options with as many connections as the process can have. The usual limit is low for the sake of old programs, and
/// a program may raise it up to another; that is done as far as it is needed.
pub(super) fn fit(mut options: Options) -> Options {
    let runs = u64::from(options.concurrency.total).saturating_mul(OF_A_RUN);
    let others = OWN.saturating_add(runs);
    let connections = u64::try_from(options.max_connections).unwrap_or(u64::MAX);
    let limit = getrlimit(Resource::Nofile);
    let allowed = raised(limit, others.saturating_add(connections));
    let left = room(allowed, others, connections);
    if left < connections {
        tracing::warn!(
            "at most {left} connections at once, as the process may have {allowed} files open; ulimit -n raises it"
        );
        options.max_connections = usize::try_from(left).unwrap_or(usize::MAX);
    }
    options
}

/// The limit after it was raised towards `needed`.
fn raised(limit: Rlimit, needed: u64) -> u64 {
    let Some(current) = limit.current else { return u64::MAX };
    let target = needed.min(limit.maximum.unwrap_or(u64::MAX));
    if target <= current {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(target), ..limit }) {
        Ok(()) => target,
        Err(_) => current,
    }
}

/// How many connections there is room for. Where it is so tight that nothing would be left they get a half: not all runs
/// that are configured need all that they may.
fn room(allowed: u64, others: u64, connections: u64) -> u64 {
    allowed.saturating_sub(others).max(allowed / 2).clamp(1, connections.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Law 9: connections never take what runs and records need, where there is enough for both.
    #[test]
    fn connections_leave_room() {
        for (allowed, others, connections, expected) in [
            (u64::MAX, 320, 10_240, 10_240),
            (10_560, 320, 10_240, 10_240),
            (10_559, 320, 10_240, 10_239),
            (1_024, 320, 10_240, 704),
            (256, 320, 10_240, 128),
            (1, 320, 10_240, 1),
            (0, 320, 10_240, 1),
        ] {
            assert_eq!(room(allowed, others, connections), expected, "{allowed} {others} {connections}");
        }
    }
}
