//! The user that the server process runs as, when the supervisor runs as root: who it is, and which files are its own.
//!
//! Users and groups of this machine are looked up in `/etc/passwd` and `/etc/group`; those of a directory service are
//! named by their numbers.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{getegid, geteuid};
use veche_files::{Owner, WriteOptions, make_folder};
use veche_logging::{self as logging, FILE_MODE};

use crate::types::{Config, RunAs};

/// Why the server process can't run as somebody else.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// There is nobody of that name.
    #[error(
        "server.{what}: there is no {what} {name:?} on this machine; a number is taken as it is"
    )]
    Unknown {
        /// "user" or "group"
        what: &'static str,
        /// As the configuration names it
        name: String,
    },
    /// Only root can change who it is.
    #[error(
        "server.user: only root can run the server process as {0}; start veche as root or as that user"
    )]
    NotRoot(String),
    /// The system's error.
    #[error("server.user: {file} can't be read: {source}")]
    Io {
        /// The file of users or groups
        file: &'static str,
        /// Why it can't be read
        source: io::Error,
    },
}

/// What can be done with a file, or in a folder: bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRight {
    /// To search a folder on the way to something in it
    Enter = 0o1,
    /// To write to it, or make files in it
    Write = 0o2,
    /// To read what is in it
    Read = 0o4,
}

/// Somebody whom the supervisor, being root, gives the server process to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The number of the user
    pub uid: u32,
    /// The number of its group
    pub gid: u32,
}

impl Account {
    /// Finds whom a configuration names; `None` if nobody, or if that is who we are already.
    pub fn of(run_as: Option<&RunAs>) -> Result<Option<Self>, AccountError> {
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
            what,
            name: name.to_owned(),
        };
        let uid = uid.ok_or_else(|| unknown("user", user))?;
        let gid = match group {
            // A number without an entry has the group of that number, as by convention.
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
        Err(AccountError::NotRoot(user.clone()))
    }

    /// As files that are made for it know it.
    pub fn owner(&self) -> Owner {
        Owner {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Makes the log files that a configuration names, if they are not there, and has them belong to it: in a folder
    /// of root's it could not make them itself. Those that are there stay whose they are; all of them are looked at, and
    /// the first fault is told.
    pub fn own_logs(&self, config: &Config) -> io::Result<()> {
        let access = config.access_log.as_ref().map(|log| &log.file);
        let files = config.server.log.file.iter().chain(access);
        let owned = files.map(|file| {
            self.own(file)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
        });
        owned.fold(Ok(()), io::Result::and)
    }

    /// Makes the folders of certificates that are ordered, of history and of tables, if they are not there, and has them
    /// belong to it. One that is there stays whose it is: a mistake in its path should give nothing away.
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
                "server.user can't write it, it belongs to user {}: give it away (chown) or remove it",
                about.uid()
            ))),
        }
    }

    /// Whether it has that right to a file or folder, and may enter the folders on the way there.
    pub fn may_reach(&self, path: &Path, right: AccessRight) -> bool {
        // Of what the names lead to, links followed.
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

    /// Whether it has that right to a file of that owner and mode. It has no supplementary groups.
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
    /// The fields of its line.
    Line(Vec<String>),
    Nothing,
}

fn read(file: &'static str) -> Result<String, AccountError> {
    fs::read_to_string(file).map_err(|source| AccountError::Io { file, source })
}

/// What `name` stands for among lines of fields between colons.
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

/// The group of the user with that number.
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
    fn nobody_named_is_nobody_to_become() {
        assert_eq!(Account::of(None).expect("no error"), None);
    }

    #[test]
    fn who_is_not_there_is_told() {
        let error = |run_as| {
            let found = Account::of(Some(&run_as));
            found.expect_err("nobody").to_string()
        };
        assert_eq!(
            error(run_as("veche-has-no-such-user", None)),
            "server.user: there is no user \"veche-has-no-such-user\" on this machine; a number is taken as it is"
        );
        assert!(
            error(run_as("root", Some("veche-has-none")))
                .starts_with("server.group: there is no group")
        );
    }

    #[test]
    fn what_it_may_write() {
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
