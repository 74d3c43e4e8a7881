//! Checks of file properties, without system calls.

use std::io;

use rustix::fs::{FileType, Stat};

/// Why a file is not opened; the inner error of an [`io::Error`] of kind `Other`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The last component of the path is a symbolic link.
    #[error("it is a symbolic link, which is not followed for this file")]
    Symlink,
    /// A component of the path is a symbolic link whose owner is not trusted. Root does not follow
    /// such links.
    #[error("{name:?} in its path is a symbolic link owned by another user (id {owner})")]
    UntrustedLink {
        /// Name of the component, without its folder.
        name: String,
        /// The numeric user id of the link's owner.
        owner: u32,
    },
    /// The file is of this type; only regular files are read and written.
    #[error("it is a {0}, not a regular file")]
    NotRegular(&'static str),
    /// The file has several names (hard links), so it may be a protected file under another name.
    #[error("it has several names (hard links)")]
    HardLinked,
    /// The owner, by numeric id, is neither root, nor the caller, nor the user that the file is opened for.
    #[error("it is owned by another user (id {0})")]
    Owner(u32),
    /// The path led to a different file at each attempt.
    #[error("it was replaced repeatedly while being opened")]
    Unstable,
}

impl From<FileFault> for io::Error {
    fn from(fault: FileFault) -> Self {
        Self::other(fault)
    }
}

/// Checks that the file is a regular file, since no other file may be opened.
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

/// Checks whether the file may be written by a process that trusts the given users.
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
