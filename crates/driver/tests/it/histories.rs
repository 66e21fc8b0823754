//! Random histories of the real driver under paused time: several runs at once, people who decide rightly and wrongly,
//! clocks that jump, sinks that fail, readers that are slow or leave. What happened is judged from outside, over the
//! events that were taken, the records that were accepted and the log of the tools.
//!
//! `COUNTERSIGN_SEED=n` repeats one history; `COUNTERSIGN_SECONDS` (default 3) says how long to go on. The first seed
//! is taken from the clock and printed; the histories of a run have successive seeds. A history with a blocking sink
//! has true threads in it, so that its seed fixes what is tried but not every interleaving.

#![allow(clippy::print_stdout, reason = "it says which histories it played")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use countersign_approval_core::review::IdlePolicy;

use crate::support::{Bench, rest, reviewed, words};

mod disk;
mod journal;
mod judge;
mod keyed;
mod play;
mod scene;

/// How often something was seen.
type Seen = BTreeMap<&'static str, u64>;

/// What must be seen in any long row of histories; otherwise the judge has nothing to judge.
const WANTED: [&str; 19] = [
    "gated call ran",
    "approved",
    "denied",
    "cancelled",
    "expired",
    "decision taken",
    "APPROVAL_NOT_FOUND",
    "APPROVAL_MISMATCH",
    "FORBIDDEN",
    "INVALID_APPROVAL",
    "APPROVAL_AUDIT_FAILED",
    "stranger refused",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "uncertain",
    "idle timeout",
    "reader left",
    "wall clock expired it",
];

#[test]
fn random_histories_keep_the_invariants() {
    // Laws 1, 2, 4, 5, 6, 8; reliability R1, I1 to I8, I10; scenarios C3, D1, D5, D9, H1, H3, H5.
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut seen = Seen::new();
    if let Some(seed) = variable("COUNTERSIGN_SEED") {
        let steps = history(seed, &mut seen);
        println!("seed {seed}, 1 history, {steps} steps: {seen:?}");
        return;
    }
    let time = Duration::from_secs(variable("COUNTERSIGN_SECONDS").unwrap_or(3));
    let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let (start, mut histories, mut steps) = (Instant::now(), 0, 0);
    while start.elapsed() < time || histories < 20 {
        steps += history(first + histories, &mut seen);
        histories += 1;
    }
    println!("seed {first}, {histories} histories, {steps} steps: {seen:?}");
    let missing: Vec<_> = WANTED.iter().filter(|wanted| !seen.contains_key(*wanted)).collect();
    assert!(missing.is_empty() || histories < 300, "never seen: {missing:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_at_once_begins_all_the_same() {
    // Contract 3.2, 10.2: clients refuse a stream that does not begin with `run.started`. Found by a random history.
    let bench = Bench::new([]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    stream.cancel();
    assert_eq!(words(&rest(&mut stream).await), ["run.started", "run.cancelled CANCELLED"]);
}

/// Plays one history and judges it; says how many entries its journal has.
fn history(seed: u64, seen: &mut Seen) -> u64 {
    let _blame = Blame(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut random = Random(seed);
    // Time that nobody waits for passes at once, so a run that hangs is found at once too.
    let played = async { tokio::time::timeout(Duration::from_secs(86_400), play::play(&mut random)).await };
    let (entries, plans) = runtime.block_on(played).expect("nothing waits for ever");
    judge::judge(&entries, &plans, seen);
    entries.len() as u64
}

/// Says which history failed.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed: repeat it with COUNTERSIGN_SEED={}", self.0);
        }
    }
}

/// SplitMix64: every seed is as good as its neighbour.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A generator of its own for whoever runs beside.
    fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
