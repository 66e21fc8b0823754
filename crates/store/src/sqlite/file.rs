//! Opening a database file: its lock, its mode, its settings, its schema, and whether it is whole.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::Error;
use crate::identity::Identity;

/// What a database is for.
pub(super) struct Kind {
    /// For people.
    pub(super) what: &'static str,
    /// SQLite's `application_id`.
    pub(super) application_id: i32,
    /// The schema that this program reads and writes; SQLite's `user_version`.
    pub(super) version: i64,
    /// Makes it.
    pub(super) schema: &'static str,
}

/// An open database, and the lock that keeps other writers away.
pub(super) struct Database {
    // First, so that the connection is closed before the lock is given up.
    pub(super) connection: Connection,
    _lock: Lock,
    pub(super) path: PathBuf,
    identity: Identity,
}

/// The file beside the database, locked. SQLite's own locks do not keep out a second store of this process.
struct Lock {
    file: File,
    /// Whether it says that the database was made once.
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Made,
}

/// What the mark says to people; for us it is enough that the file is not empty.
const MARK: &str = "The database beside this file was made. If it is gone or empty, its keys are lost.\n";

impl Database {
    /// Opens the file or makes it, readable by its owner only.
    pub(super) fn open(path: &Path, kind: &Kind) -> Result<Self, Error> {
        // The name must mean the same file after the process has changed its directory.
        let path = std::path::absolute(path).map_err(|source| cannot("open", path, source))?;
        let mut lock = Lock::take(&path)?;
        let file = make(&path, lock.mark)?;
        let identity = Identity::of(&file.metadata().map_err(|source| cannot("open", &path, source))?);
        drop(file);
        let refused = |source| refused("open", &path, kind, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(refused)?;
        check_kind(&connection, &path, kind, lock.mark)?;
        configure(&connection).map_err(refused)?;
        create(&connection, kind).map_err(refused)?;
        check_whole(&connection, &path, kind)?;
        sync_directory_of(&path).map_err(|source| cannot("sync the folder of", &path, source))?;
        lock.mark().map_err(|source| cannot("mark the lock of", &path, source))?;
        let database = Self { connection, _lock: lock, path, identity };
        database.check_name().map_err(|source| cannot("open", &database.path, source))?;
        Ok(database)
    }

    /// Whether what was committed is where the next process will look for it.
    pub(super) fn check_name(&self) -> io::Result<()> {
        self.identity.check(&self.path)
    }
}

impl Lock {
    fn take(path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let name = PathBuf::from(name);
        let failed = |source| cannot("open", &name, source);
        let file = private().write(true).create(true).truncate(false).open(&name).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { path: path.into() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mark = if file.metadata().map_err(failed)?.len() == 0 { Mark::None } else { Mark::Made };
        Ok(Self { file, mark })
    }

    /// Only once the database is durable, so that a crash before leaves what can be made anew.
    fn mark(&mut self) -> io::Result<()> {
        if self.mark == Mark::None {
            self.file.write_all(MARK.as_bytes())?;
            self.file.sync_all()?;
            self.mark = Mark::Made;
        }
        Ok(())
    }
}

/// Makes the file if there never was one. SQLite gives the files beside it the mode of this one. Only under the lock:
/// closing a file that SQLite has open elsewhere in this process would end its own locks.
fn make(path: &Path, mark: Mark) -> Result<File, Error> {
    match private().write(true).create(mark == Mark::None).truncate(false).open(path) {
        Err(source) if mark == Mark::Made && source.kind() == io::ErrorKind::NotFound => {
            Err(Error::Damaged {
                path: path.into(),
                what: "it is gone, and the file .lock beside it is not".into(),
            })
        }
        result => result.map_err(|source| cannot("open", path, source)),
    }
}

/// Looks before anything is written.
fn check_kind(connection: &Connection, path: &Path, kind: &Kind, mark: Mark) -> Result<(), Error> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let not_ours = || Error::NotOurs { path: path.into(), what: kind.what };
    let refused = |source| refused("read", path, kind, source);
    let application_id = number("application_id").map_err(refused)?;
    let version = number("user_version").map_err(refused)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(refused)?;
    match (application_id, version) {
        (0, 0) if tables == 0 && mark == Mark::None => Ok(()),
        // Taken for new, it would run every key again.
        (0, 0) if tables == 0 => Err(Error::Damaged {
            path: path.into(),
            what: "it is empty, and the file .lock beside it says that it was not".into(),
        }),
        (id, found) if id == i64::from(kind.application_id) => {
            let known = kind.version;
            if found == known {
                Ok(())
            } else {
                Err(Error::SchemaVersion { path: path.into(), found, known })
            }
        }
        _ => Err(not_ours()),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // Nobody else shall write this file, not even a program that does not know our lock.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // What was committed is in the database itself, where it is checked. A write-ahead log ends without a word at the
    // first bit that is wrong, and everything behind that is forgotten.
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "TRUNCATE", |row| row.get(0))?;
    if mode != "truncate" {
        return Err(rusqlite::Error::InvalidQuery);
    }
    // A commit is on the disk when it returns, and so is the end of its journal: it is not taken back.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a plain sync leaves the bytes in the drive; elsewhere this changes nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// Makes the schema of a new file. It is there whole or not at all.
fn create(connection: &Connection, kind: &Kind) -> rusqlite::Result<()> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == kind.version {
        return Ok(());
    }
    let Kind { schema, application_id, version, .. } = kind;
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {schema} PRAGMA application_id = {application_id}; PRAGMA user_version = {version}; COMMIT;"
    ))
}

/// Reads the whole file, indexes included: a key that is there and cannot be found would run again. Rows that refer to
/// nothing are what a lost key leaves.
fn check_whole(connection: &Connection, path: &Path, kind: &Kind) -> Result<(), Error> {
    let refused = |source| refused("check", path, kind, source);
    let damaged = |what| Err(Error::Damaged { path: path.into(), what });
    let found: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(refused)?;
    if found != "ok" {
        return damaged(found);
    }
    let mut orphans = connection.prepare("PRAGMA foreign_key_check").map_err(refused)?;
    if orphans.exists([]).map_err(refused)? {
        return damaged("a row refers to one that is not there".into());
    }
    Ok(())
}

/// What SQLite says of a file that it cannot use.
pub(super) fn refused(action: &str, path: &Path, kind: &Kind, source: rusqlite::Error) -> Error {
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::NotOurs { path: path.into(), what: kind.what },
        Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path: path.into(), what: source.to_string() },
        Some(ErrorCode::DatabaseBusy) => Error::Locked { path: path.into() },
        _ => Error::Sqlite { action: format!("{action} {}", path.display()), source: source.into() },
    }
}

fn cannot(action: &str, path: &Path, source: io::Error) -> Error {
    Error::Io { action: format!("{action} {}", path.display()), source }
}

/// Options for files that only their owner may read: events hold arguments and answers.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The names must survive as well as what is in the files.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        // Elsewhere a directory cannot be opened as a file; there names are as durable as the system makes them.
        Some(parent) if cfg!(unix) => File::open(parent)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}
