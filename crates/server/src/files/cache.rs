//! A worker's cache of small files.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use rustix::fs::Stat;
use veche_frontends::static_files::{ContentCoding, File, FileContent};

/// Maximum total size of the cached content in bytes.
const CACHE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum number of cached files, including variants known to be missing.
const CACHE_FILES_MAX: usize = 4096;

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    pub(super) len_bytes: u64,
    pub(super) modified_unix_s: u64,
    pub(super) modified_ns: u32,
    /// The time of the file's last change of any kind (`st_ctime`). Programs can't set this time back.
    changed: (i64, u64),
    device: u64,
    inode: u64,
}

impl FileVersion {
    // The types of the fields of `Stat` differ between architectures, so on some of them a conversion has
    // no effect.
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

    /// Returns this version with the length `len_bytes`.
    pub(super) const fn with_len(self, len_bytes: u64) -> Self {
        Self { len_bytes, ..self }
    }

    /// Returns the version of a file in the binary, which never changes.
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

/// Files by root, relative path and encoding. When the cache is full, the oldest entries are evicted.
#[derive(Default)]
pub(super) struct FileCache {
    roots: HashMap<Box<Path>, CachedRoot>,
    order: VecDeque<(Box<Path>, Box<str>, Option<ContentCoding>)>,
    bytes: usize,
}

/// The cached files of a root. Compressed variants are stored under the names of the uncompressed files.
#[derive(Default)]
struct CachedRoot {
    files: HashMap<Box<str>, CachedFile>,
    brotli: HashMap<Box<str>, CachedFile>,
    gzip: HashMap<Box<str>, CachedFile>,
}

impl CachedRoot {
    fn of(&self, encoding: Option<ContentCoding>) -> &HashMap<Box<str>, CachedFile> {
        match encoding {
            None => &self.files,
            Some(ContentCoding::Brotli) => &self.brotli,
            Some(ContentCoding::Gzip) => &self.gzip,
        }
    }

    fn of_mut(&mut self, encoding: Option<ContentCoding>) -> &mut HashMap<Box<str>, CachedFile> {
        match encoding {
            None => &mut self.files,
            Some(ContentCoding::Brotli) => &mut self.brotli,
            Some(ContentCoding::Gzip) => &mut self.gzip,
        }
    }
}

/// The name of a file below a root: its relative path, and the encoding if a compressed variant is meant.
#[derive(Clone, Copy)]
pub(super) struct CacheKey<'n> {
    pub(super) relative: &'n str,
    pub(super) encoding: Option<ContentCoding>,
}

struct CachedFile {
    /// The file with its version; `None` if the file does not exist.
    found: Option<(File, FileVersion)>,
    checked_ms: u64,
}

impl CachedFile {
    fn bytes(&self) -> usize {
        match &self.found {
            Some((file, _)) => match &file.content {
                FileContent::InMemory(bytes) => bytes.len(),
                FileContent::OnDisk(_) => 0,
            },
            None => 0,
        }
    }
}

impl FileCache {
    /// Returns the cached result of a look-up that is less than `fresh_ms` old: a file, or `Some(None)` if the file
    /// does not exist. Returns `None` if there is no such result.
    pub(super) fn fresh(
        &self,
        root: &Path,
        name: CacheKey<'_>,
        now_ms: u64,
        fresh_ms: u64,
    ) -> Option<Option<File>> {
        let files = self.roots.get(root)?.of(name.encoding);
        let entry = files.get(name.relative)?;
        (now_ms.saturating_sub(entry.checked_ms) < fresh_ms)
            .then(|| entry.found.as_ref().map(|(file, _)| file.clone()))
    }

    /// Returns the cached file if its version is still `version`, and renews the time of its check.
    pub(super) fn confirm(
        &mut self,
        root: &Path,
        name: CacheKey<'_>,
        version: FileVersion,
        now_ms: u64,
    ) -> Option<File> {
        let files = self.roots.get_mut(root)?.of_mut(name.encoding);
        let entry = files.get_mut(name.relative)?;
        let (file, _) = entry.found.as_ref().filter(|(_, kept)| *kept == version)?;
        entry.checked_ms = now_ms;
        Some(file.clone())
    }

    /// Stores the result of a look-up, replacing the previous one.
    pub(super) fn insert(
        &mut self,
        root: &Path,
        name: CacheKey<'_>,
        found: Option<(File, FileVersion)>,
        now_ms: u64,
    ) {
        let CacheKey { relative, encoding } = name;
        let entry = CachedFile {
            found,
            checked_ms: now_ms,
        };
        self.bytes += entry.bytes();
        if !self.roots.contains_key(root) {
            self.roots.insert(root.into(), CachedRoot::default());
        }
        let folder = self
            .roots
            .get_mut(root)
            .expect("the folder was stored there just before");
        match folder.of_mut(encoding).insert(relative.into(), entry) {
            Some(former) => self.bytes -= former.bytes(),
            None => self
                .order
                .push_back((root.into(), relative.into(), encoding)),
        }
        while self.bytes > CACHE_BYTES_MAX || self.order.len() > CACHE_FILES_MAX {
            let Some((root, relative, encoding)) = self.order.pop_front() else {
                break;
            };
            let folder = self.roots.get_mut(&root);
            if let Some(gone) = folder.and_then(|f| f.of_mut(encoding).remove(&relative)) {
                self.bytes -= gone.bytes();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.bytes, self.order.len())
    }
}
