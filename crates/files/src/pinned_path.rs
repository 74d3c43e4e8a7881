//! A name in a folder that is held open, so that the folder can't be replaced between calls.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Stat, renameat, statat, unlinkat};

use crate::walk::{ResolvedPath, walk};

/// A path pinned by the open descriptor of its folder.
#[derive(Debug)]
pub struct PinnedPath(ResolvedPath);

impl PinnedPath {
    /// Opens the folder that contains the file of a path.
    ///
    /// # Errors
    /// The folder can't be opened, or the path has an
    /// [untrusted link](crate::FileFault::UntrustedLink).
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = walk(path, false)?;
        found.check_folder()?;
        Ok(Self(found))
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.0.folder.as_fd()
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.0.name
    }

    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(statat(
            self.folder(),
            self.name(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Returns the device and inode of the file; `None` if it does not exist. A symbolic link is not followed.
    ///
    /// # Errors
    /// A system call failed.
    pub fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        match self.stat() {
            Ok(found) => Ok(Some((found.st_dev, found.st_ino))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the folder contains a name.
    ///
    /// # Errors
    /// A system call failed.
    pub fn has(&self, name: &OsStr) -> io::Result<bool> {
        match statat(self.folder(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames a file within the folder and replaces an existing one.
    ///
    /// # Errors
    /// A system call failed.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(self.folder(), from, self.folder(), to)?)
    }

    /// Removes the file; a missing file is not an error.
    ///
    /// # Errors
    ///
    /// A system call failed.
    pub fn remove(&self) -> io::Result<()> {
        match unlinkat(self.folder(), self.name(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
