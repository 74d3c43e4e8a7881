//! Why an archive can't be opened or closed, in words for whoever runs the server.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the folder.
    #[error("{} belongs to another running process{}", path.display(), of_process(*.pid))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Of that process, where it can be read.
        pid: Option<u32>,
    },
    /// A later version wrote it.
    #[error("{} has format {found}, this version supports formats up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest one that is known here.
        known: u32,
    },
    /// It is a database, and not of channels' history.
    #[error("{} is not an archive of channel history", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Beyond what can be cut off or left out. [`set_aside`](crate::set_aside) makes room for a new one.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The database's words.
        reason: String,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be used.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The database refuses for another reason: no room, no rights, an error of the disk.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Its words.
        source: rusqlite::Error,
    },
    /// It was closed before all could be written. None of it was told to be durable.
    #[error("{batches} batches could not be written: {reason}")]
    Unwritten {
        /// How many.
        batches: u64,
        /// The last error.
        reason: String,
    },
}

impl Error {
    /// There is no room on the disk.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Database { source, .. } => {
                source.sqlite_error_code() == Some(ErrorCode::DiskFull)
            }
            Self::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" ({pid})"))
}
