//! The account of the server process if the supervisor runs as root: its user and group, and the files that it owns.
//!
//! Local users and groups are looked up in `/etc/passwd` and `/etc/group`; those of a directory service have to be
//! given by number.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{getegid, geteuid};
use veche_files::{Owner, WriteOptions, make_folder};
use veche_logging::{self as logging, FILE_MODE};

use crate::types::{AppConfig, Config, RunAs};

/// The reason why the server process can't run as another user.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The user or group does not exist.
    #[error(
        "{of}{what}: this machine has no {what} {name:?}; if the {what} has no local entry, configure its number"
    )]
    Unknown {
        /// The configuration section that names the account, as a prefix such as `server.`.
        of: String,
        /// The kind of account: "user" or "group".
        what: &'static str,
        /// The configured name of the user or group.
        name: String,
    },
    /// Only root can change the user.
    #[error("{of}user: only root can run {what} as {name}; start veche as root or as that user")]
    NotRoot {
        /// The configuration section that names the account, as a prefix such as `server.`.
        of: String,
        /// The process that is configured to run as another user.
        what: &'static str,
        /// The name of that other user, as configured.
        name: String,
    },
    /// A file of users or groups can't be read.
    #[error("user: {file} can't be read: {source}")]
    Io {
        /// The path of the list of users or groups, such as `/etc/passwd`.
        file: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// An access right to a file or folder, as a bit of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRight {
    /// Search a folder. This right is needed to open a file in the folder.
    Enter = 0o1,
    /// Write to a file, or create files in a folder.
    Write = 0o2,
    /// Read a file, or list a folder.
    Read = 0o4,
}

/// The account that the supervisor, running as root, gives the server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The numeric user id of the server process.
    pub uid: u32,
    /// The numeric group id of the server process.
    pub gid: u32,
}

impl Account {
    /// Looks up the configured account of the server process; `None` if no account is configured, or if this process is
    /// not root and already runs as that account.
    pub fn of(run_as: Option<&RunAs>) -> Result<Option<Self>, AccountError> {
        Self::find(run_as, "server.", "the server process")
    }

    /// Returns the account of an application's processes. If none is configured, this is `server`, the account of the
    /// server process. `None` means that the processes keep the account of the supervisor.
    pub fn of_app(app: &AppConfig, server: Option<&Self>) -> Result<Option<Self>, AccountError> {
        let run_as = app.processes.as_ref().and_then(|one| one.run_as.as_ref());
        match run_as {
            None => Ok(server.cloned()),
            run_as => Self::find(run_as, &format!("app {:?}: ", app.name), "its processes"),
        }
    }

    fn find(
        run_as: Option<&RunAs>,
        of: &str,
        runs: &'static str,
    ) -> Result<Option<Self>, AccountError> {
        let Some(RunAs { user, group }) = run_as else {
            return Ok(None);
        };
        let passwd = read("/etc/passwd")?;
        let (uid, own_gid) = match number_or_line(user, &passwd) {
            AccountLookup::Number(uid) => (Some(uid), own_group(uid, &passwd)),
            AccountLookup::Line(fields) => (field(&fields, 2), field(&fields, 3)),
            AccountLookup::Nothing => (None, None),
        };
        let unknown = |what, name: &str| AccountError::Unknown {
            of: of.to_owned(),
            what,
            name: name.to_owned(),
        };
        let uid = uid.ok_or_else(|| unknown("user", user))?;
        let gid = match group {
            // By convention, a user id without an entry in /etc/passwd has the group of the same number.
            None => own_gid.unwrap_or(uid),
            Some(group) => match number_or_line(group, &read("/etc/group")?) {
                AccountLookup::Number(gid) => Some(gid),
                AccountLookup::Line(fields) => field(&fields, 2),
                AccountLookup::Nothing => None,
            }
            .ok_or_else(|| unknown("group", group))?,
        };
        let (us, ours) = (geteuid(), getegid());
        if us.is_root() {
            return Ok(Some(Self { uid, gid }));
        }
        if (us.as_raw(), ours.as_raw()) == (uid, gid) {
            return Ok(None);
        }
        Err(AccountError::NotRoot {
            of: of.to_owned(),
            what: runs,
            name: user.clone(),
        })
    }

    /// Returns the owner for files created for the account.
    pub fn owner(&self) -> Owner {
        Owner {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Creates missing log files owned by the account, which could not create them itself in a
    /// folder owned by root. Existing files keep their owner. Continues after an error and returns
    /// the first one.
    pub fn own_logs(&self, config: &Config) -> io::Result<()> {
        let access = config.access_log.as_ref().map(|log| &log.file);
        let files = config.server.log.file.iter().chain(access);
        let owned = files.map(|file| {
            self.own(file)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
        });
        owned.fold(Ok(()), io::Result::and)
    }

    /// Creates missing folders for ordered certificates, history and tables, owned by the account. Existing folders
    /// keep their owner, so that a wrong path exposes no other folder.
    pub fn own_cache(&self, config: &Config) -> io::Result<()> {
        if !config.ordered().is_empty() {
            make_folder(&config.acme.folder(), Some(self.owner()))?;
        }
        let history = config.history.iter().map(|history| &history.path);
        let mut folders = history.chain(&config.server.snapshots);
        folders.try_for_each(|folder| make_folder(folder, Some(self.owner())))
    }

    fn own(&self, path: &Path) -> io::Result<()> {
        if logging::standard(path).is_some() {
            return Ok(());
        }
        let how = WriteOptions::new(FILE_MODE).append().owned_by(self.owner());
        let opened = how.open(path)?;
        let about = opened.file.metadata()?;
        match self.may(AccessRight::Write, about.uid(), about.gid(), about.mode()) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "server.user can't write to it, because it belongs to user {}: change its owner (chown) or remove it",
                about.uid()
            ))),
        }
    }

    /// Returns whether the account has a right to a file or folder, and may search the folders above it.
    pub fn may_reach(&self, path: &Path, right: AccessRight) -> bool {
        // Links are resolved first: access rights are those of their target.
        let Ok(path) = path.canonicalize() else {
            return false;
        };
        let may = |path: &Path, right| {
            fs::metadata(path)
                .is_ok_and(|about| self.may(right, about.uid(), about.gid(), about.mode()))
        };
        may(&path, right)
            && path
                .ancestors()
                .skip(1)
                .all(|folder| may(folder, AccessRight::Enter))
    }

    /// Returns whether the account has a right to a file with that owner and mode. Assumes that the account has no
    /// supplementary groups.
    fn may(&self, right: AccessRight, uid: u32, gid: u32, mode: u32) -> bool {
        let bit = right as u32;
        self.uid == 0
            || match (uid == self.uid, gid == self.gid) {
                (true, _) => mode & (bit << 6) != 0,
                (false, true) => mode & (bit << 3) != 0,
                (false, false) => mode & bit != 0,
            }
    }
}

enum AccountLookup {
    Number(u32),
    /// The fields of the matching line.
    Line(Vec<String>),
    Nothing,
}

fn read(file: &'static str) -> Result<String, AccountError> {
    fs::read_to_string(file).map_err(|source| AccountError::Io { file, source })
}

/// Returns the id if `name` is a number, or else the line whose first field is `name`. Fields are separated by colons.
fn number_or_line(name: &str, lines: &str) -> AccountLookup {
    if let Ok(number) = name.parse() {
        return AccountLookup::Number(number);
    }
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let mut lines = lines.lines().map(fields);
    match lines.find(|fields| fields.first().is_some_and(|first| first == name)) {
        Some(fields) => AccountLookup::Line(fields),
        None => AccountLookup::Nothing,
    }
}

/// Returns the primary group of a user id.
fn own_group(uid: u32, passwd: &str) -> Option<u32> {
    let mut users = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let user =
        users.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid))?;
    user.get(3)?.parse().ok()
}

fn field(fields: &[String], place: usize) -> Option<u32> {
    fields.get(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_as(user: &str, group: Option<&str>) -> RunAs {
        RunAs {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        }
    }

    #[test]
    fn without_a_user_the_account_stays() {
        assert_eq!(Account::of(None).expect("no error"), None);
    }

    #[test]
    fn missing_accounts_are_reported() {
        let error = |run_as| {
            let found = Account::of(Some(&run_as));
            found.expect_err("an error").to_string()
        };
        assert_eq!(
            error(run_as("veche-has-no-such-user", None)),
            "server.user: this machine has no user \"veche-has-no-such-user\"; if the user has no local entry, configure its number"
        );
        assert!(
            error(run_as("root", Some("veche-has-none")))
                .starts_with("server.group: this machine has no group")
        );
    }

    #[test]
    fn writable_paths_of_the_account() {
        let account = Account { uid: 5, gid: 6 };
        for (uid, gid, mode, may) in [
            (5, 6, 0o640, true),
            (5, 0, 0o440, false),
            (0, 6, 0o660, true),
            (0, 6, 0o640, false),
            (0, 0, 0o662, true),
            (0, 0, 0o640, false),
        ] {
            assert_eq!(
                account.may(AccessRight::Write, uid, gid, mode),
                may,
                "{uid} {gid} {mode:o}"
            );
        }
    }

    #[test]
    fn names_and_numbers() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1001:Ann:/ann:/bin/sh\n";
        assert!(matches!(
            number_or_line("1000", passwd),
            AccountLookup::Number(1000)
        ));
        let AccountLookup::Line(fields) = number_or_line("ann", passwd) else {
            panic!("she is there");
        };
        assert_eq!(
            (field(&fields, 2), field(&fields, 3)),
            (Some(1000), Some(1001))
        );
        assert!(matches!(
            number_or_line("an", passwd),
            AccountLookup::Nothing
        ));
        assert_eq!(own_group(1000, passwd), Some(1001));
        assert_eq!(own_group(7, passwd), None);
    }
}
