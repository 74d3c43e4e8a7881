//! An exclusive lock on the folder. The lock belongs to the kernel, which releases it however the
//! process ends.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process;

use crate::error::Error;
use crate::run_state;

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Locks the folder for this process.
    pub(crate) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("lock");
        let failed = |source| Error::Io {
            path: path.clone(),
            source,
        };
        let opened = run_state::private(folder).and_then(|writing| writing.open(&path));
        let mut file = opened.map_err(failed)?.file;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path: PathBuf = folder.into();
                let pid = fs::read_to_string(folder.join("lock"));
                let pid = pid.ok().and_then(|text| text.trim().parse().ok());
                return Err(Error::InUse { path, pid });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The process id is only informational, so a full disk does not prevent the start.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", process::id()));
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child process that is just starting briefly has a copy of the descriptor, so closing
        // ours would not release the lock.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_though_a_process_being_started_has_a_copy() {
        let folder = std::env::temp_dir().join(format!("veche-archive-lock-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let lock = Lock::take(&folder).expect("free");
        let copy = lock.file.try_clone().expect("a copy");
        assert!(matches!(
            Lock::take(&folder),
            Err(Error::InUse { pid: Some(_), .. })
        ));
        drop(lock);
        drop(Lock::take(&folder).expect("free again"));
        drop(copy);
        let _ = fs::remove_dir_all(&folder);
    }
}
