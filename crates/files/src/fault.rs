//! What is wrong with what was found under a name. No system call is made here.

use std::io;

use rustix::fs::{FileType, Stat};

/// Why a file is not opened. It comes as the inner error of an [`io::Error`] of the kind `Other`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The last piece of the path.
    #[error("it is a symbolic link, which is not allowed here")]
    Symlink,
    /// A piece of the path, followed by root only for those it trusts.
    #[error("{name:?} in its path is a symbolic link owned by another user ({owner})")]
    LinkOf {
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
    Names,
    /// Neither root, nor the caller, nor the user it is opened for.
    #[error("it is owned by another user ({0})")]
    Owner(u32),
    /// It was another one each time.
    #[error("it was replaced repeatedly while being opened")]
    Restless,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::other(fault)
    }
}

/// Whether something may be opened at all.
pub(crate) fn judge_kind(found: &Stat) -> Result<(), Fault> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Fault::Symlink),
        FileType::Directory => Err(Fault::NotRegular("folder")),
        FileType::Fifo => Err(Fault::NotRegular("FIFO")),
        FileType::Socket => Err(Fault::NotRegular("socket")),
        _ => Err(Fault::NotRegular("device")),
    }
}

/// Whether something may be written by a process that trusts these users.
pub(crate) fn judge(found: &Stat, trusted: &[u32]) -> Result<(), Fault> {
    judge_kind(found)?;
    if found.st_nlink > 1 {
        return Err(Fault::Names);
    }
    match trusted.contains(&found.st_uid) {
        true => Ok(()),
        false => Err(Fault::Owner(found.st_uid)),
    }
}
