//! Seeded histories of the whole: several clients and reviewers of one host, in memory and in paused time.
//!
//! Runs are approved, denied, cancelled, expired, given up, read slowly or not at all; decisions are repeated, altered
//! and sent by the wrong people; clocks jump, sinks fail, the host closes. Everything that can be seen from outside is
//! a [`Fact`](journal::Fact) in the order in which it happened, and `check` reads the laws off the facts afterwards
//! (reliability C.2: I1 to I7, I9, I10; R1).
//!
//! `COUNTERSIGN_SEED=n` repeats one history; `COUNTERSIGN_SECONDS` (default 3) says how long to go on. Every history
//! is planned by its seed; in those with a sink on other threads the seed does not fix which thread comes first.

mod check;
mod dice;
mod journal;
mod play;

use std::env;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use check::Seen;

#[test]
fn the_laws_hold_in_every_history() {
    if let Some(seed) = number("COUNTERSIGN_SEED") {
        history(seed);
        return;
    }
    let limit = Duration::from_secs(number("COUNTERSIGN_SECONDS").unwrap_or(3));
    let (start, first) = (Instant::now(), fresh_seed());
    let (mut tried, mut seen) = (0, Seen::default());
    while tried == 0 || start.elapsed() < limit {
        let seed = first.wrapping_add(tried);
        match catch_unwind(AssertUnwindSafe(|| history(seed))) {
            Ok(more) => seen.add(&more),
            Err(panic) => {
                let _ = writeln!(std::io::stderr(), "repeat it with COUNTERSIGN_SEED={seed}");
                resume_unwind(panic);
            }
        }
        tried += 1;
    }
    let _ = writeln!(std::io::stderr(), "{tried} histories of the whole from seed {first}: {seen:?}");
    if tried >= 200 {
        seen.assert_varied();
    }
}

fn history(seed: u64) -> Seen {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let played = runtime.block_on(play::play(seed));
    check::check(&played)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap())
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // Short enough to be typed, and another one each time.
    u64::try_from(since.as_millis()).unwrap() % 1_000_000_000 * 1_000
}
