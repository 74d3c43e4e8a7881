//! The files of one authority: the account, certificates with their keys, and the history of
//! orders.
//!
//! Every file is written to a temporary path and then renamed, and only its owner can read it. A
//! lock on the folder ensures that only one process orders at a time, for example during an
//! upgrade.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use veche_config::Config;
use veche_files::{WriteOptions, make_folder};

use super::timing::OrderHistory;

/// Maximum length of a file in bytes; a longer one was not written by this crate.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The folder of one authority.
#[derive(Clone, Debug)]
pub(super) struct CertificateFolder(PathBuf);

/// The exclusive right to order certificates. Released when it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct OrderLock {
    _file: File,
}

impl CertificateFolder {
    /// Returns the folder at a path, whether it exists or not.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Takes the lock; `None` if another process has it.
    pub(super) fn lock(&self) -> io::Result<Option<OrderLock>> {
        make_folder(&self.0, None)?;
        let file = WriteOptions::private().open(&self.0.join("lock"))?.file;
        match file.try_lock() {
            Ok(()) => Ok(Some(OrderLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns the stored account with its key.
    pub(super) fn account(&self) -> Option<String> {
        read(&self.0.join("account.json")).ok()
    }

    pub(super) fn save_account(&self, account: &str) -> io::Result<()> {
        replace(&self.0.join("account.json"), account)
    }

    /// Sets an account aside under another name, since the authority has no such account any more.
    pub(super) fn forget_account(&self) -> io::Result<()> {
        fs::rename(
            self.0.join("account.json"),
            self.0.join("account.json.lost"),
        )
    }

    /// Returns the history of orders for the certificate stored as `file`.
    pub(super) fn attempts(&self, file: &Path) -> OrderHistory {
        let text = read(&attempts_of(file)).ok();
        let read = text.and_then(|text| serde_json::from_str(&text).ok());
        read.unwrap_or_default()
    }

    pub(super) fn save_attempts(&self, file: &Path, attempts: &OrderHistory) -> io::Result<()> {
        replace(&attempts_of(file), &serde_json::to_string(attempts)?)
    }

    /// Writes a certificate and its key, both PEM, to a temporary file and passes its path to
    /// `check`. If `check` succeeds, renames the file to `file`. Returns the result of `check`.
    pub(super) fn save_certificate<T>(
        &self,
        file: &Path,
        text: &str,
        check: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Result<T, String> {
        let beside = beside(file);
        let with_path = |error: io::Error| format!("{}: {error}", file.display());
        write(&beside, text).map_err(with_path)?;
        let found = check(&beside)?;
        fs::rename(&beside, file).map_err(with_path)?;
        Ok(found)
    }
}

/// Creates the configured folder, if one is needed. Has to run before the process enters the sandbox, in which it could
/// not create the folder.
pub fn prepare(config: &Config) -> io::Result<()> {
    match config.ordered().is_empty() {
        true => Ok(()),
        false => make_folder(&config.acme.folder(), None),
    }
}

/// Returns the file of a certificate's order history.
pub(super) fn attempts_of(file: &Path) -> PathBuf {
    file.with_extension("attempts")
}

/// Returns the temporary path of a file.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let beside = beside(file);
    write(&beside, text)?;
    fs::rename(beside, file)
}

/// Creates a new file. An existing one is replaced, because other users might be able to read it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = WriteOptions::private().replace(path)?;
    file.write_all(text.as_bytes())?;
    // After a power loss the file must not be incomplete.
    file.sync_all()
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    veche_files::read(path)?
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_the_owners_and_one_orders_at_a_time() {
        let above = std::env::temp_dir().join(format!("veche-acme-{}", std::process::id()));
        let path = above.join("authority");
        fs::create_dir_all(&above).expect("a folder");
        let folder = CertificateFolder::new(path.clone());
        assert_eq!(folder.account(), None);
        let lock = folder.lock().expect("a folder").expect("it is free");
        assert!(folder.lock().expect("there").is_none());
        drop(lock);
        assert!(folder.lock().expect("there").is_some());

        folder.save_account("key").expect("kept");
        folder.save_account("other").expect("kept");
        assert_eq!(folder.account().as_deref(), Some("other"));
        folder.forget_account().expect("there");
        assert_eq!(folder.account(), None);

        let file = path.join("a.example.pem");
        assert_eq!(folder.attempts(&file), OrderHistory::default());
        let attempts = OrderHistory::issued(&["a.example".to_owned()], 7);
        folder.save_attempts(&file, &attempts).expect("kept");
        assert_eq!(folder.attempts(&file), attempts);
        fs::write(path.join("a.example.attempts"), "nonsense").expect("written");
        assert_eq!(folder.attempts(&file), OrderHistory::default());

        // A file that others could read is replaced, not written to.
        fs::write(beside(&file), "").expect("written");
        fs::set_permissions(beside(&file), fs::Permissions::from_mode(0o644)).expect("set");
        let bad = folder.save_certificate(&file, "x", |_| Err::<(), _>("no".to_owned()));
        assert!(bad.is_err() && !file.exists());
        folder
            .save_certificate(&file, "x", |_| Ok(()))
            .expect("kept");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for entry in fs::read_dir(&path).expect("readable") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|end| end != "attempts") {
                assert_eq!(mode(&path), 0o600, "{path:?}");
            }
        }
        assert_eq!(mode(&path), 0o700);
        let _ = fs::remove_dir_all(&above);
    }
}
