//! Small files in memory, of one worker.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use rustix::fs::Stat;
use veche_frontends::static_files::{Content, File};

/// Bytes of content that are kept in all.
const CACHE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Files that are kept in all, however small.
const CACHE_FILES_MAX: usize = 4096;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) len_bytes: u64,
    pub(super) modified_unix_s: u64,
    pub(super) modified_ns: u32,
    /// The time of the last change of any kind, which nobody can set back.
    changed: (i64, u64),
    device: u64,
    inode: u64,
}

impl Version {
    // The field types differ between architectures.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_unix_s: u64::try_from(stat.st_mtime).unwrap_or(0),
            modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
        }
    }

    /// The same, of a file that turned out to have another length.
    pub(super) const fn with_len(self, len_bytes: u64) -> Self {
        Self { len_bytes, ..self }
    }

    /// Of a file in the binary, which has one state only.
    pub(super) const fn builtin(len_bytes: u64) -> Self {
        Self {
            len_bytes,
            modified_unix_s: 0,
            modified_ns: 0,
            changed: (0, 0),
            device: 0,
            inode: 0,
        }
    }
}

/// The files, by root and relative path. When it is full, those go that came first.
#[derive(Default)]
pub(super) struct Cache {
    roots: HashMap<Box<Path>, HashMap<Box<str>, Entry>>,
    order: VecDeque<(Box<Path>, Box<str>)>,
    bytes: usize,
}

struct Entry {
    file: File,
    version: Version,
    checked_ms: u64,
}

impl Entry {
    fn bytes(&self) -> usize {
        if let Content::Whole(bytes) = &self.file.content {
            bytes.len()
        } else {
            0
        }
    }
}

impl Cache {
    /// A file that was looked at less than `fresh_ms` ago.
    pub(super) fn fresh(
        &self,
        root: &Path,
        relative: &str,
        now_ms: u64,
        fresh_ms: u64,
    ) -> Option<File> {
        let entry = self.roots.get(root)?.get(relative)?;
        (now_ms.saturating_sub(entry.checked_ms) < fresh_ms).then(|| entry.file.clone())
    }

    /// The kept file, if it is still in that state.
    pub(super) fn confirm(
        &mut self,
        root: &Path,
        relative: &str,
        version: Version,
        now_ms: u64,
    ) -> Option<File> {
        let entry = self.roots.get_mut(root)?.get_mut(relative)?;
        if entry.version != version {
            return None;
        }
        entry.checked_ms = now_ms;
        Some(entry.file.clone())
    }

    /// Keeps a file, in place of its former state.
    pub(super) fn insert(
        &mut self,
        root: &Path,
        relative: &str,
        version: Version,
        file: File,
        now_ms: u64,
    ) {
        let entry = Entry {
            file,
            version,
            checked_ms: now_ms,
        };
        self.bytes += entry.bytes();
        let replaced = match self.roots.get_mut(root) {
            Some(files) => files.insert(relative.into(), entry),
            None => self
                .roots
                .entry(root.into())
                .or_default()
                .insert(relative.into(), entry),
        };
        match replaced {
            Some(former) => self.bytes -= former.bytes(),
            None => self.order.push_back((root.into(), relative.into())),
        }
        while self.bytes > CACHE_BYTES_MAX || self.order.len() > CACHE_FILES_MAX {
            let Some((root, relative)) = self.order.pop_front() else {
                break;
            };
            if let Some(gone) = self
                .roots
                .get_mut(&root)
                .and_then(|files| files.remove(&relative))
            {
                self.bytes -= gone.bytes();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.bytes, self.order.len())
    }
}
