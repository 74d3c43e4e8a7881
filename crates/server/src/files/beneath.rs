//! Opens a name below a root so that neither `..` nor a link nor a race leads out of it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The maximum number of attempts. An attempt fails if folders are moved while `openat2` resolves a
/// path.
const TRIES_MAX: u32 = 8;

/// NONBLOCK is set because opening a FIFO would otherwise wait for its writer. NOCTTY is set because a terminal must
/// not become the process's controlling terminal.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens `relative`, or the root itself if it is empty. The root's own path may contain links: it belongs to the
/// operator, who may switch a link between releases.
pub(super) fn open(
    root: &Path,
    relative: &str,
    is_openat2_refused: &mut bool,
) -> Result<OwnedFd, Errno> {
    let root = rustix::fs::open(root, FOLDER, Mode::empty())?;
    let relative = if relative.is_empty() { "." } else { relative };
    if !*is_openat2_refused {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES_MAX {
            match rustix::fs::openat2(&root, relative, FLAGS, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // NOSYS: Linux is older than 5.6. PERM: a container's filter refuses the call; the file system would
                // return ACCESS.
                Err(Errno::NOSYS | Errno::PERM) => {
                    *is_openat2_refused = true;
                    break;
                }
                result => return result,
            }
        }
        if !*is_openat2_refused {
            return Err(Errno::NOENT);
        }
    }
    walk(root, relative)
}

/// Opens component by component without following links, if `openat2` is not available. Every path that this function
/// opens can also be opened by `openat2`, but not the other way round.
pub(super) fn walk(root: OwnedFd, relative: &str) -> Result<OwnedFd, Errno> {
    let (folders, name) = relative.rsplit_once('/').unwrap_or(("", relative));
    let mut folder = root;
    for name in folders.split('/').filter(|name| !name.is_empty()) {
        if name == ".." {
            return Err(Errno::NOENT);
        }
        folder = rustix::fs::openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    }
    if name == ".." {
        return Err(Errno::NOENT);
    }
    rustix::fs::openat(&folder, name, FLAGS | OFlags::NOFOLLOW, Mode::empty())
}
