//! What is wrong with what was found under a name. No system call is made here.

use std::io;

use rustix::fs::{FileType, Stat};

/// Why a file is not opened. It comes as the inner error of an [`io::Error`] of the kind `Other`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The last piece of the path.
    #[error("it is a symbolic link, which is not followed here")]
    Symlink,
    /// A piece of the path, followed by root only for those it trusts.
    #[error(
        "{name:?} in its path is a symbolic link of another user ({owner}), which is not followed"
    )]
    UntrustedLink {
        /// The piece.
        name: String,
        /// The link's user, by number.
        owner: u32,
    },
    /// Neither read nor written.
    #[error("it is a {0}, not a regular file")]
    NotRegular(&'static str),
    /// Another of its names may be one that is not to be written.
    #[error("it has several names (hard links)")]
    HardLinked,
    /// Neither root, nor the caller, nor the user it is opened for.
    #[error("it belongs to another user ({0})")]
    Owner(u32),
    /// It was another one each time.
    #[error("it is replaced while it is opened")]
    Unstable,
}

impl From<FileFault> for io::Error {
    fn from(fault: FileFault) -> Self {
        Self::other(fault)
    }
}

/// Whether something may be opened at all.
pub(crate) fn check_kind(found: &Stat) -> Result<(), FileFault> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(FileFault::Symlink),
        FileType::Directory => Err(FileFault::NotRegular("folder")),
        FileType::Fifo => Err(FileFault::NotRegular("FIFO")),
        FileType::Socket => Err(FileFault::NotRegular("socket")),
        _ => Err(FileFault::NotRegular("device")),
    }
}

/// Whether something may be written by a process that trusts these users.
pub(crate) fn check_writable(found: &Stat, trusted: &[u32]) -> Result<(), FileFault> {
    check_kind(found)?;
    if found.st_nlink > 1 {
        return Err(FileFault::HardLinked);
    }
    match trusted.contains(&found.st_uid) {
        true => Ok(()),
        false => Err(FileFault::Owner(found.st_uid)),
    }
}
