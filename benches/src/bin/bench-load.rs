//! The load client: does one [`Job`], which is its argument, and prints what it found.
//!
//! One thread and blocking sockets: a decision costs it one write and one read, so that on a machine of two processors
//! the server is what is measured.
#![allow(clippy::print_stdout, reason = "its answer is its output")]

use std::fs::OpenOptions;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use countersign_bench::job::{
    Durable, Grown, Growth, Job, Measured, Memory, Review, Reviewed, Synced, Times,
};
use countersign_bench::peer::{Peer, echo};
use countersign_bench::process::{cpu_seconds, raise_file_limit, resident_bytes};
use countersign_bench::stats::summary;
use countersign_bench::wire::{Exchange, Waiting};

/// Bytes of the mail's body wherever its size is not the question.
const BYTES: usize = 160;
/// Runs that a server is warmed up with.
const WARM_UP: usize = 200;
/// The size of the record whose write and sync are the bound of a durable decision.
const RECORD: [u8; 600] = [b'x'; 600];

fn main() -> Result<()> {
    raise_file_limit()?;
    let job = std::env::args().nth(1).context("no job")?;
    let found = match serde_json::from_str(&job)? {
        Job::Review(job) => serde_json::to_string(&review(&job)?),
        Job::Growth(job) => serde_json::to_string(&growth(&job)?),
        Job::Memory(job) => serde_json::to_string(&memory(&job)?),
        Job::Durable(job) => serde_json::to_string(&durable(&job)?),
    };
    println!("{}", found?);
    Ok(())
}

/// A server with its waiting runs.
struct Side {
    peer: Peer,
    request: Vec<u8>,
    decide: Exchange,
    waiting: Vec<Waiting>,
    next: usize,
    scratch: Vec<u8>,
    started: Vec<f64>,
    decided: Vec<f64>,
    completed: Vec<f64>,
}

impl Side {
    /// Warms the server up: some runs, all decided.
    fn new(peer: Peer, bytes: usize) -> Result<Self> {
        let mut side = Self {
            peer,
            request: peer.dialect.start(bytes),
            decide: Exchange::open(peer.address)?,
            waiting: Vec::new(),
            next: 0,
            scratch: Vec::new(),
            started: Vec::new(),
            decided: Vec::new(),
            completed: Vec::new(),
        };
        // Large calls: fewer, so that the warm-up does not become the measurement.
        side.grow(if bytes > BYTES { WARM_UP / 10 } else { WARM_UP })?;
        side.burst(1)?;
        side.started.clear();
        Ok(side)
    }

    fn grow(&mut self, to: usize) -> Result<()> {
        while self.waiting.len() < to {
            let run = self.start()?;
            self.waiting.push(run);
        }
        // The server closes connections that are idle for long.
        self.decide = Exchange::open(self.peer.address)?;
        Ok(())
    }

    fn start(&mut self) -> Result<Waiting> {
        let before = Instant::now();
        let run = Waiting::start(&self.peer, &self.request, &mut self.scratch)?;
        self.started.push(micros(before));
        Ok(run)
    }

    /// Decides the next run and waits for its end; the figures are kept. Gives back the decision's body.
    fn decide_next(&mut self, step: usize) -> Result<usize> {
        let at = self.next % self.waiting.len();
        self.next += step;
        let run = &mut self.waiting[at];
        let request = self.peer.dialect.decide(&run.decision);
        let before = Instant::now();
        self.decide.post(&request)?;
        self.decided.push(micros(before));
        run.completed(&mut self.scratch)?;
        self.completed.push(micros(before));
        Ok(at)
    }

    /// As [`decide_next`](Self::decide_next), then another run takes the place, so that as many wait as before.
    fn replace_next(&mut self, step: usize) -> Result<()> {
        let at = self.decide_next(step)?;
        self.waiting[at] = self.start()?;
        Ok(())
    }

    /// Decides all that wait, `connections` at a time, and reads each to its end: runs a second.
    fn burst(&mut self, connections: usize) -> Result<f64> {
        let requests: Vec<Vec<u8>> =
            self.waiting.iter().map(|run| self.peer.dialect.decide(&run.decision)).collect();
        let mut exchanges = Vec::new();
        for _ in 0..connections {
            exchanges.push(Exchange::open(self.peer.address)?);
        }
        let before = Instant::now();
        for (index, request) in requests.iter().enumerate() {
            let exchange = &mut exchanges[index % connections];
            if index >= connections {
                exchange.answered()?;
            }
            exchange.send(request)?;
        }
        let open = connections.min(requests.len());
        for index in requests.len() - open..requests.len() {
            exchanges[index % connections].answered()?;
        }
        for mut run in self.waiting.drain(..) {
            run.completed(&mut self.scratch)?;
        }
        Ok(requests.len() as f64 / before.elapsed().as_secs_f64())
    }
}

fn review(job: &Review) -> Result<Reviewed> {
    let mut sides =
        [Side::new(job.product, BYTES)?, Side::new(job.floor, BYTES)?, Side::new(job.lean, BYTES)?];
    for index in 0..job.waiting {
        for turn in 0..3 {
            let run = sides[(index + turn) % 3].start()?;
            sides[(index + turn) % 3].waiting.push(run);
        }
    }
    for side in &mut sides {
        side.decide = Exchange::open(side.peer.address)?;
    }
    let mut echoes = Vec::new();
    let mut echoing = Exchange::open(job.floor.address)?;
    // One after the other, spread over all that wait; those that were decided are left out of the burst.
    let step = (job.waiting / job.decided).max(1);
    for index in 0..job.decided {
        for turn in 0..4 {
            match (index + turn) % 4 {
                3 => {
                    let request = echo(&sides[0].waiting[index * step].decision);
                    let before = Instant::now();
                    echoing.post(&request)?;
                    echoes.push(micros(before));
                }
                side => drop(sides[side].decide_next(step)?),
            }
        }
    }
    let mut bursts = [0.0; 3];
    for turn in 0..3 {
        let which = (job.round + turn) % 3;
        let side = &mut sides[which];
        let mut index = 0;
        side.waiting.retain(|_| {
            index += 1;
            !((index - 1) % step == 0 && (index - 1) / step < job.decided)
        });
        bursts[which] = side.burst(job.connections)?;
    }
    let [product, floor, lean] = sides;
    let times = |side: Side, burst| Times {
        start: summary(side.started),
        decide: summary(side.decided),
        completed: summary(side.completed),
        burst,
    };
    Ok(Reviewed {
        product: times(product, bursts[0]),
        floor: times(floor, bursts[1]),
        lean: times(lean, bursts[2]),
        echo: summary(echoes),
    })
}

fn growth(job: &Growth) -> Result<Grown> {
    let mut sides = Vec::new();
    for [few, many] in [job.product, job.floor] {
        for (peer, count) in [(few, job.few), (many, job.many)] {
            let mut side = Side::new(peer, BYTES)?;
            side.grow(count)?;
            sides.push(side);
        }
    }
    for side in &mut sides {
        side.decide = Exchange::open(side.peer.address)?;
    }
    let step = (job.many / job.decided).max(1);
    for index in 0..job.decided {
        for turn in 0..4 {
            let which = (index + turn) % 4;
            sides[which].replace_next(if which % 2 == 0 { 1 } else { step })?;
        }
    }
    let waiting = sides[1].waiting.len();
    // Each must answer 200 and end with `run.completed`, else this fails.
    sides[1].burst(16)?;
    let decided = |index: usize| summary(sides[index].decided.clone());
    Ok(Grown {
        product: [decided(0), decided(1)],
        floor: [decided(2), decided(3)],
        completed: [waiting, job.many],
    })
}

fn memory(job: &Memory) -> Result<Measured> {
    let mut side = Side::new(job.peer, job.bytes)?;
    let rest = || sleep(Duration::from_secs_f64(job.settle));
    rest();
    let base = resident_bytes(job.peer.pid)?;
    side.grow(job.from)?;
    rest();
    let first = resident_bytes(job.peer.pid)?;
    side.grow(job.to)?;
    rest();
    let second = resident_bytes(job.peer.pid)?;
    let mut idle_percent = 0.0;
    if job.idle > 0.0 {
        let (before, used) = (Instant::now(), cpu_seconds(job.peer.pid)?);
        sleep(Duration::from_secs_f64(job.idle));
        idle_percent = (cpu_seconds(job.peer.pid)? - used) / before.elapsed().as_secs_f64() * 100.0;
    }
    Ok(Measured { per_run: (second - first) / (job.to - job.from) as f64, base, idle_percent })
}

fn durable(job: &Durable) -> Result<Synced> {
    let mut sides = [Side::new(job.memory, BYTES)?, Side::new(job.durable, BYTES)?];
    for side in &mut sides {
        side.grow(10)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(job.folder.join("sync.log"))?;
    let mut syncs = Vec::new();
    for index in 0..job.decided {
        for turn in 0..3 {
            match (index + turn) % 3 {
                2 => {
                    let before = Instant::now();
                    file.write_all(&RECORD)?;
                    file.sync_data()?;
                    syncs.push(micros(before));
                }
                side => sides[side].replace_next(1)?,
            }
        }
    }
    let [memory, durable] = sides;
    Ok(Synced { memory: summary(memory.decided), durable: summary(durable.decided), sync: summary(syncs) })
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
