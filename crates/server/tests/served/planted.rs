//! Tests files that a server process, running as another user, plants in place of files that its supervisor opens as
//! root.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::Signal;

use crate::support::{Options, Server, USUAL, get, skip, until};

/// The id of Debian's user `nobody`.
const NOBODY: u32 = 65_534;

const SECRET: &str = "of root\n";

/// A planted file in place of a log.
#[derive(Clone, Copy, Debug)]
enum Plant {
    Symlink,
    HardLink,
    Fifo,
    Device,
    Folder,
}

impl Plant {
    const ALL: [Self; 5] = [
        Self::Symlink,
        Self::HardLink,
        Self::Fifo,
        Self::Device,
        Self::Folder,
    ];

    /// Returns the description of this kind of file in errors.
    fn words(self) -> &'static str {
        match self {
            Self::Symlink => "symbolic link",
            Self::HardLink => "several names",
            Self::Fifo => "FIFO",
            Self::Device => "device",
            Self::Folder => "folder",
        }
    }

    fn put(self, at: &Path, secret: &Path) {
        match self {
            Self::Symlink => symlink(secret, at).expect("a link"),
            Self::HardLink => fs::hard_link(secret, at).expect("a link"),
            Self::Fifo => {
                mknodat(CWD, at, FileType::Fifo, Mode::from(0o666), 0).expect("a FIFO");
            }
            // A device like /dev/null, which accepts everything.
            Self::Device => {
                let mode = Mode::from(0o666);
                mknodat(CWD, at, FileType::CharacterDevice, mode, makedev(1, 3)).expect("a device");
            }
            Self::Folder => fs::create_dir(at).expect("a folder"),
        }
    }

    fn remove(self, at: &Path) {
        match self {
            Self::Folder => fs::remove_dir(at).expect("removed"),
            _ => fs::remove_file(at).expect("removed"),
        }
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("files of another user take root");
    }
    is_root
}

fn secret_in(folder: &Path) -> PathBuf {
    let secret = folder.join("secret");
    fs::write(&secret, SECRET).expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    secret
}

#[track_caller]
fn assert_untouched(secret: &Path, plant: Plant) {
    let about = fs::metadata(secret).expect("there");
    let owner_and_mode = (about.uid(), about.mode() & 0o777);
    assert_eq!(owner_and_mode, (0, 0o600), "{plant:?}");
    let text = fs::read_to_string(secret).expect("text");
    assert_eq!(text, SECRET, "{plant:?}");
}

const LOGS: Options<'_> = Options {
    limits: "",
    listen: "",
    api: "",
    routes: "[access_log]\nfile = \"logs/access.log\"\n",
    descriptors: None,
    shell: "",
    server: "user = \"nobody\"\nlog_file = \"logs/veche.log\"",
    log: "",
    files: &[],
};

/// Creates the folder of logs, owned by the server process's user, as in packages.
fn logs_owned_by_nobody(folder: &Path) {
    fs::create_dir_all(folder.join("logs")).expect("a folder");
    chown(folder.join("logs"), Some(NOBODY), Some(NOBODY)).expect("given");
}

#[test]
fn a_reopened_log_is_checked_again() {
    if !is_root() {
        return;
    }
    let server = Server::prepared(USUAL, &LOGS, logs_owned_by_nobody);
    let secret = secret_in(&server.folder);
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    // A planted file is reported when its owner is to be changed and each time it is reopened. The
    // supervisor and the server process both reopen `veche.log`.
    for (name, count) in [("veche.log", 3), ("access.log", 2)] {
        let (log, old) = (
            server.folder.join("logs").join(name),
            server.folder.join("logs").join(format!("{name}.old")),
        );
        fs::rename(&log, &old).expect("moved");
        for plant in Plant::ALL {
            let kept = if name == "veche.log" {
                old.clone()
            } else {
                server.folder.join("logs/veche.log")
            };
            let mentions = || text(&kept).matches(plant.words()).count();
            let before = mentions();
            // The server may have handled the previous signal only now, and created the file again.
            let _ = fs::remove_file(&log);
            plant.put(&log, &secret);
            server.signal(Signal::USR1);
            until("the plant to be told", || mentions() >= before + count);
            assert!(server.ask("status").is_some(), "{plant:?}: it hangs");
            assert_eq!(get(server.public, "/index.html").status, 200);
            assert_untouched(&secret, plant);
            plant.remove(&log);
        }
        server.signal(Signal::USR1);
        until("a file of its own", || {
            get(server.public, "/index.html");
            fs::symlink_metadata(&log)
                .is_ok_and(|about| about.is_file() && about.uid() == NOBODY && about.len() > 0)
        });
    }
}

#[test]
fn a_log_in_a_folder_that_leads_elsewhere_is_not_made_there() {
    if !is_root() {
        return;
    }
    let options = Options {
        server: "user = \"nobody\"\nlog_file = \"spool/logs/veche.log\"",
        routes: "",
        ..LOGS
    };
    let server = Server::prepared(USUAL, &options, |folder| {
        for name in ["spool", "spool/logs"] {
            fs::create_dir_all(folder.join(name)).expect("a folder");
            chown(folder.join(name), Some(NOBODY), Some(NOBODY)).expect("given");
        }
        fs::create_dir_all(folder.join("cron.d")).expect("a folder");
    });
    let (logs, elsewhere) = (
        server.folder.join("spool/logs"),
        server.folder.join("cron.d"),
    );
    let moved = server.folder.join("spool/moved");
    fs::rename(&logs, &moved).expect("moved");
    symlink(&elsewhere, &logs).expect("a link");
    std::os::unix::fs::lchown(&logs, Some(NOBODY), Some(NOBODY)).expect("given");
    server.signal(Signal::USR1);
    until("the link to be told", || {
        fs::read_to_string(moved.join("veche.log"))
            .is_ok_and(|text| text.contains("symbolic link owned by another user"))
    });
    let made = fs::read_dir(&elsewhere).expect("a folder").count();
    assert_eq!(made, 0, "something was made in a folder of root's");
    assert!(server.ask("status").is_some());
}

/// If a planted file is in place of the log, a reload is rejected and a start fails. The answer to the reload and the
/// error output of the start name the kind of the planted file.
#[test]
fn a_start_and_a_reload_report_planted_log_files() {
    if !is_root() {
        return;
    }
    let server = Server::prepared(USUAL, &LOGS, logs_owned_by_nobody);
    let secret = secret_in(&server.folder);
    let log = server.folder.join("logs/other.log");
    for plant in Plant::ALL {
        plant.put(&log, &secret);
        server.configure(&Options {
            server: "user = \"nobody\"\nlog_file = \"logs/other.log\"",
            ..LOGS
        });
        let answer = server.ask("reload").expect("an answer");
        let text = answer.to_string();
        assert!(text.contains(plant.words()), "{plant:?}: {text}");
        assert_untouched(&secret, plant);
        server.configure(&Options {
            server: "user = \"nobody\"\nlog_file = \"logs/other.log\"\ncontrol = \"other.sock\"",
            ..LOGS
        });
        let output = server.command(&["serve"]).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(plant.words()),
            "{plant:?}: {text}"
        );
        assert_untouched(&secret, plant);
        plant.remove(&log);
    }
}
