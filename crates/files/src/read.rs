//! Opens files for reading, such as certificates, keys, secrets and configurations.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};

use crate::fault::check_kind;
use crate::walk::walk;

/// Opens a regular file for reading. Symbolic links are followed, since the certificates of ACME
/// clients and mounted secrets consist of links. For root, a link is followed only if it is owned by
/// root or by the owner of the file.
///
/// # Errors
/// A system error; [`FileFault::NotRegular`](crate::FileFault::NotRegular),
/// [`FileFault::UntrustedLink`](crate::FileFault::UntrustedLink).
pub fn read(path: &Path) -> io::Result<File> {
    let found = walk(path, true)?;
    let check = |about| {
        check_kind(&about)?;
        found.check_owner(&about)
    };
    // The kind of file is checked before opening, because opening a device can have side effects.
    check(statat(
        &found.folder,
        &found.name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)?;
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&found.folder, &found.name, flags, Mode::empty())?;
    check(fstat(&file)?)?;
    Ok(file.into())
}
