//! The sandbox and what is measured beside it: a process an engine, asked by turns.

mod engine;

use std::path::Path;

use anyhow::{Context, Result, bail};
use countersign_bench::sandbox::{Ask, Hostile, Told};
use countersign_bench::stats::{Summary, summary};

use crate::figure::{Figure, Point};
use crate::report::Beside;
use crate::sandboxes::engine::Engine;
use crate::servers;

const RAW: &str = "raw engine";
const HERE: &str = "in process";
const WORKER: &str = "worker";
const EMSCRIPTEN: &str = "quickjs-emscripten 0.32.0";
const MONTY: &str = "pydantic-monty 1.4.0";
/// Calls of the programs.
const FEW: usize = 16;
const MANY: usize = 1_000;
/// What a hostile program may compute, in milliseconds.
const BUDGET_MS: u64 = 500;

/// How much of everything.
struct Scale {
    trivial: usize,
    few: usize,
    many: usize,
    spawns: usize,
    /// Runs that wait at the two readings, with and without their engines.
    hot: [usize; 2],
    evicted: [usize; 2],
}

const FULL: Scale =
    Scale { trivial: 300, few: 200, many: 20, spawns: 20, hot: [100, 500], evicted: [500, 2_500] };
const QUICK: Scale = Scale { trivial: 50, few: 30, many: 5, spawns: 3, hot: [20, 100], evicted: [100, 400] };

/// All engines that are there.
pub(crate) struct Sandboxes {
    engines: Vec<Engine>,
    /// Those that are not, and why.
    pub(crate) absent: Vec<String>,
    scale: Scale,
    only: Vec<String>,
}

/// What a round found.
type Found = (Vec<Figure>, Vec<Beside>);

impl Sandboxes {
    pub(crate) fn start(place: &Path, quick: bool, only: Vec<String>) -> Result<Self> {
        let programs = servers::programs()?;
        let mut engines = vec![
            Engine::start(RAW, &programs.join("bench-qjs"), &[])?,
            Engine::start(HERE, &programs.join("bench-sandbox"), &[])?,
            Engine::start(WORKER, &programs.join("bench-sandbox"), &["worker"])?,
        ];
        let mut absent = Vec::new();
        let peers = place.join("peers");
        for (name, peer) in
            [(EMSCRIPTEN, engine::emscripten(EMSCRIPTEN, &peers)), (MONTY, engine::monty(MONTY, &peers))]
        {
            match peer {
                Ok(engine) => engines.push(engine),
                Err(why) => absent.push(format!("{name}: {why:#}")),
            }
        }
        let scale = if quick { QUICK } else { FULL };
        Ok(Self { engines, absent, scale, only })
    }

    pub(crate) fn round(&mut self, round: usize) -> Result<Found> {
        let (mut figures, mut beside) = (Vec::new(), Vec::new());
        if self.wants("P9") {
            self.environments(round, &mut figures, &mut beside)?;
        }
        if self.wants("P9") || self.wants("P10") {
            self.calls(round, &mut figures, &mut beside)?;
        }
        if self.wants("Hot") {
            let ask = Ask::Hot { from: self.scale.hot[0], to: self.scale.hot[1] };
            let (mine, raw) = (self.fresh(HERE, &ask)?, self.fresh(RAW, &ask)?);
            figures.push(Figure { bound: Some(Point::of(raw)), ..Figure::of("Hot", mine) });
        }
        if self.wants("Evicted") {
            let ask = Ask::Evicted { from: self.scale.evicted[0], to: self.scale.evicted[1] };
            figures.push(Figure::of("Evicted", self.fresh(HERE, &ask)?));
        }
        // Once: the programs take what they are given.
        if self.wants("Hostile") && round == 0 {
            self.hostile(&mut figures, &mut beside)?;
        }
        figures.retain(|figure| self.wants(crate::measure::family(figure.id)));
        Ok((figures, beside))
    }

    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }

    fn environments(
        &mut self,
        round: usize,
        figures: &mut Vec<Figure>,
        beside: &mut Vec<Beside>,
    ) -> Result<()> {
        let count = self.scale.trivial;
        let told =
            self.all("new environment, trivial program, its end", round, &Ask::Trivial { count }, beside)?;
        let lean = self.ask(RAW, &Ask::Lean { count })?;
        if let (Some(mine), Some(raw), Told::Times(lean)) = (of(&told, HERE), of(&told, RAW), lean) {
            figures.push(Figure::ratio("P9", mine, raw).least(lean.p50 / raw.p50));
        }
        let count = self.scale.spawns;
        self.all("new pool with its worker, trivial program, its end", round, &Ask::Spawn { count }, beside)?;
        Ok(())
    }

    fn calls(&mut self, round: usize, figures: &mut Vec<Figure>, beside: &mut Vec<Beside>) -> Result<()> {
        let ask = Ask::Calls { calls: FEW, count: self.scale.few };
        let few = self.all("new environment, 16 calls, its end", round, &ask, beside)?;
        let ask = Ask::Calls { calls: MANY, count: self.scale.many };
        let many = self.all("the same with 1,000 calls", round, &ask, beside)?;
        if let (Some(mine), Some(other)) = (of(&few, HERE), of(&few, EMSCRIPTEN)) {
            let value = other.p50 / mine.p50;
            figures.push(Figure { value, ..Figure::ratio("P9 calls", mine, other) });
        }
        let each = |engine: &str| {
            let (few, many) = (of(&few, engine)?, of(&many, engine)?);
            Some((many.p50 - few.p50) / (MANY - FEW) as f64)
        };
        for engine in [RAW, HERE, WORKER, EMSCRIPTEN, MONTY] {
            if let Some(value) = each(engine) {
                let point = Point::of(value);
                beside.push(Beside { what: "each further call".into(), engine, point, unit: "us" });
            }
        }
        if let (Some(mine), Some(raw)) = (each(HERE), each(RAW)) {
            figures.push(Figure { bound: Some(Point::of(raw)), ..Figure::of("P10", mine) });
        }
        Ok(())
    }

    fn hostile(&mut self, figures: &mut Vec<Figure>, beside: &mut Vec<Beside>) -> Result<()> {
        for engine in [HERE, WORKER] {
            let Told::Hostile(table) = self.ask(engine, &Ask::Hostile { budget_ms: BUDGET_MS })? else {
                bail!("{engine} has no hostile programs");
            };
            let mut worst = f64::NEG_INFINITY;
            for Hostile { program, ended, took_ms } in table {
                worst = worst.max(took_ms - BUDGET_MS as f64);
                // A bar would end the cell of the table.
                let what = format!("`{}`: {ended}", program.replace('|', "\\|"));
                beside.push(Beside { what, engine, point: Point::of(took_ms), unit: "ms" });
            }
            if engine == WORKER {
                let product = Point::of(worst + BUDGET_MS as f64);
                let bound = Some(Point::of(BUDGET_MS as f64));
                figures.push(Figure { product, bound, ..Figure::of("Hostile", worst) });
            }
        }
        Ok(())
    }

    /// Asks every engine that can answer, in an order that changes with the round.
    fn all(
        &mut self,
        what: &str,
        round: usize,
        ask: &Ask,
        beside: &mut Vec<Beside>,
    ) -> Result<Vec<(&'static str, Summary)>> {
        let mut found = Vec::new();
        let count = self.engines.len();
        for turn in 0..count {
            let engine = &mut self.engines[(turn + round) % count];
            let times = match engine.ask(ask)? {
                Told::Times(times) => times,
                Told::Samples(samples) => summary(samples),
                _ => continue,
            };
            found.push((engine.name, times));
        }
        // The order of the columns does not change.
        for name in self.engines.iter().map(|engine| engine.name) {
            if let Some(times) = of(&found, name) {
                beside.push(Beside { what: what.to_owned(), engine: name, point: times.into(), unit: "us" });
            }
        }
        Ok(found)
    }

    fn ask(&mut self, name: &str, ask: &Ask) -> Result<Told> {
        self.engines.iter_mut().find(|engine| engine.name == name).context("no such engine")?.ask(ask)
    }

    /// Memory, in a process that has done nothing else.
    fn fresh(&self, name: &str, ask: &Ask) -> Result<f64> {
        let engine = self.engines.iter().find(|engine| engine.name == name).context("no such engine")?;
        match engine.again()?.ask(ask)? {
            Told::Bytes(bytes) => Ok(bytes),
            _ => bail!("{name} tells no memory"),
        }
    }
}

fn of(found: &[(&'static str, Summary)], name: &str) -> Option<Summary> {
    found.iter().find(|(engine, _)| *engine == name).map(|(_, times)| *times)
}
