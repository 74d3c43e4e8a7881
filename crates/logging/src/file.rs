//! A log file: appended to, rotated by size, and reopened on request.
//!
//! Several processes may append to one file (supervisor and server process, and two server processes during an
//! upgrade). The process that finds the file full locks the file and renames it. Before their next write, the other
//! processes notice that the name refers to another file, and switch to that file. This module does not interpret the
//! content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use veche_files::{Owner, PinnedPath, WriteOptions};

use crate::settings::Rotation;
use crate::sink::LineOutput;

/// Mode of log files. Logs contain addresses and names, so only the file's owner and group may read
/// them.
pub const MODE: u32 = 0o640;

/// An open log file.
pub(super) struct LogFile {
    path: PathBuf,
    rotation: Option<Rotation>,
    /// The owner of files that this process creates; `None`: the user of this process.
    owner: Option<Owner>,
    file: File,
}

impl LogFile {
    /// Opens `path` for appending, and creates it for `owner` if it is missing.
    pub(super) fn open(
        path: &Path,
        rotation: Option<Rotation>,
        owner: Option<Owner>,
    ) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            // Standard outputs and the null device are not rotated.
            rotation: rotation.filter(|_| standard(path).is_none()),
            owner,
            file: open(path, owner)?,
        })
    }

    /// Prepares for writing `length` more bytes: switches to the new file if another process has
    /// rotated, or rotates if the file is full.
    fn make_room(&mut self, length: usize) -> io::Result<()> {
        let Some(rotation) = self.rotation else {
            return Ok(());
        };
        if !self.is_in_place()? {
            self.open_next()?;
        }
        if self.is_full(rotation, length)? {
            // The lock is released when the file is closed, which happens after the next file has
            // been opened.
            flock(&self.file, FlockOperation::LockExclusive)?;
            // Another process may have rotated first.
            if self.is_in_place()? {
                shift(&self.path, rotation.keep)?;
            }
            self.open_next()?;
        }
        Ok(())
    }

    /// Switches to the file that `path` now names. If it can't be opened, the old file stays in
    /// use.
    fn open_next(&mut self) -> io::Result<()> {
        self.file = open(&self.path, self.owner)?;
        Ok(())
    }

    /// Returns whether `length` more bytes would exceed the maximum size. An empty file is never
    /// full, even if a batch is larger than the maximum.
    fn is_full(&self, rotation: Rotation, length: usize) -> io::Result<bool> {
        let bytes = self.file.metadata()?.len();
        Ok(bytes > 0 && bytes.saturating_add(length as u64) > rotation.bytes_max)
    }

    /// Returns whether `path` still names the open file.
    fn is_in_place(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        Ok(PinnedPath::open(&self.path)?.identity()? == Some((ours.dev(), ours.ino())))
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineOutput for LogFile {
    fn prepare(&mut self, length: usize) -> io::Result<()> {
        self.make_room(length)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open_next()
    }
}

/// Opens `/dev/stdout`, `/dev/stderr` (as containers name their standard outputs) or `/dev/null`, which can't be
/// created, checked or renamed. Returns `None` for any other path.
pub fn standard(path: &Path) -> Option<io::Result<OwnedFd>> {
    match path.to_str()? {
        "/dev/stdout" => Some(io::stdout().as_fd().try_clone_to_owned()),
        "/dev/stderr" => Some(io::stderr().as_fd().try_clone_to_owned()),
        "/dev/null" => Some(File::options().append(true).open(path).map(OwnedFd::from)),
        _ => None,
    }
}

fn open(path: &Path, owner: Option<Owner>) -> io::Result<File> {
    if let Some(output) = standard(path) {
        return Ok(output?.into());
    }
    let how = WriteOptions::new(MODE).append();
    let how = owner.map_or(how, |owner| how.owned_by(owner));
    Ok(how.open(path)?.file)
}

/// Renames `log` to `log.1`, `log.1` to `log.2` and so on. The last file, whose number is `keep`, is overwritten.
fn shift(path: &Path, keep: u32) -> io::Result<()> {
    let place = PinnedPath::open(path)?;
    let name = path.file_name().unwrap_or_default();
    // Stops at the first missing file, so that the cost depends on the existing files, not on
    // `keep`.
    let mut last = 0;
    while last < keep && place.has(&numbered(name, last + 1))? {
        last += 1;
    }
    for number in (1..=last.min(keep - 1)).rev() {
        place.rename(&numbered(name, number), &numbered(name, number + 1))?;
    }
    place.rename(name, &numbered(name, 1))
}

fn numbered(name: &OsStr, number: u32) -> OsString {
    let mut numbered = name.to_owned();
    numbered.push(format!(".{number}"));
    numbered
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("veche-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn log(&self) -> PathBuf {
            self.0.join("log")
        }

        /// Returns each file's content by name.
        fn files(&self) -> Vec<(String, String)> {
            let mut files: Vec<_> = fs::read_dir(&self.0)
                .expect("it is there")
                .map(|entry| {
                    let entry = entry.expect("readable");
                    let name = entry.file_name().into_string().expect("text");
                    (name, fs::read_to_string(entry.path()).expect("text"))
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
        files.iter().map(owned).collect()
    }

    fn say(file: &mut LogFile, line: &str) {
        file.prepare(line.len()).expect("room");
        file.write_all(line.as_bytes()).expect("written");
    }

    fn rotating(folder: &Folder, bytes_max: u64, keep: u32) -> LogFile {
        LogFile::open(&folder.log(), Some(Rotation { bytes_max, keep }), None).expect("it opens")
    }

    #[test]
    fn the_outputs_of_the_process_are_written_to_as_they_are() {
        for name in ["/dev/stdout", "/dev/stderr", "/dev/null"] {
            let rotation = Rotation {
                bytes_max: 1,
                keep: 1,
            };
            let owner = Owner {
                uid: 65_534,
                gid: 0,
            };
            let path = Path::new(name);
            let mut log = LogFile::open(path, Some(rotation), Some(owner)).expect("it is open");
            log.prepare(10).expect("nothing is renamed");
            log.reopen().expect("it is still open");
        }
    }

    #[test]
    fn a_full_file_is_renamed_and_the_oldest_goes() {
        let folder = Folder::new("rotate");
        let mut file = rotating(&folder, 8, 2);
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "longer than it may be\n",
            "4\n",
        ] {
            say(&mut file, line);
        }
        let left = [
            ("log", "4\n"),
            ("log.1", "longer than it may be\n"),
            ("log.2", "three\n"),
        ];
        assert_eq!(folder.files(), named(&left));
    }

    #[test]
    fn two_that_write_one_file_rotate_it_once_and_lose_nothing() {
        let folder = Folder::new("rotate-two");
        let write = |name: &'static str| {
            let mut file = rotating(&folder, 1000, 1000);
            move || (0..500).for_each(|number| say(&mut file, &format!("{name}{number:03}\n")))
        };
        let (one, other) = (write("a"), write("b"));
        std::thread::scope(|scope| {
            scope.spawn(one);
            scope.spawn(other);
        });
        let files = folder.files();
        let mut lines: Vec<&str> = files.iter().flat_map(|(_, text)| text.lines()).collect();
        lines.sort_unstable();
        let expected = ["a", "b"].map(|name| (0..500).map(move |n| format!("{name}{n:03}")));
        assert_eq!(lines, expected.into_iter().flatten().collect::<Vec<_>>());
        for (name, text) in &files {
            // Another process may write between this process's size check and its write.
            assert!(text.len() <= 1000 + 5, "{name} has {}", text.len());
        }
        // The lines have 5,000 bytes in total, and a file has at most 1,000. Two processes create
        // at most one file more than a single process.
        assert!((5..=6).contains(&files.len()), "{} files", files.len());
    }

    #[test]
    fn a_moved_file_is_written_until_a_reopen() {
        let folder = Folder::new("reopen");
        let mut file = LogFile::open(&folder.log(), None, None).expect("it opens");
        say(&mut file, "one\n");
        fs::rename(folder.log(), folder.0.join("old")).expect("moved");
        say(&mut file, "two\n");
        file.reopen().expect("it opens");
        say(&mut file, "three\n");
        let files = [("log", "three\n"), ("old", "one\ntwo\n")];
        assert_eq!(folder.files(), named(&files));
    }

    /// A symbolic link that replaces the log file causes an error, and the old file stays in use.
    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = Folder::new("link");
        let mut file = rotating(&folder, 1000, 2);
        say(&mut file, "one\n");
        fs::rename(folder.log(), folder.0.join("old")).expect("moved");
        std::os::unix::fs::symlink(folder.0.join("other"), folder.log()).expect("a link");
        let error = file.prepare(4).expect_err("a link");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(file.reopen().is_err());
        file.write_all(b"two\n").expect("written");
        fs::remove_file(folder.log()).expect("removed");
        assert_eq!(folder.files(), named(&[("old", "one\ntwo\n")]));
    }

    #[test]
    fn others_can_not_read_it() {
        let folder = Folder::new("mode");
        let file = rotating(&folder, 8, 2);
        let mode = file.file.metadata().expect("it is open").mode();
        assert_eq!(mode & 0o137, 0, "{mode:o}");
    }
}
