//! Random histories of the registry against a model, with the invariants I1 to I7 and I10 after every step.
//!
//! `COUNTERSIGN_SEED=n` repeats one history; `COUNTERSIGN_SECONDS` (default 2) says how long to go on. The first seed
//! is taken from the clock and printed; the histories of a run have successive seeds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may stop at what it does not expect, and says what it did"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod model;
mod world;

use world::World;

#[test]
fn random_histories_keep_the_invariants() {
    // Laws 1, 2, 4, 5; reliability R1, I1 to I7, I10.
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = variable("COUNTERSIGN_SEED") {
        println!("seed {seed}, 1 history, {} steps", history(seed));
        return;
    }
    let time = Duration::from_secs(variable("COUNTERSIGN_SECONDS").unwrap_or(2));
    let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let (start, mut histories, mut steps) = (Instant::now(), 0, 0);
    while start.elapsed() < time || histories < 20 {
        steps += history(first + histories);
        histories += 1;
    }
    println!("seed {first}, {histories} histories, {steps} steps");
}

/// Plays one history; says how many steps it took.
fn history(seed: u64) -> u64 {
    let _blame = Blame(seed);
    let mut random = Random(seed);
    let steps = 10 + random.below(60);
    let mut world = World::new(&mut random);
    for _ in 0..steps {
        world.step(&mut random);
        world.check();
    }
    world.end(&mut random);
    steps
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
}
