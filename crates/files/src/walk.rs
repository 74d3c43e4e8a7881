//! Resolves the folder of a path component by component, to find symbolic links of untrusted users.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::fault::FileFault;

/// Maximum number of links in a path, as in Linux. More links are treated as a cycle.
const LINKS_MAX: usize = 40;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder and the name of a path's last component in it. The component may itself be a
/// symbolic link, unless the walk also followed links in the last component.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// Symbolic links in the path that belong to untrusted users.
    untrusted_links: Vec<FileFault>,
}

impl ResolvedPath {
    /// Checks that the owner of each untrusted link also owns the file.
    pub(crate) fn check_owner(&self, found: &Stat) -> Result<(), FileFault> {
        let wrong = self.untrusted_links.iter().find(|link| match link {
            FileFault::UntrustedLink { owner, .. } => *owner != found.st_uid,
            _ => true,
        });
        wrong.cloned().map_or(Ok(()), Err)
    }

    /// Checks that the owner of each untrusted link also owns the folder.
    pub(crate) fn check_folder(&self) -> io::Result<()> {
        match self.untrusted_links.is_empty() {
            true => Ok(()),
            false => Ok(self.check_owner(&fstat(&self.folder)?)?),
        }
    }
}

/// Resolves a path to the folder of its last component and that component's name. With
/// `follows_last`, symbolic links in the last component are followed too; the component that is
/// returned then exists and is not a symbolic link.
pub(crate) fn walk(path: &Path, follows_last: bool) -> io::Result<ResolvedPath> {
    let Some(name) = path.file_name() else {
        let words = "the path does not end with a file name";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    };
    let us = geteuid();
    if !us.is_root() && !follows_last {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        return Ok(ResolvedPath {
            folder: openat(CWD, folder, FOLDER, Mode::empty())?,
            name: name.to_owned(),
            untrusted_links: Vec::new(),
        });
    }
    let mut pieces = VecDeque::new();
    let mut folder = begin(path, &mut pieces)?;
    let mut through = Vec::new();
    let mut links = 0;
    while let Some(piece) = pieces.pop_front() {
        let is_last = pieces.is_empty();
        if is_last && !follows_last {
            return Ok(ResolvedPath {
                folder,
                name: piece,
                untrusted_links: through,
            });
        }
        let found = statat(&folder, &piece, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                // Opens the link itself, so that the link that was checked is the one that is read.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let link = openat(&folder, &piece, flags, Mode::empty())?;
                let owner = fstat(&link)?.st_uid;
                if us.is_root() && owner != us.as_raw() {
                    through.push(FileFault::UntrustedLink {
                        name: piece.to_string_lossy().into_owned(),
                        owner,
                    });
                }
                let target = readlinkat(&link, "", Vec::new())?;
                let target = OsString::from_vec(target.into_bytes());
                if let Some(root) = continue_at(Path::new(&target), &mut pieces)? {
                    folder = root;
                }
            }
            _ if is_last => {
                return Ok(ResolvedPath {
                    folder,
                    name: piece,
                    untrusted_links: through,
                });
            }
            _ => folder = openat(&folder, &piece, FOLDER | OFlags::NOFOLLOW, Mode::empty())?,
        }
    }
    // The path is a link to a folder such as `/` or `..`.
    Err(FileFault::NotRegular("folder").into())
}

/// Returns the folder where a path begins, and adds the components of the path to `pieces`.
fn begin(path: &Path, pieces: &mut VecDeque<OsString>) -> io::Result<OwnedFd> {
    match continue_at(path, pieces)? {
        Some(root) => Ok(root),
        None => Ok(openat(CWD, ".", FOLDER, Mode::empty())?),
    }
}

/// Prepends the components of a path to `pieces`; returns the root folder if the path is absolute.
fn continue_at(path: &Path, pieces: &mut VecDeque<OsString>) -> io::Result<Option<OwnedFd>> {
    let of = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    for piece in path.components().filter_map(of).rev() {
        pieces.push_front(piece);
    }
    match path.is_absolute() {
        true => Ok(Some(openat(CWD, "/", FOLDER, Mode::empty())?)),
        false => Ok(None),
    }
}
