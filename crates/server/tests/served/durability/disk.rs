//! Simulates power cuts, a full disk, a failing disk and a wrong clock: `disk.c` is preloaded into
//! the server.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::support::{Options, Server, USUAL, process, skip, until};

/// Folders on the simulated disk, relative to the server's folder.
const FOLDERS: [&str; 2] = ["disk/history", "disk/blocks"];

/// The size of a page in bytes: a simulated power cut keeps or loses whole pages.
const PAGE_BYTES: usize = 4096;

/// Faults of the disk, by their names in `disk.c`.
pub(super) const FULL: &str = "full";
pub(super) const WRITE_FAILS: &str = "write-fails";
pub(super) const FSYNC_FAILS: &str = "fsync-fails";

/// A server with its history and bans on a disk with simulated faults.
pub(super) struct OnDisk {
    pub(super) server: Server,
    routes: String,
    starts: u32,
}

/// The effect of a power cut on unsynced data.
pub(super) enum Unsynced<'r> {
    /// All unsynced data is lost.
    Gone,
    /// Some pages of the unsynced data are written, others not.
    Partly(&'r mut fastrand::Rng),
}

impl OnDisk {
    /// Starts a server whose clock is ahead by `ahead_s` seconds. `None` without a C compiler.
    pub(super) fn start(fsync: &str, ahead_s: i64) -> Option<Self> {
        let routes = format!("{}fsync = \"{fsync}\"\n", super::ROUTES);
        let shell = shell(ahead_s)?;
        let server = Server::prepared(USUAL, &options(&routes, &shell), |folder| {
            for name in ["platter", "disk/blocks"] {
                fs::create_dir_all(folder.join(name)).expect("a folder");
            }
        });
        Some(Self {
            server,
            routes,
            starts: 0,
        })
    }

    /// Restarts the server with a clock that is ahead by `ahead_s` seconds.
    pub(super) fn start_again(&mut self, ahead_s: i64) {
        let shell = shell(ahead_s).expect("it was there");
        self.server.start_again(&options(&self.routes, &shell));
    }

    fn platter(&self) -> PathBuf {
        self.server.folder.join("platter")
    }

    pub(super) fn begin(&self, fault: &str) {
        fs::write(self.platter().join(fault), "").expect("written");
    }

    pub(super) fn end(&self, fault: &str) {
        fs::remove_file(self.platter().join(fault)).expect("it had begun");
    }

    /// Returns whether a text in a file would survive a power cut.
    pub(super) fn has(&self, file: &str, text: &str) -> bool {
        let file = self.server.folder.join("disk").join(file);
        let inode = fs::metadata(file).map(|file| file.ino());
        let kept = inode.and_then(|inode| fs::read(self.platter().join(inode.to_string())));
        kept.is_ok_and(|kept| String::from_utf8_lossy(&kept).contains(text))
    }

    /// Stops the machine at an arbitrary point of the server's work.
    pub(super) fn halt(&self) {
        let pid = self.server.pid();
        // Keeps the supervisor from starting another server process.
        self.server.signal(Signal::STOP);
        process::end(pid);
        until("the server process to be gone", || !process::is_alive(pid));
    }

    /// Reduces the files to the data that survives on the disk, and restarts the machine.
    pub(super) fn lose_power(&mut self, mut unsynced: Unsynced<'_>) {
        self.server.kill_supervisor();
        let platter = self.platter();
        for folder in FOLDERS {
            fall_back(&self.server.folder.join(folder), &platter, &mut unsynced);
        }
        self.starts += 1;
        let boot = format!("00000000-0000-0000-0000-{:012}\n", self.starts);
        fs::write(platter.join("boot"), boot).expect("written");
    }
}

fn options<'o>(routes: &'o str, shell: &'o str) -> Options<'o> {
    Options {
        routes,
        shell,
        api: "blocks = \"disk/blocks/list\"",
        files: &[("secret", crate::jwt::SECRET)],
        ..Options::default()
    }
}

/// Returns the shell command that preloads the library.
fn shell(ahead_s: i64) -> Option<String> {
    let library = library()?;
    Some(format!(
        "here=$(pwd -P); export LD_PRELOAD='{}' VECHE_DISK=\"$here/disk\" VECHE_PLATTER=\"$here/platter\" \
         VECHE_AHEAD={ahead_s}",
        library.display()
    ))
}

/// Returns the preloaded library of simulated disk faults, compiled at the first call; `None` without a compiler.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/served/durability/disk.c");
        let library = std::env::temp_dir().join(format!("veche-disk-{}.so", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
        ]);
        match cc.arg(&library).arg(source).status() {
            Ok(status) => assert!(status.success(), "disk.c does not compile"),
            Err(error) => {
                skip(format_args!("no C compiler: {error}"));
                return None;
            }
        }
        Some(library)
    });
    made.as_deref()
}

/// Reverts a folder to the contents of the simulated disk, treats unsynced data according to
/// `unsynced`, and makes the result the new contents of the disk.
fn fall_back(folder: &Path, platter: &Path, unsynced: &mut Unsynced<'_>) {
    let of = |inode: u64| platter.join(inode.to_string());
    let inode = |path: &Path| fs::metadata(path).ok().map(|found| found.ino());
    let names = fs::read_to_string(of(inode(folder).expect("a folder"))).unwrap_or_default();
    let mut left = Vec::new();
    for line in names.lines() {
        let (number, name) = line.split_once(' ').expect("an inode and a name");
        let number = number.parse().expect("a number");
        let durable = fs::read(of(number)).unwrap_or_default();
        let path = folder.join(name);
        let written = match inode(&path) == Some(number) {
            true => fs::read(&path).expect("a file"),
            false => durable.clone(),
        };
        let bytes = match unsynced {
            Unsynced::Gone => durable,
            Unsynced::Partly(random) => mixed(&durable, &written, random),
        };
        left.push((path, bytes));
    }
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() && !left.iter().any(|(left, _)| *left == path) {
            fs::remove_file(path).expect("a file");
        }
    }
    let mut names = String::new();
    for (path, bytes) in left {
        fs::write(&path, &bytes).expect("written");
        let inode = inode(&path).expect("it is there");
        fs::write(of(inode), &bytes).expect("written");
        let name = path.file_name().expect("a name").to_string_lossy();
        names += &format!("{inode} {name}\n");
    }
    fs::write(of(inode(folder).expect("a folder")), names).expect("written");
}

/// Mixes pages of the durable and the written data, as if only some pages had been written.
fn mixed(durable: &[u8], written: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut lengths = [durable.len(), written.len()];
    lengths.sort_unstable();
    let length = match random.u8(..4) {
        0 => lengths[0],
        1 => random.usize(lengths[0]..=lengths[1]),
        _ => lengths[1],
    };
    let mut bytes = vec![0; length];
    for (number, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        let from = if random.bool() { durable } else { written };
        let at = number * PAGE_BYTES;
        let end = from.len().min(at + page.len());
        if at < end {
            page[..end - at].copy_from_slice(&from[at..end]);
        }
    }
    bytes
}
