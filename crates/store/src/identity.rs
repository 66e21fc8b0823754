//! Whether a name still means the file that was opened under it.

use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Which file one is, as the system counts files; the same for as long as somebody has it open.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl Identity {
    #[cfg_attr(not(unix), expect(unused_variables, reason = "elsewhere an open file keeps its name"))]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            #[cfg(unix)]
            device_and_inode: {
                use std::os::unix::fs::MetadataExt as _;
                (metadata.dev(), metadata.ino())
            },
        }
    }

    /// A file that was moved away or deleted still takes what is written, but nobody who looks under its name will
    /// find it.
    pub(crate) fn check(&self, path: &Path) -> io::Result<()> {
        if *self == Self::of(&std::fs::metadata(path)?) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "another file stands under its name"))
    }
}
