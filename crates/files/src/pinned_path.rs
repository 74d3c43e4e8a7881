//! A name in a folder that is held open, so that the folder can't become another one in between.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Stat, renameat, statat, unlinkat};

use crate::walk::{ResolvedPath, walk};

/// See the module's text.
#[derive(Debug)]
pub struct PinnedPath(ResolvedPath);

impl PinnedPath {
    /// Of a path whose folder is there.
    ///
    /// # Errors
    /// The folder can't be reached; [`Fault::LinkOf`](crate::Fault::LinkOf).
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

    /// Which file it is, by device and inode; `None`: there is none. A symbolic link is not followed.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        match self.stat() {
            Ok(found) => Ok(Some((found.st_dev, found.st_ino))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether its folder has something of that name.
    ///
    /// # Errors
    /// The system's.
    pub fn has(&self, name: &OsStr) -> io::Result<bool> {
        match statat(self.folder(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file of the same folder another name there, in place of the one that had it.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(self.folder(), from, self.folder(), to)?)
    }

    /// Removes the file; that there is none is no error.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        match unlinkat(self.folder(), self.name(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
