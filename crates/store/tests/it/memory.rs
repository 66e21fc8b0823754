//! File operations in memory that fail, stop halfway or die where a test says.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use countersign_store::audit_file::AuditIo;

use crate::support::Rng;

/// What happens at one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails and did nothing.
    Refuse,
    /// It fails and did all of it.
    RefuseLate,
    /// It fails and did half of it.
    RefuseHalf,
    /// It does half of it and says so, if it is a write; anything else is done.
    Short,
    /// It panics.
    Panic,
    /// The process is killed before it.
    KilledBefore,
    /// The process is killed halfway.
    KilledHalf,
    /// The process is killed after it.
    KilledAfter,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Refuse,
        Self::RefuseLate,
        Self::RefuseHalf,
        Self::Short,
        Self::Panic,
        Self::KilledBefore,
        Self::KilledHalf,
        Self::KilledAfter,
    ];
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Nothing,
    Half,
    All,
}

/// A disk with one audit file. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    file: Content,
    aside: Content,
    /// Operations that change something, since the disk was made.
    operations: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    killed: bool,
    locked: bool,
    /// Called within each sync, without the disk's lock.
    on_sync: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Content {
    /// What a reader sees.
    cached: Vec<u8>,
    /// What surely survives a power failure.
    durable: Vec<u8>,
}

impl Disk {
    pub(crate) fn with(bytes: &[u8]) -> Self {
        let disk = Self::default();
        disk.state().file = Content { cached: bytes.to_vec(), durable: bytes.to_vec() };
        disk
    }

    /// A new process opens the file.
    pub(crate) fn open(&self) -> File {
        let mut state = self.state();
        assert!(!state.locked, "two writers");
        (state.locked, state.killed) = (true, false);
        File(self.clone())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state().file.cached.clone()
    }

    pub(crate) fn aside(&self) -> Vec<u8> {
        self.state().aside.cached.clone()
    }

    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The operation after `skipped` more goes wrong.
    pub(crate) fn fail(&self, skipped: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + skipped, fault));
    }

    pub(crate) fn heal(&self) {
        self.state().fault = None;
    }

    pub(crate) fn on_sync(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.state().on_sync = Some(Arc::new(hook));
    }

    /// Whatever was not synced survives in part, with empty blocks in it and after it.
    pub(crate) fn power_failure(&self, rng: &mut Rng) {
        let mut state = self.state();
        state.killed = true;
        let State { file, aside, .. } = &mut *state;
        file.power_failure(rng);
        aside.power_failure(rng);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Runs one operation: `act` gets how much of it to do. `short` is how much it does of itself when short.
    fn operate<T>(&self, short: Extent, act: impl Fn(&mut State, Extent) -> T) -> io::Result<T> {
        let mut state = self.state();
        if state.killed {
            return Err(io::Error::other("killed"));
        }
        let fault = state.fault.filter(|(at, _)| *at == state.operations).map(|(_, fault)| fault);
        state.operations += 1;
        let (extent, result) = match fault {
            None => return Ok(act(&mut state, Extent::All)),
            Some(Fault::Short) => return Ok(act(&mut state, short)),
            Some(Fault::Panic) => {
                drop(state);
                // A panic that prints nothing.
                std::panic::resume_unwind(Box::new("as the test wants"));
            }
            Some(Fault::Refuse) => (Extent::Nothing, "refused"),
            Some(Fault::RefuseHalf) => (Extent::Half, "refused"),
            Some(Fault::RefuseLate) => (Extent::All, "refused"),
            Some(Fault::KilledBefore) => (Extent::Nothing, "killed"),
            Some(Fault::KilledHalf) => (Extent::Half, "killed"),
            Some(Fault::KilledAfter) => (Extent::All, "killed"),
        };
        if extent != Extent::Nothing {
            act(&mut state, extent);
        }
        state.killed |= result == "killed";
        Err(io::Error::other(result))
    }
}

impl Content {
    fn append(&mut self, bytes: &[u8], extent: Extent) -> usize {
        let length = if extent == Extent::Half { bytes.len().div_ceil(2) } else { bytes.len() };
        self.cached.extend_from_slice(&bytes[..length]);
        length
    }

    fn power_failure(&mut self, rng: &mut Rng) {
        if let Some(unsynced) = self.cached.strip_prefix(&self.durable[..]) {
            let kept = rng.below(unsynced.len() + 1);
            let mut survived = unsynced[..kept].to_vec();
            // Into room that was made before, sectors are written in any order. The first write finds none.
            if !self.durable.is_empty() && rng.below(2) == 0 {
                let sector = |at: usize| (self.durable.len() + at) / 512;
                let lost: Vec<bool> = (0..=sector(kept)).map(|_| rng.below(3) == 0).collect();
                survived
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, _)| lost[sector(*at)])
                    .for_each(|(_, byte)| *byte = 0);
            }
            let room = rng.below(300) * rng.below(2);
            survived.resize(kept + room, 0);
            self.durable.append(&mut survived);
        } else if rng.below(2) == 0 {
            // A cut that was under way.
            self.durable.clone_from(&self.cached);
        }
        self.cached.clone_from(&self.durable);
    }
}

pub(crate) struct File(Disk);

impl Drop for File {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl AuditIo for File {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.0.state();
        if state.killed {
            return Err(io::Error::other("killed"));
        }
        let rest = state.file.cached.get(offset as usize..).unwrap_or_default();
        // Few bytes at once, so that lines are met in pieces.
        let length = rest.len().min(buffer.len()).min(1000);
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.operate(Extent::Half, |state, extent| state.file.append(bytes, extent))
    }

    fn sync(&mut self) -> io::Result<()> {
        let hook = self.0.state().on_sync.clone();
        if let Some(hook) = hook {
            hook();
        }
        self.0.operate(Extent::All, |state, extent| {
            state.syncs += 1;
            // Half a sync keeps half of what was waiting.
            let (cached, durable) = (&state.file.cached, state.file.durable.len());
            let upto =
                if extent == Extent::Half { durable + (cached.len() - durable) / 2 } else { cached.len() };
            state.file.durable = cached[..upto].to_vec();
        })?;
        Ok(())
    }

    fn set_aside(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.operate(Extent::All, |state, extent| {
            state.aside.append(bytes, extent);
            if extent == Extent::All {
                state.aside.durable = state.aside.cached.clone();
            }
        })
    }

    fn aside_name(&self) -> String {
        "audit.jsonl.torn".into()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.operate(Extent::All, |state, extent| {
            state.file.cached.truncate(len as usize);
            if extent == Extent::All {
                state.file.durable = state.file.cached.clone();
            }
        })
    }
}
