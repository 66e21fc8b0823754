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
use countersign_bench::stats::{Summary, summary};
use countersign_driver::system::SystemClock;
use countersign_store::audit_file::{AuditFile, verify};
use uuid::Uuid;

use crate::figure::{Figure, Point};

const WRITERS: usize = 64;
/// So that a line of the file has about 600 bytes.
const BODY_BYTES: usize = 40;
/// What the preallocated file has room for; it is written in a circle.
const PREALLOCATED: u64 = 8 << 20;

/// Records a second with many writers, and how long one writer waits alone. `round` says who goes first.
pub(crate) fn measure(folder: &Path, time: Duration, round: usize) -> Result<Vec<Figure>> {
    let line = line_bytes(folder)?;
    let both = |writers| -> Result<(Written, Written)> {
        if round.is_multiple_of(2) {
            let product = product(folder, writers, time)?;
            Ok((product, raw(folder, writers, time, line)?))
        } else {
            let raw = raw(folder, writers, time, line)?;
            Ok((product(folder, writers, time)?, raw))
        }
    };
    let (product, bound) = both(WRITERS)?;
    let (alone, _) = both(1)?;
    let (append, preallocated) = syncs(folder, time / 2, line)?;
    let rate = |written: &Written| Point::of(written.rate);
    Ok(vec![
        Figure::ratio("P7 together", rate(&product), rate(&bound)),
        Figure::ratio("P7 alone", alone.latency, append).least(preallocated.p50 / append.p50),
    ])
}

/// Microseconds of one append and fdatasync: what the disk takes at this minute.
pub(crate) fn sync_latency(folder: &Path, time: Duration) -> Result<Summary> {
    Ok(syncs(folder, time, 600)?.0)
}

struct Written {
    rate: f64,
    latency: Summary,
}

fn product(folder: &Path, writers: usize, time: Duration) -> Result<Written> {
    let path = folder.join("audit.jsonl");
    let _ = std::fs::remove_file(&path);
    let (file, _) = AuditFile::open(&path, Arc::new(SystemClock::new()))?;
    let record = record()?;
    let written = write(writers, time, || file.record(&record).map_err(|error| anyhow!(error)))?;
    let lines = file.head().n();
    drop(file);
    // What was counted is on the disk, and whole.
    ensure!(verify(&path, None)?.head.n() == lines && lines > 0, "the audit file has other lines");
    std::fs::remove_file(&path)?;
    Ok(written)
}

/// `writers` threads, each with one record after the other until the time is over.
fn write(writers: usize, time: Duration, record: impl Fn() -> Result<()> + Sync) -> Result<Written> {
    let start = Instant::now();
    let one = || -> Result<Vec<f64>> {
        let mut latencies = Vec::new();
        while start.elapsed() < time {
            let before = Instant::now();
            record()?;
            latencies.push(before.elapsed().as_secs_f64() * 1e6);
        }
        Ok(latencies)
    };
    let latencies = thread::scope(|scope| -> Result<Vec<f64>> {
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(one)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a writer panicked"))??);
        }
        Ok(all)
    })?;
    let rate = latencies.len() as f64 / start.elapsed().as_secs_f64();
    Ok(Written { rate, latency: summary(latencies) })
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

fn raw(folder: &Path, writers: usize, time: Duration, line: usize) -> Result<Written> {
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

/// One writer, one sync a record: appended, and into a file that has its size already.
fn syncs(folder: &Path, time: Duration, line: usize) -> Result<(Summary, Summary)> {
    let record = vec![b'x'; line];
    let path = folder.join("sync.log");
    let mut appended = OpenOptions::new().create(true).append(true).open(&path)?;
    let append = write_alone(time, || {
        appended.write_all(&record)?;
        Ok(appended.sync_data()?)
    })?;
    std::fs::remove_file(&path)?;
    let sized = File::create(&path)?;
    for at in 0..PREALLOCATED >> 20 {
        sized.write_all_at(&vec![0; 1 << 20], at << 20)?;
    }
    sized.sync_all()?;
    let mut at = 0;
    let preallocated = write_alone(time, || {
        sized.write_all_at(&record, at)?;
        at = (at + line as u64) % (PREALLOCATED - line as u64);
        Ok(sized.sync_data()?)
    })?;
    std::fs::remove_file(&path)?;
    Ok((append, preallocated))
}

fn write_alone(time: Duration, mut record: impl FnMut() -> Result<()>) -> Result<Summary> {
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let before = Instant::now();
        record()?;
        latencies.push(before.elapsed().as_secs_f64() * 1e6);
    }
    Ok(summary(latencies))
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
