//! Detects whether the machine went down while the archive was open, so that data may not have
//! reached the disk.
//!
//! Unless each commit is synced, a crash of the machine can lose data that was reported as durable
//! and that clients have seen. Its offsets would be assigned again under an epoch that clients
//! know. So streams get new epochs, from which returning clients learn that publications may be
//! missing. A file beside the database records the boot in which the archive was open.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use veche_files::{Owner, WriteOptions};

use crate::options::FsyncPolicy;

const FILE: &str = "run";

/// Length of the text in the `run` file in bytes: long enough for each text, and within one disk sector.
const TEXT_BYTES: usize = 63;

/// Maximum length of the `run` file in bytes; a longer file was not written by this program.
const TEXT_BYTES_MAX: u64 = 4096;

/// The file with Linux's id of the current boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The word after the boot id in the `run` file if each commit is synced.
const COMMITTING: &str = "commit";

/// The word in place of the boot id in the `run` file if the boot id can't be read. No boot has this id.
const UNKNOWN: &str = "unknown";

/// Content of the `run` file while the archive is closed.
const ENDED: &str = "ended";

/// Content of the `run` file if epochs are to be renewed.
const RENEW: &str = "renew";

/// Content of the `run` file if the database is to be set aside.
const DAMAGED: &str = "damaged";

/// Returns Linux's id of the current boot; `None` if the id can't be read. It must be read before the sandbox is
/// entered, because a sandboxed process can't read it.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string(BOOT).ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// How the last run ended, and so what the next run has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastRun {
    /// All data reported as durable is present.
    Whole,
    /// The machine went down, so data reported as durable may be lost. If the boot ID is unknown, a reboot is
    /// assumed.
    Lost,
    /// The operator has called [`renew_epochs`](crate::renew_epochs), for example after restoring a backup.
    Renew,
    /// The last run found the database damaged and could not write to it.
    Damaged,
}

pub(crate) fn last(folder: &Path, boot: Option<&str>) -> io::Result<LastRun> {
    let mut text = String::new();
    match veche_files::read(&folder.join(FILE)) {
        Ok(file) => file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?,
        // There was no earlier run.
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

/// Records that the archive is open.
pub(crate) fn begin(folder: &Path, boot: Option<&str>, fsync: FsyncPolicy) -> io::Result<()> {
    let policy = match fsync {
        FsyncPolicy::EveryCommit => COMMITTING,
        FsyncPolicy::Interval(_) | FsyncPolicy::Never => "later",
    };
    write(folder, &format!("{} {policy}", boot.unwrap_or(UNKNOWN)))?.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Records in the `run` file that all data is on disk.
pub(crate) fn end(folder: &Path) {
    // If this fails, the first start after a reboot renews the epochs, which does no harm.
    let _ = write(folder, ENDED);
}

/// Makes the next start renew the epochs.
pub(crate) fn renew(folder: &Path) -> io::Result<()> {
    write(folder, RENEW)?.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Makes the next start report the database as damaged.
pub(crate) fn damaged(folder: &Path) {
    // If this fails, the next start detects the damage itself.
    let _ = write(folder, DAMAGED);
}

/// Overwrites the file in place. The length is constant, so this works on a full disk.
fn write(folder: &Path, text: &str) -> io::Result<File> {
    let file = private(folder)?.open(&folder.join(FILE))?.file;
    file.write_all_at(format!("{text:<TEXT_BYTES$}\n").as_bytes(), 0)?;
    file.set_len(TEXT_BYTES as u64 + 1)?;
    Ok(file)
}

/// Returns options for private files that belong to the owner of the folder, even if root creates
/// them.
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
    /// The machine went down.
    Machine,
    /// The operator requested new epochs.
    Asked,
}

/// Derives the new epoch of each stream from its current one. The difference is random, so that two renewals yield different
/// epochs.
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

    /// Returns the new epoch for `epoch`. Only the lowest 32 bits change, so an epoch that fits into 32 bits still does.
    pub(crate) fn apply(self, epoch: u64) -> u64 {
        match epoch ^ u64::from(self.0.get()) {
            // An epoch of zero would mean that no position is known.
            0 if epoch == 2 => 3,
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
        assert_eq!(of(2, 2), 3);
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
        // A `run` file as earlier versions wrote it in a sandbox, where the boot id is unknown.
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
