//! `operations`: where runs with an idempotency key are remembered (contract 6.1, 9).

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_driver::operation::{DEFAULT_MAX_RECORD_BYTES, OperationStore};
use countersign_protocol::code::Code;

use super::reader::Field;
use super::sections::MAX_SAFE_INTEGER;
use crate::error::StartError;

/// The database in the folder.
const FILE: &str = "operations.db";

/// Its presence switches idempotency keys on.
#[derive(Debug, Clone)]
pub(crate) struct Operations {
    directory: PathBuf,
    pub(crate) max_record_bytes: u64,
}

pub(super) fn read(field: &Field<'_>, base: &Path) -> Result<Operations, StartError> {
    let mut members = field.object()?;
    let directory = members.required("directory")?;
    let mut max_record_bytes = DEFAULT_MAX_RECORD_BYTES;
    if let Some(bytes) = members.optional("maxRecordBytes") {
        max_record_bytes = bytes.number(1..=MAX_SAFE_INTEGER)?;
    }
    members.finish()?;
    let directory = base.join(directory.string(1..=4096)?);
    Ok(Operations { directory, max_record_bytes })
}

impl Operations {
    /// Opens the store; the folder is made if only it is missing.
    pub(super) fn open(&self) -> Result<Arc<dyn OperationStore>, StartError> {
        match private_folder().create(&self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(self.unusable(format!("cannot make the folder {}: {error}", self.shown())));
            }
        }
        self.examine()?;
        open_store(&self.directory.join(FILE))
    }

    /// What can be said of the folder without touching what is in it. A missing one is made at start.
    pub(super) fn examine(&self) -> Result<(), StartError> {
        match fs::metadata(&self.directory) {
            Ok(metadata) if !metadata.is_dir() => {
                Err(self.unusable(format!("{} is not a folder", self.shown())))
            }
            Ok(metadata) => self.check_mode(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.directory.parent() {
                Some(parent) if parent.as_os_str().is_empty() || parent.is_dir() => Ok(()),
                _ => Err(self.unusable(format!("the folder of {} does not exist", self.shown()))),
            },
            Err(error) => Err(self.unusable(format!("cannot look at {}: {error}", self.shown()))),
        }
    }

    /// Contract 9: a private directory (0700). The events in it hold arguments and answers.
    #[cfg(unix)]
    fn check_mode(&self, metadata: &fs::Metadata) -> Result<(), StartError> {
        use std::os::unix::fs::PermissionsExt;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 == 0 {
            return Ok(());
        }
        Err(self
            .unusable(format!("others may use the folder {} (mode {mode:03o}); chmod 700 it", self.shown())))
    }

    #[cfg(not(unix))]
    fn check_mode(&self, _: &fs::Metadata) -> Result<(), StartError> {
        Ok(())
    }

    fn unusable(&self, reason: String) -> StartError {
        StartError::invalid("operations.directory", reason)
    }

    /// On one line of a terminal.
    fn shown(&self) -> String {
        self.directory.display().to_string().escape_debug().to_string()
    }
}

#[cfg(feature = "sqlite")]
fn open_store(path: &Path) -> Result<Arc<dyn OperationStore>, StartError> {
    let (store, recovery) = countersign_store::sqlite::Operations::open(path).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        StartError::with(Code::OPERATION_STORE_ERROR, "operations.directory", format!("{error}{cause}"))
    })?;
    if recovery.interrupted > 0 {
        tracing::warn!(
            operations = recovery.interrupted,
            "runs with an idempotency key were interrupted when the last host ended; they are uncertain"
        );
    }
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
fn open_store(_: &Path) -> Result<Arc<dyn OperationStore>, StartError> {
    let reason = "this build has no store (feature `sqlite` of countersign-host)";
    Err(StartError::with(Code::OPERATION_STORE_ERROR, "operations.directory", reason))
}

fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // One level only: a mistyped path is not made.
    builder.recursive(false);
    builder
}
