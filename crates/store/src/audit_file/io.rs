//! The border to the file system (design 2): what the audit file asks of it, so that tests can refuse any of it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::identity::Identity;

/// The operations on one audit file and on the file beside it for torn tails. The implementation holds whatever
/// keeps other writers away, and gives it up when it is dropped.
///
/// It may keep room after the end, which reads as zero bytes until something is appended there.
pub trait AuditIo: Send {
    /// Reads at most `buffer.len()` bytes from `offset` on, and says how many; none only at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends bytes at the end in one call, and says how many; fewer than all is no error.
    ///
    /// # Errors
    /// Nothing can be said of what was appended.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns once all that was appended survives a power failure.
    ///
    /// # Errors
    /// Nothing can be said of what survives. It is not called again after an error: a second try might
    /// succeed although the bytes are lost.
    fn sync(&mut self) -> io::Result<()>;

    /// Appends bytes to the file for torn tails; durable on return.
    ///
    /// # Errors
    /// The bytes may not be kept.
    fn set_aside(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// The name under which a reader of the record finds what was set aside.
    fn aside_name(&self) -> String;

    /// Cuts the file to its first `len` bytes; durable on return.
    ///
    /// # Errors
    /// The file may have either length.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// Room is made in steps of the file's length so far, but not of less or more than this.
const ROOM: (u64, u64) = (1 << 16, 1 << 23);

/// The real file, exclusively locked.
///
/// Where the system can, lines go into room that was made before: a sync then writes no new length of the file, which
/// costs nearly as much as the line itself. The room is given back when the file is closed.
pub(crate) struct LockedFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// Where the next line goes.
    end: u64,
    room: Room,
}

enum Room {
    /// The file has this many bytes.
    Until(u64),
    /// The file system makes none, or has none left: each line makes the file longer.
    None,
}

impl LockedFile {
    /// Opens the file or creates it, readable by its owner only, and takes its lock.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io { action: format!("open {}", path.display()), source };
        let file =
            private().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { path: path.into() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The name must survive as well as the lines. It may be there from a process that died before this.
        sync_directory_of(path).map_err(failed)?;
        // The name must mean the same file after the process has changed its directory.
        let path = std::path::absolute(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (identity, end) = (Identity::of(&metadata), metadata.len());
        Ok(Self { file, path, identity, end, room: Room::Until(end) })
    }

    /// Makes room for `bytes` more if there is none. Not for the first write to a file: if that is torn, its beginning
    /// must tell what the file is.
    fn make_room(&mut self, bytes: usize) {
        let Room::Until(length) = self.room else { return };
        let needed = self.end + bytes as u64;
        if needed <= length || self.end == 0 {
            return;
        }
        let length = needed + self.end.clamp(ROOM.0, ROOM.1);
        self.room = match lengthen(&self.file, self.end, length) {
            Ok(()) => Room::Until(length),
            Err(error) => {
                tracing::debug!(%error, "the audit file gets no room in advance; each sync takes longer");
                Room::None
            }
        };
    }

    fn aside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".torn");
        name.into()
    }
}

impl AuditIo for LockedFile {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read(buffer)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.make_room(bytes.len());
        let written = write_at(&mut self.file, bytes, self.end)?;
        self.end += written as u64;
        Ok(written)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.identity.check(&self.path)
    }

    fn set_aside(&mut self, bytes: &[u8]) -> io::Result<()> {
        let path = self.aside();
        let mut aside = private().append(true).create(true).open(&path)?;
        aside.write_all(bytes)?;
        aside.sync_all()?;
        sync_directory_of(&path)
    }

    fn aside_name(&self) -> String {
        self.aside().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        (self.end, self.room) = (len, Room::Until(len));
        self.file.sync_all()
    }
}

impl Drop for LockedFile {
    /// Gives the room back. If that fails, or never happens, whoever opens the file next does it.
    fn drop(&mut self) {
        let _ = self.file.set_len(self.end);
    }
}

/// Gives a file the length `to`, with zero bytes from `from` on that have their place on the disk.
#[cfg(target_os = "linux")]
fn lengthen(file: &File, from: u64, to: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, to - from)?)
}

#[cfg(not(target_os = "linux"))]
fn lengthen(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, at)
}

#[cfg(not(unix))]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<usize> {
    use std::io::Write as _;
    file.seek(SeekFrom::Start(at))?;
    file.write(bytes)
}

/// Options for files that only their owner may read: arguments may be private.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Elsewhere a directory cannot be opened as a file; there names are as durable as the system makes them.
    if cfg!(unix) { File::open(parent)?.sync_all() } else { Ok(()) }
}
