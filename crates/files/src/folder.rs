//! Creation of private folders.

use std::io;
use std::path::Path;

use rustix::fs::{Dir, FileType, Gid, Mode, OFlags, Uid, fchown, fstat, mkdirat, openat, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::pinned_path::PinnedPath;
use crate::write::Owner;

/// The mode of new folders: access for the owner only.
const MODE: u32 = 0o700;

/// Creates a folder and its parent if they don't exist, private to their owner (0700). New folders are owned by
/// `owner`, which requires root; existing ones are unchanged.
///
/// # Errors
/// Returns a system error with the path, or [`FileFault::UntrustedLink`](crate::FileFault::UntrustedLink).
pub fn make_folder(path: &Path, owner: Option<Owner>) -> io::Result<()> {
    let above = path.parent().filter(|above| above.file_name().is_some());
    for path in above.into_iter().chain([path]) {
        make(path, owner).map_err(|error| {
            let words = format!("{}: {error}", path.display());
            io::Error::new(error.kind(), words)
        })?;
    }
    Ok(())
}

fn make(path: &Path, owner: Option<Owner>) -> io::Result<()> {
    if stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir()) {
        return Ok(());
    }
    let place = PinnedPath::open(path)?;
    match mkdirat(place.folder(), place.name(), Mode::from_raw_mode(MODE)) {
        Ok(()) => {}
        Err(Errno::EXIST)
            if stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir()) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    let Some(Owner { uid, gid }) = owner else {
        return Ok(());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(place.folder(), place.name(), flags, Mode::empty())?;
    // The owner of the parent folder may have replaced the new folder in the meantime. So the
    // ownership is changed only if the folder is empty and belongs to the user of this process.
    let is_ours = fstat(&folder)?.st_uid == geteuid().as_raw();
    let mut entries = Dir::read_from(&folder)?;
    let is_own_name = |name: &[u8]| matches!(name, b"." | b"..");
    let is_empty = entries
        .by_ref()
        .all(|entry| entry.is_ok_and(|entry| is_own_name(entry.file_name().to_bytes())));
    if !is_ours || !is_empty {
        return Err(crate::FileFault::Unstable.into());
    }
    Ok(fchown(
        &folder,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
    )?)
}
