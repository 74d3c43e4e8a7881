//! Files that are read: certificates, keys, secrets, configurations.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};

use crate::fault::check_kind;
use crate::walk::walk;

/// Opens a regular file to be read. Symbolic links are followed, as certificates of ACME clients and mounted secrets need
/// them; by root only links of root's, and those that lead to a file of the link's own user.
///
/// # Errors
/// The system's; [`Fault::NotRegular`](crate::Fault::NotRegular), [`Fault::LinkOf`](crate::Fault::LinkOf).
pub fn read(path: &Path) -> io::Result<File> {
    let found = walk(path, true)?;
    let judge = |about| {
        check_kind(&about)?;
        found.check_owner(&about)
    };
    // Before it is opened, since that alone can have an effect on a device.
    judge(statat(
        &found.folder,
        &found.name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)?;
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&found.folder, &found.name, flags, Mode::empty())?;
    judge(fstat(&file)?)?;
    Ok(file.into())
}
