//! Whether the machine has gone down since the archive was last open, with something on its way to the disk.
//!
//! What was told to be durable, and heard of, can be gone then, unless each commit waited for the disk. Its offsets would
//! be given again, under an epoch that somebody knows them by. So streams get another epoch: whoever comes back is told
//! that something may be missing. A file beside the database says which start of the machine the archive was open in.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use veche_files::Writing;

use crate::options::Fsync;

const FILE: &str = "run";

/// More is none of ours, in bytes.
const TEXT_BYTES_MAX: u64 = 4096;

/// Of this start of the machine, as Linux names it.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What stands in the file where commits wait for the disk.
const WAITS: &str = "commit";

/// The last run ended with the machine, and may have lost what it had told to be durable: something to make other epochs
/// of, which is not 0.
pub(crate) fn lost(folder: &Path) -> io::Result<Option<u32>> {
    let mut text = String::new();
    match veche_files::read(&folder.join(FILE)) {
        Ok(file) => file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?,
        // It ended well, or never began.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = text.trim_end();
    let (boot, policy) = text.split_once(' ').unwrap_or((text, ""));
    let now = boot_id();
    let is_another = boot != now.trim_end();
    let seed = crc32fast::hash(format!("{boot} {now}").as_bytes());
    Ok((is_another && policy != WAITS).then_some(seed | 1))
}

/// It is open from now on.
pub(crate) fn begin(folder: &Path, fsync: Fsync) -> io::Result<()> {
    let policy = match fsync {
        Fsync::EveryCommit => WAITS,
        Fsync::Interval(_) | Fsync::Never => "later",
    };
    let new = folder.join("run.new");
    let mut file = Writing::private().make_anew(&new)?;
    writeln!(file, "{} {policy}", boot_id().trim_end())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

/// All of it is on the disk.
pub(crate) fn end(folder: &Path) {
    // Where that fails the next start of the machine makes new epochs, which is safe.
    let _ = fs::remove_file(folder.join(FILE));
}

fn boot_id() -> String {
    // Without one each run looks like the last.
    fs::read_to_string(BOOT).unwrap_or_default()
}

/// Another epoch, which is as many bits long.
pub(crate) fn other(epoch: u64, seed: u32) -> u64 {
    match epoch ^ u64::from(seed) {
        // Nothing is known by that one.
        0 => 2,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_epoch_is_never_zero_and_never_the_same() {
        assert_eq!(other(5, 3), 6);
        assert_eq!(other(u64::MAX, 1), u64::MAX - 1);
        assert_eq!(other(3, 3), 2);
    }

    #[test]
    fn each_start_of_the_machine_makes_other_epochs() {
        let folder = std::env::temp_dir().join(format!("veche-archive-run-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let seed = |text: &str| {
            fs::write(folder.join(FILE), text).expect("written");
            lost(&folder).expect("read")
        };
        let first = seed("first later\n").expect("another start");
        let second = seed("second later\n").expect("another start");
        assert!(first & second & 1 == 1, "{first} {second}");
        assert!(first != second && first > 1 && second > 1);
        assert_eq!(seed("first commit\n"), None);
        assert!(seed("first\n").is_some(), "no policy is none that waits");
        assert_eq!(seed(&boot_id()), None);
        begin(&folder, Fsync::Never).expect("written");
        assert_eq!(lost(&folder).expect("read"), None);
        end(&folder);
        assert_eq!(lost(&folder).expect("none"), None);
        let _ = fs::remove_dir_all(&folder);
    }
}
