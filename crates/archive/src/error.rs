//! Errors of opening and closing an archive, for operators.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why an archive can't be opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process uses the folder.
    #[error("{} belongs to another running process{}", path.display(), of_process(*.pid))]
    InUse {
        /// Path of the archive's folder.
        path: PathBuf,
        /// The id of the other process, if known.
        pid: Option<u32>,
    },
    /// The file was written by a later version.
    #[error("{} has format {found}, but this version of Veche supports only formats up to {known}", path.display())]
    Newer {
        /// Path of the database file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The latest format that this version supports.
        known: u32,
    },
    /// The file is a database of another application.
    #[error("{} is not an archive of channel history", path.display())]
    Foreign {
        /// Path of the foreign database file.
        path: PathBuf,
    },
    /// The file is damaged beyond automatic repair. [`set_aside`](crate::set_aside) moves it away, so that a new file can be
    /// created.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// Path of the damaged database file.
        path: PathBuf,
        /// The database's error message.
        reason: String,
    },
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A database error that the other variants do not describe, such as no space, no permission or
    /// a disk error.
    #[error("{}: {source}", path.display())]
    Database {
        /// Path of the database file.
        path: PathBuf,
        /// The error of the database.
        source: rusqlite::Error,
    },
    /// The archive was closed before everything could be written. None of the lost batches were reported as durable.
    #[error("batches of history that could not be written: {batches}; the last error: {reason}")]
    Unwritten {
        /// The number of lost batches.
        batches: u64,
        /// The text of the last error.
        reason: String,
    },
}

impl Error {
    /// Returns whether the disk is full.
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
