//! Finds the process that holds a file lock, in `/proc/locks`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{major, minor};

/// Returns the process that holds a lock on an open file (`flock`), if visible to this process.
#[must_use]
pub fn lock_holder(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let device = about.dev();
    parse_holder(&locks, major(device), minor(device), about.ino())
}

/// Finds the holder of a lock in the text of `/proc/locks`. A line is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF`;
/// lines of waiting processes begin with `1: -> FLOCK`.
fn parse_holder(locks: &str, major: u32, minor: u32, inode: u64) -> Option<u32> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, found, ..] if found == file => {
                // 0 and -1 stand for processes of other PID namespaces.
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_holds_it_is_named() {
        let locks = "1: POSIX  ADVISORY  READ 1 fe:00:131 128 128\n\
                     2: FLOCK  ADVISORY  WRITE 0 fe:00:132 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 5 fe:00:131 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF\n\
                     nonsense\n";
        assert_eq!(parse_holder(locks, 0xfe, 0, 131), Some(4711));
        assert_eq!(parse_holder(locks, 0xfe, 0, 132), None);
        assert_eq!(parse_holder(locks, 0xfe, 1, 131), None);
    }

    #[test]
    fn this_process_is_found() {
        let path = std::env::temp_dir().join(format!("veche-holder-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        assert_eq!(lock_holder(&file), None);
        file.lock().expect("free");
        assert_eq!(lock_holder(&file), Some(std::process::id()));
        let _ = fs::remove_file(&path);
    }
}
