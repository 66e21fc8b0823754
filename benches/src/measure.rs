//! One round: every scenario once, the product and its bound by turns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign_bench::job::{Durable, Grown, Growth, Job, Measured, Memory, Review, Reviewed, Synced};
use countersign_bench::peer::Dialect;
use countersign_bench::process::resident_bytes;
use countersign_bench::stats::summary;

use crate::figure::{Figure, Point};
use crate::servers::{self, Server, load};
use crate::{append, matching};

/// Bytes of the reviewed mail's body: small, and large.
const SMALL: usize = 160;
const LARGE: usize = 100_000;
/// Connections of the burst.
const CONNECTIONS: usize = 16;
/// How many runs wait beside `many` (P4).
const FEW: usize = 10;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Runs of the review scenario, and how many of them are decided one by one.
    review: [usize; 2],
    /// Runs at the two readings of memory, and of the great crowd.
    memory: [usize; 2],
    /// The same with large calls.
    large: [usize; 2],
    /// Decisions with few and with many waiting.
    growth: usize,
    /// Decisions with a durable audit.
    durable: usize,
    /// Comparisons of each kind.
    comparisons: usize,
    /// Starts of the binary.
    starts: usize,
    /// Seconds of each measurement of the disk.
    disk: f64,
    /// Seconds of rest before memory is read.
    settle: f64,
    /// Seconds over which an idle host is watched.
    idle: f64,
}

impl Scale {
    /// For figures.
    pub(crate) const FULL: Self = Self {
        review: [3_000, 300],
        memory: [1_000, 9_000],
        large: [200, 1_000],
        growth: 500,
        durable: 300,
        comparisons: 101,
        starts: 20,
        disk: 1.0,
        settle: 2.0,
        idle: 60.0,
    };
    /// For a look.
    pub(crate) const QUICK: Self = Self {
        review: [600, 200],
        memory: [200, 1_200],
        large: [20, 120],
        growth: 200,
        durable: 100,
        comparisons: 21,
        starts: 5,
        disk: 0.3,
        settle: 0.5,
        idle: 3.0,
    };
}

/// What is measured, and where.
pub(crate) struct Bench {
    folder: PathBuf,
    programs: PathBuf,
    scale: Scale,
    only: Vec<String>,
}

impl Bench {
    pub(crate) fn new(place: PathBuf, scale: Scale, only: Vec<String>) -> Result<Self> {
        let folder = place.join("work");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { folder, programs: servers::programs()?, scale, only })
    }

    /// A folder for files that are measured: on a disk, not in memory.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The figures of one round, those that were asked for.
    pub(crate) fn round(&self, round: usize) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        if self.wants(&["P1", "P2", "P5", "P13"]) {
            figures.extend(self.review(round)?);
        }
        if self.wants(&["P3", "P14"]) {
            figures.extend(self.memory(round)?);
        }
        if self.wants(&["P3b"]) {
            figures.push(self.large()?);
        }
        if self.wants(&["P4", "All"]) {
            figures.extend(self.growth()?);
        }
        if self.wants(&["P6"]) {
            figures.extend(matching::measure(self.scale.comparisons)?);
        }
        if self.wants(&["P7"]) {
            figures.extend(append::measure(&self.folder, Duration::from_secs_f64(self.scale.disk), round)?);
        }
        if self.wants(&["P8"]) {
            figures.push(self.durable()?);
        }
        if self.wants(&["P15"]) {
            figures.extend(self.start()?);
        }
        figures.retain(|figure| self.wants(&[family(figure.id)]));
        Ok(figures)
    }

    fn wants(&self, ids: &[&str]) -> bool {
        self.only.is_empty() || ids.iter().any(|id| self.only.iter().any(|only| only == id))
    }

    /// P1, P2, P5, P13.
    fn review(&self, round: usize) -> Result<Vec<Figure>> {
        let product = Server::product(&self.programs, SMALL, None)?;
        let (floor, lean) = (Server::floor(&self.programs)?, Server::lean(&self.programs)?);
        let [waiting, decided] = self.scale.review;
        let job = Job::Review(Review {
            product: product.peer,
            floor: floor.peer,
            lean: lean.peer,
            waiting,
            decided,
            connections: CONNECTIONS,
            round,
        });
        let Reviewed { product, floor, lean, echo } = load(&self.programs, &job)?;
        Ok(vec![
            Figure::ratio("P1", product.decide, echo).least(floor.decide.p50 / echo.p50),
            Figure::ratio("P2", product.completed, echo).least(floor.completed.p50 / echo.p50),
            Figure::ratio("P5", Point::of(product.burst), Point::of(floor.burst))
                .least(lean.burst / floor.burst),
            Figure::ratio("P13", product.start, floor.start).least(lean.start.p50 / floor.start.p50),
        ])
    }

    /// P3 and P14. The idle minute is watched once.
    fn memory(&self, round: usize) -> Result<Vec<Figure>> {
        let idle = if round == 0 && self.wants(&["P14"]) { self.scale.idle } else { 0.0 };
        let one = |server: Server, idle| self.memory_of(&server, SMALL, self.scale.memory, idle);
        let product = one(Server::product(&self.programs, SMALL, None)?, idle)?;
        let mut figures = Vec::new();
        if idle > 0.0 {
            figures.push(Figure::of("P14", product.idle_percent));
        }
        if self.wants(&["P3"]) {
            let floor = one(Server::floor(&self.programs)?, 0.0)?.per_run;
            let lean = one(Server::lean(&self.programs)?, 0.0)?.per_run;
            let product = Point::of(product.per_run);
            figures.push(Figure::ratio("P3", product, Point::of(floor)).least(lean / floor));
            figures.push(Figure::ratio("P3 lean", product, Point::of(lean)).least(1.0));
        }
        Ok(figures)
    }

    /// P3b: bytes of memory for each byte of the argument.
    fn large(&self) -> Result<Figure> {
        let one = |server: Server| self.memory_of(&server, LARGE, self.scale.large, 0.0);
        let product = one(Server::product(&self.programs, LARGE, None)?)?.per_run;
        let floor = one(Server::floor(&self.programs)?)?.per_run;
        let lean = one(Server::lean(&self.programs)?)?.per_run;
        Ok(Figure {
            id: "P3b",
            product: Point::of(product),
            bound: Some(Point::of(floor)),
            value: product / LARGE as f64,
            bound_value: Some(lean / LARGE as f64),
        })
    }

    fn memory_of(&self, server: &Server, bytes: usize, counts: [usize; 2], idle: f64) -> Result<Measured> {
        let [from, to] = counts;
        let settle = self.scale.settle;
        let job = Job::Memory(Memory { peer: server.peer, bytes, from, to, settle, idle });
        load(&self.programs, &job)
    }

    /// P4, and that all of a great crowd are decided, complete and leave nothing behind.
    fn growth(&self) -> Result<Vec<Figure>> {
        let product = || Server::product(&self.programs, SMALL, None);
        let (few, mut many) = (product()?, product()?);
        let floors = [Server::floor(&self.programs)?, Server::floor(&self.programs)?];
        let job = Job::Growth(Growth {
            product: [few.peer, many.peer],
            floor: [floors[0].peer, floors[1].peer],
            few: FEW,
            many: self.scale.memory[1],
            decided: self.scale.growth,
        });
        let Grown { product: [few_waiting, many_waiting], floor, completed } = load(&self.programs, &job)?;
        let left = many.pending()?;
        drop(few);
        Ok(vec![
            Figure::ratio("P4", many_waiting, few_waiting).least(floor[1].p50 / floor[0].p50),
            Figure {
                product: Point::of(completed[0] as f64),
                bound: Some(Point::of(completed[1] as f64)),
                ..Figure::of("All", (completed[1] - completed[0] + left) as f64)
            },
        ])
    }

    /// P8: what a durable audit adds beyond its one sync.
    fn durable(&self) -> Result<Figure> {
        let path = self.folder.join("host-audit.jsonl");
        let _ = fs::remove_file(&path);
        let memory = Server::product(&self.programs, SMALL, None)?;
        let durable = Server::product(&self.programs, SMALL, Some(&path))?;
        let job = Job::Durable(Durable {
            memory: memory.peer,
            durable: durable.peer,
            folder: self.folder.clone(),
            decided: self.scale.durable,
        });
        let Synced { memory, durable, sync } = load(&self.programs, &job)?;
        let value = (durable.p50 - sync.p50) / memory.p50;
        Ok(Figure { value, ..Figure::ratio("P8", durable, memory) })
    }

    /// P15: the binary itself, with the configuration that `countersign init` writes.
    fn start(&self) -> Result<Vec<Figure>> {
        let binary = self.folder.join("countersign");
        fs::copy(self.programs.join("countersign"), &binary)?;
        let stripped = Command::new("strip").arg(&binary).status().context("strip (binutils)")?;
        ensure!(stripped.success(), "strip: {stripped}");
        let size = fs::metadata(&binary)?.len() as f64 / 1e6;
        let config = self.folder.join("init");
        let _ = fs::remove_dir_all(&config);
        let init = Command::new(&binary).arg("init").arg(&config).stdout(Stdio::null()).status()?;
        ensure!(init.success(), "countersign init: {init}");
        let file = config.join("host.json");
        let text = fs::read_to_string(&file)?;
        let any_port = text.replace("\"port\": 7433", "\"port\": 0");
        ensure!(any_port != text, "countersign init writes another port");
        fs::write(&file, any_port)?;
        let (mut times, mut resident) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.starts {
            let mut command = Command::new(&binary);
            command.args(["serve", "--config"]).arg(&file).env("RUST_LOG", "warn");
            let before = Instant::now();
            let host = Server::start(command, Dialect::Product)?;
            times.push(before.elapsed().as_secs_f64() * 1e3);
            sleep(Duration::from_millis(100));
            resident.push(resident_bytes(host.peer.pid)? / 1e6);
        }
        let (times, resident) = (summary(times), summary(resident));
        Ok(vec![
            Figure { product: times.into(), ..Figure::of("P15 start", times.p50) },
            Figure::of("P15 size", size),
            Figure { product: resident.into(), ..Figure::of("P15 memory", resident.p50) },
        ])
    }
}

/// The first word of a figure's id.
pub(crate) fn family(id: &str) -> &str {
    id.split(' ').next().unwrap_or(id)
}
