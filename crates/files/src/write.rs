//! Opening files for writing: logs, locks, and temporary files that replace others.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::fault::{FileFault, check_writable};
use crate::pinned_path::PinnedPath;

/// Number of attempts if a file appears and disappears while it is opened.
const TRIES: usize = 8;

/// The mode of private files: access for the owner only.
const PRIVATE: u32 = 0o600;

/// A user and its group, by numeric id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The numeric user id.
    pub uid: u32,
    /// The numeric group id.
    pub gid: u32,
}

/// Options for opening a file for writing.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    mode: u32,
    flags: OFlags,
    owner: Option<Owner>,
}

/// A file opened for writing, and whether it existed.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file, opened for writing.
    pub file: File,
    /// Whether this call created the file.
    pub is_new: bool,
}

impl WriteOptions {
    /// Creates new files with this mode; existing files keep theirs.
    #[must_use]
    pub const fn new(mode: u32) -> Self {
        Self {
            mode,
            flags: OFlags::WRONLY,
            owner: None,
        }
    }

    /// Makes the file private (0600), including an existing file that the caller owns.
    #[must_use]
    pub const fn private() -> Self {
        Self::new(PRIVATE)
    }

    /// Appends: every write goes to the end.
    #[must_use]
    pub const fn append(self) -> Self {
        Self {
            flags: self.flags.union(OFlags::APPEND),
            ..self
        }
    }

    /// Opens the file for reading as well.
    #[must_use]
    pub const fn readable(self) -> Self {
        Self {
            // `WRONLY` and `RDWR` are values of the same two bits, so one replaces the other.
            flags: self.flags.difference(OFlags::WRONLY).union(OFlags::RDWR),
            ..self
        }
    }

    /// Makes a user the owner of a new file, which requires root. An existing file may also belong
    /// to that user.
    #[must_use]
    pub const fn owned_by(self, owner: Owner) -> Self {
        Self {
            owner: Some(owner),
            ..self
        }
    }

    /// Opens a file and creates it if it does not exist.
    ///
    /// # Errors
    /// A system error, or a [`FileFault`].
    pub fn open(&self, path: &Path) -> io::Result<OpenedFile> {
        let place = PinnedPath::open(path)?;
        for _ in 0..TRIES {
            match place.stat() {
                // The file is checked before it is opened, because opening a device can have side
                // effects.
                Ok(found) => self.check(&found)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match self.create(&place) {
                        Err(Errno::EXIST) => continue,
                        Err(error) => return Err(error.into()),
                        Ok(file) => {
                            return Ok(OpenedFile {
                                file: file.into(),
                                is_new: true,
                            });
                        }
                    }
                }
                Err(error) => return Err(error),
            }
            let file = match openat(place.folder(), place.name(), self.flags(), Mode::empty()) {
                Err(Errno::NOENT) => continue,
                Err(Errno::LOOP) => return Err(FileFault::Symlink.into()),
                opened => opened?,
            };
            let found = fstat(&file)?;
            if found.st_nlink == 0 {
                continue;
            }
            self.check(&found)?;
            self.tighten(&file, &found)?;
            return Ok(OpenedFile {
                file: file.into(),
                is_new: false,
            });
        }
        Err(FileFault::Unstable.into())
    }

    /// Creates a file in place of an existing one. The existing file is removed, not overwritten; a
    /// folder is not removed.
    ///
    /// # Errors
    /// A system error, or a [`FileFault`].
    pub fn replace(&self, path: &Path) -> io::Result<File> {
        let place = PinnedPath::open(path)?;
        for _ in 0..TRIES {
            place.remove()?;
            match self.create(&place) {
                Err(Errno::EXIST) => {}
                made => return Ok(made?.into()),
            }
        }
        Err(FileFault::Unstable.into())
    }

    fn create(&self, place: &PinnedPath) -> Result<OwnedFd, Errno> {
        let flags = self.flags() | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(self.mode);
        let file = openat(place.folder(), place.name(), flags, mode)?;
        if let Some(Owner { uid, gid }) = self.owner {
            fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(file)
    }

    fn flags(&self) -> OFlags {
        self.flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
    }

    fn check(&self, found: &Stat) -> Result<(), FileFault> {
        let us = geteuid().as_raw();
        let owner = self.owner.map_or(us, |owner| owner.uid);
        check_writable(found, &[0, us, owner])
    }

    fn tighten(&self, file: &OwnedFd, found: &Stat) -> Result<(), Errno> {
        let is_ours = found.st_uid == geteuid().as_raw();
        match self.mode == PRIVATE && is_ours && found.st_mode & 0o077 != 0 {
            true => fchmod(file, Mode::from_raw_mode(PRIVATE)),
            false => Ok(()),
        }
    }
}
