//! P7: durable records a second of the audit file and of the least group commit, in one folder by turns.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use countersign_approval_core::audit::{AuditRecord, AuditSink};
use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ApprovalId, CallId, ProviderId, RunId, Subject, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_bench::peer::{TOOL, arguments};
use countersign_bench::stats::{Summary, median, summary};
use countersign_driver::system::SystemClock;
use countersign_store::audit_file::{AuditFile, verify};
use uuid::Uuid;

use crate::figure::{Figure, Point};

const WRITERS: usize = 64;
/// Parts of the measurement with many writers.
const SLICES: u32 = 3;
/// So that a line of the file has about 600 bytes.
const BODY_BYTES: usize = 40;
/// What the preallocated file has room for; it is written in a circle.
const PREALLOCATED: u64 = 8 << 20;

/// Records a second with many writers, and how long one writer waits alone. `round` says who goes first.
pub(crate) fn measure(folder: &Path, time: Duration, round: usize) -> Result<Vec<Figure>> {
    let line = line_bytes(folder)?;
    let (mut products, mut raws) = (Vec::new(), Vec::new());
    // In slices, so that a slow moment of the disk meets both.
    for slice in 0..2 * SLICES {
        let time = time / SLICES;
        if (slice as usize + round).is_multiple_of(2) {
            products.push(product(folder, WRITERS, time)?);
        } else {
            raws.push(raw(folder, WRITERS, time, line)?);
        }
    }
    let alone = alone(folder, time, line)?;
    Ok(vec![
        Figure::ratio("P7 together", Point::of(median(products)), Point::of(median(raws))),
        Figure::ratio("P7 alone", alone.product, alone.append).least(alone.sized.p50 / alone.append.p50),
    ])
}

/// Microseconds of one append and fdatasync: what the disk takes at this minute.
pub(crate) fn sync_latency(folder: &Path, time: Duration) -> Result<Summary> {
    let path = folder.join("sync.log");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        latencies.push(timed(|| append(&mut file, &[b'x'; 600]))?);
    }
    std::fs::remove_file(&path)?;
    Ok(summary(latencies))
}

/// One writer, one sync a record, in microseconds.
struct Alone {
    product: Summary,
    append: Summary,
    /// Into a file that has its size already.
    sized: Summary,
}

fn alone(folder: &Path, time: Duration, line: usize) -> Result<Alone> {
    let paths = ["audit.jsonl", "sync.log", "sized.log"].map(|name| folder.join(name));
    let [audit, appended, sized] = &paths;
    let _ = std::fs::remove_file(audit);
    let (audit, _) = AuditFile::open(audit, Arc::new(SystemClock::new()))?;
    let mut appended = OpenOptions::new().create(true).append(true).open(appended)?;
    let sized = File::create(sized)?;
    for at in 0..PREALLOCATED >> 20 {
        sized.write_all_at(&vec![0; 1 << 20], at << 20)?;
    }
    sized.sync_all()?;
    let (record, raw, mut at) = (record()?, vec![b'x'; line], 0);
    let mut latencies: [Vec<f64>; 3] = Default::default();
    let start = Instant::now();
    for turn in 0_usize.. {
        if start.elapsed() > time {
            break;
        }
        // Each goes after each of the others as often.
        let order: [usize; 3] = if turn.is_multiple_of(2) { [0, 1, 2] } else { [2, 1, 0] };
        for which in order {
            latencies[which].push(match which {
                0 => timed(|| audit.record(&record).map_err(|error| anyhow!(error)))?,
                1 => timed(|| append(&mut appended, &raw))?,
                _ => timed(|| {
                    at = (at + line as u64) % (PREALLOCATED - line as u64);
                    sized.write_all_at(&raw, at)?;
                    Ok(sized.sync_data()?)
                })?,
            });
        }
    }
    for path in &paths {
        std::fs::remove_file(path)?;
    }
    let [product, append, sized] = latencies.map(summary);
    Ok(Alone { product, append, sized })
}

fn append(file: &mut File, record: &[u8]) -> Result<()> {
    file.write_all(record)?;
    Ok(file.sync_data()?)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = Instant::now();
    work()?;
    Ok(before.elapsed().as_secs_f64() * 1e6)
}

/// Records a second of the audit file.
fn product(folder: &Path, writers: usize, time: Duration) -> Result<f64> {
    let path = folder.join("audit.jsonl");
    let _ = std::fs::remove_file(&path);
    let (file, _) = AuditFile::open(&path, Arc::new(SystemClock::new()))?;
    let record = record()?;
    let written = write(writers, time, || file.record(&record).map_err(|error| anyhow!(error)))?;
    let lines = file.head().n;
    drop(file);
    // What was counted is on the disk, and whole.
    ensure!(verify(&path, None)?.head.n == lines && lines > 0, "the audit file has other lines");
    std::fs::remove_file(&path)?;
    Ok(written)
}

/// `writers` threads, each with one record after the other until the time is over.
fn write(writers: usize, time: Duration, record: impl Fn() -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    let one = || -> Result<usize> {
        let mut count = 0;
        while start.elapsed() < time {
            record()?;
            count += 1;
        }
        Ok(count)
    };
    let count = thread::scope(|scope| -> Result<usize> {
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(one)).collect();
        let mut all = 0;
        for thread in threads {
            all += thread.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        Ok(all)
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The least group commit: one thread that writes and syncs whatever has come meanwhile.
#[derive(Default)]
struct Group {
    queue: Mutex<Queue>,
    settled: Condvar,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    queued: u64,
    durable: u64,
    closed: bool,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, record: &[u8]) {
        let mut queue = self.lock();
        queue.bytes.extend_from_slice(record);
        queue.queued += 1;
        let mine = queue.queued;
        self.filled.notify_one();
        while queue.durable < mine && !queue.closed {
            queue = self.settled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn commit(&self, file: &mut File) -> Result<()> {
        loop {
            let mut queue = self.lock();
            while queue.bytes.is_empty() && !queue.closed {
                queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.bytes.is_empty() {
                return Ok(());
            }
            let (bytes, upto) = (std::mem::take(&mut queue.bytes), queue.queued);
            drop(queue);
            file.write_all(&bytes)?;
            file.sync_data()?;
            self.lock().durable = upto;
            self.settled.notify_all();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.settled.notify_all();
    }
}

fn raw(folder: &Path, writers: usize, time: Duration, line: usize) -> Result<f64> {
    let path = folder.join("group.log");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let (group, record) = (Group::default(), vec![b'x'; line]);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let ended = group.commit(&mut file);
            group.close();
            ended
        });
        let written = write(writers, time, || {
            group.record(&record);
            Ok(())
        });
        group.close();
        writer.join().map_err(|_| anyhow!("the writer panicked"))??;
        written
    })?;
    std::fs::remove_file(&path)?;
    Ok(written)
}

/// How long a line of the audit file is, so that the bound writes as much.
fn line_bytes(folder: &Path) -> Result<usize> {
    let path = folder.join("line.jsonl");
    let _ = std::fs::remove_file(&path);
    let (file, _) = AuditFile::open(&path, Arc::new(SystemClock::new()))?;
    file.record(&record()?).map_err(|error| anyhow!(error))?;
    drop(file);
    let bytes = usize::try_from(std::fs::metadata(&path)?.len()).context("a long line")?;
    std::fs::remove_file(&path)?;
    Ok(bytes)
}

fn record() -> Result<AuditRecord> {
    let call = Snapshot::freeze(ToolCall {
        id: CallId::parse("call-1")?,
        name: ToolName::parse(TOOL)?,
        arguments: Exact::parse(&arguments(BODY_BYTES))?,
    })?;
    let digest = call.digest();
    let approval = ApprovalRequest {
        approval_id: ApprovalId::new(Uuid::from_u128(1)),
        run_id: RunId::new(Uuid::from_u128(2)),
        call,
        requested_at: Timestamp::from_millis(1_800_000_000_000),
        idle_policy: IdlePolicy::Pause,
        expires_at: None,
    };
    Ok(AuditRecord::Requested {
        subject: Subject::local(),
        provider: ProviderId::parse("bench")?,
        approval: Arc::new(approval),
        digest,
    })
}
