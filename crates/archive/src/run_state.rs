//! Whether the machine has gone down since the archive was last open, with something on its way to the disk.
//!
//! What was told to be durable, and heard of, can be gone then, unless each commit waited for the disk. Its offsets would
//! be given again, under an epoch that somebody knows them by. So streams get another epoch: whoever comes back is told
//! that something may be missing. A file beside the database says which start of the machine the archive was open in.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use veche_files::{Owner, WriteOptions};

use crate::options::FsyncPolicy;

const FILE: &str = "run";

/// What is written there, in bytes: as long as it has to be, and within one sector.
const TEXT_BYTES: usize = 63;

/// More is none of ours, in bytes.
const TEXT_BYTES_MAX: u64 = 4096;

/// Of this start of the machine, as Linux names it.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What stands in the file where commits wait for the disk.
const COMMITTING: &str = "commit";

/// What stands there for a start of the machine that is not known; none has that name.
const UNKNOWN: &str = "unknown";

/// What stands in the file while the archive is not open.
const ENDED: &str = "ended";

/// What stands there where epochs are to be renewed, or the database is to be set aside.
const RENEW: &str = "renew";
const DAMAGED: &str = "damaged";

/// Which start of the machine this is, as Linux names it. `None` where that can't be read, as inside a sandbox: read it
/// before.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string(BOOT).ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// How the last run ended, as far as the next one has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastRun {
    /// What was told to be durable is there, or was never there.
    Whole,
    /// With the machine: what was told to be durable may be gone. A start of the machine that is not known is another
    /// one.
    Lost,
    /// Whatever is there is another one's past: [`renew_epochs`](crate::renew_epochs).
    Renew,
    /// The database could be read and not be written.
    Damaged,
}

pub(crate) fn last(folder: &Path, boot: Option<&str>) -> io::Result<LastRun> {
    let mut text = String::new();
    match veche_files::read(&folder.join(FILE)) {
        Ok(file) => file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?,
        // It never began.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LastRun::Whole),
        Err(error) => return Err(error),
    };
    let text = text.trim_end();
    let (then, policy) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match text {
        ENDED => LastRun::Whole,
        RENEW => LastRun::Renew,
        DAMAGED => LastRun::Damaged,
        _ if boot != Some(then) && policy != COMMITTING => LastRun::Lost,
        _ => LastRun::Whole,
    })
}

/// It is open from now on.
pub(crate) fn begin(folder: &Path, boot: Option<&str>, fsync: FsyncPolicy) -> io::Result<()> {
    let policy = match fsync {
        FsyncPolicy::EveryCommit => COMMITTING,
        FsyncPolicy::Interval(_) | FsyncPolicy::Never => "later",
    };
    write(folder, &format!("{} {policy}", boot.unwrap_or(UNKNOWN)))?.sync_all()?;
    File::open(folder)?.sync_all()
}

/// All of it is on the disk.
pub(crate) fn end(folder: &Path) {
    // Where that fails the next start of the machine makes new epochs, which is safe.
    let _ = write(folder, ENDED);
}

/// The next start makes new epochs.
pub(crate) fn renew(folder: &Path) -> io::Result<()> {
    write(folder, RENEW)?.sync_all()?;
    File::open(folder)?.sync_all()
}

/// The next start has to do without the database.
pub(crate) fn damaged(folder: &Path) {
    // Where that fails the next start finds out by itself.
    let _ = write(folder, DAMAGED);
}

/// In place, and always as long: that takes no room, so a full disk does not keep it from being written.
fn write(folder: &Path, text: &str) -> io::Result<File> {
    let file = private(folder)?.open(&folder.join(FILE))?.file;
    file.write_all_at(format!("{text:<TEXT_BYTES$}\n").as_bytes(), 0)?;
    file.set_len(TEXT_BYTES as u64 + 1)?;
    Ok(file)
}

/// Files are for the owner of the folder, also where root makes them.
pub(crate) fn private(folder: &Path) -> io::Result<WriteOptions> {
    let found = fs::metadata(folder)?;
    let (uid, gid) = (found.uid(), found.gid());
    Ok(WriteOptions::private().owned_by(Owner { uid, gid }))
}

/// Why epochs are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalCause {
    /// The log showed that commits are lost.
    Log,
    /// The machine has gone down.
    Machine,
    /// It was asked for.
    Asked,
}

/// Makes other epochs of those that clients know. Random, so that no two renewals make the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal(NonZeroU32);

impl Renewal {
    pub(crate) fn random() -> io::Result<Self> {
        loop {
            let bits = getrandom::u32().map_err(io::Error::from)?;
            if let Some(bits) = NonZeroU32::new(bits) {
                return Ok(Self(bits));
            }
        }
    }

    /// Another epoch, which is as many bits long.
    pub(crate) fn apply(self, epoch: u64) -> u64 {
        match epoch ^ u64::from(self.0.get()) {
            // Nothing is known by that one.
            0 => 2,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_epoch_is_never_zero_and_never_the_same() {
        let of = |bits, epoch| Renewal(NonZeroU32::new(bits).expect("some")).apply(epoch);
        assert_eq!(of(3, 5), 6);
        assert_eq!(of(1, u64::MAX), u64::MAX - 1);
        assert_eq!(of(3, 3), 2);
    }

    #[test]
    fn only_the_same_start_of_the_machine_has_lost_nothing() {
        let folder = std::env::temp_dir().join(format!("veche-archive-run-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let is_lost = |boot| last(&folder, boot).expect("read") == LastRun::Lost;
        begin(&folder, Some("first"), FsyncPolicy::Never).expect("written");
        assert!(!is_lost(Some("first")));
        assert!(is_lost(Some("second")));
        assert!(is_lost(None));
        begin(&folder, None, FsyncPolicy::Never).expect("written");
        assert!(
            is_lost(None),
            "an unknown start is not the same as another unknown one"
        );
        assert!(is_lost(Some("first")));
        begin(&folder, Some("first"), FsyncPolicy::EveryCommit).expect("written");
        assert!(!is_lost(Some("second")) && !is_lost(None));
        // As it was written inside the sandbox once.
        fs::write(folder.join(FILE), " later\n").expect("written");
        assert!(is_lost(Some("first")) && is_lost(None));
        fs::write(folder.join(FILE), "first\n").expect("written");
        assert!(is_lost(Some("second")), "no policy is none that waits");
        end(&folder);
        assert!(!is_lost(Some("second")));
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn the_start_of_this_machine_is_known() {
        let id = boot_id().expect("Linux");
        assert_eq!((id.len(), boot_id().as_ref()), (36, Some(&id)));
    }
}
