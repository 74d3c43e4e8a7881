//! Files for the static handler. Files on disk are opened strictly below a root, and small ones are cached. Some pages
//! are built into the binary.
//!
//! This module does not depend on HTTP: `veche-frontends` maps requests to file names, and builds the responses.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rust_embed::{Embed, EmbeddedFile};
use rustix::fs::FileType;
use rustix::io::Errno;
use veche_frontends::static_files::{
    ContentCoding, File, FileContent, FileMetadata, Files, OpenError, OpenResult, ReadAt,
};

use crate::dev;

mod beneath;
mod cache;

use cache::{CacheKey, FileCache, FileVersion};

/// The largest file that is cached, in bytes.
pub(crate) const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// How long a cached file is used without a check, in milliseconds.
const FRESH_MS: u64 = 1000;

/// The largest page into which the developer's script is inserted, in bytes.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// The prefix of roots built into the binary.
const BUILTIN: &str = "builtin:";

/// The demo's pages. Debug builds read them from the folder at each request.
#[derive(Embed)]
#[folder = "../../web/demo"]
struct Demo;

/// The files of the admin page.
#[derive(Embed)]
#[folder = "../../web/admin"]
struct AdminPages;

/// Third-party files of the admin page and the demo, fetched by tests/setup/uplot.sh and centrifuge_page.sh. Without
/// them the admin page has no charts, and the demo has no SDK client.
#[derive(Embed)]
#[folder = "../../web/vendor"]
#[allow_missing = true]
struct Vendor;

/// Files that pages load under `veche dev`.
#[derive(Embed)]
#[folder = "../../web/dev"]
struct DevPages;

/// The files of all roots, as seen by one worker.
#[derive(Default)]
pub(crate) struct DiskFiles {
    cache: FileCache,
    /// Whether this is `veche dev`: the developer's script is added to pages, and every file is checked for changes at
    /// each request.
    dev: bool,
    /// Whether `openat2` is not available (an old kernel, a container's filter).
    is_openat2_refused: bool,
}

impl Files for DiskFiles {
    fn open(&mut self, root: &Path, relative: &str, now_ms: u64) -> Result<OpenResult, OpenError> {
        let name = CacheKey {
            relative,
            encoding: None,
        };
        let fresh_ms = if self.dev { 0 } else { FRESH_MS };
        if let Some(Some(file)) = self.cache.fresh(root, name, now_ms, fresh_ms) {
            return Ok(OpenResult::File(file));
        }
        match builtin(root) {
            Some(pages) => self.open_builtin(root, pages, relative, now_ms),
            None => self.open_on_disk(root, name, now_ms),
        }
    }

    fn open_variant(
        &mut self,
        root: &Path,
        relative: &str,
        encoding: ContentCoding,
        now_ms: u64,
    ) -> Result<Option<File>, OpenError> {
        // Built-in files have no compressed variants. Under `veche dev` variants are not used: they may belong to an
        // earlier build, and those of pages lack the developer's script.
        if self.dev || builtin(root).is_some() {
            return Ok(None);
        }
        let name = CacheKey {
            relative,
            encoding: Some(encoding),
        };
        if let Some(found) = self.cache.fresh(root, name, now_ms, FRESH_MS) {
            return Ok(found);
        }
        match self.open_on_disk(root, name, now_ms) {
            Ok(OpenResult::File(file)) => Ok(Some(file)),
            Ok(OpenResult::Folder) | Err(OpenError::NotFound) => {
                self.cache.insert(root, name, None, now_ms);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl DiskFiles {
    /// Creates an empty cache of files for one worker. `dev` adds the developer's script to pages.
    pub(crate) fn new(dev: bool) -> Self {
        Self {
            dev,
            ..Self::default()
        }
    }

    /// Opens the file on disk, and caches it if it is small.
    fn open_on_disk(
        &mut self,
        root: &Path,
        name: CacheKey<'_>,
        now_ms: u64,
    ) -> Result<OpenResult, OpenError> {
        let path: Cow<'_, str> = match name.encoding {
            None => name.relative.into(),
            Some(encoding) => format!("{}.{}", name.relative, encoding.extension()).into(),
        };
        let descriptor =
            beneath::open(root, &path, &mut self.is_openat2_refused).map_err(open_error)?;
        let stat = rustix::fs::fstat(&descriptor).map_err(open_error)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Ok(OpenResult::Folder),
            FileType::RegularFile => {}
            _ => return Err(OpenError::NotFound),
        }
        let version = FileVersion::of(&stat);
        if let Some(file) = self.cache.confirm(root, name, version, now_ms) {
            return Ok(OpenResult::File(file));
        }
        let stored = Stored(std::fs::File::from(descriptor));
        let is_page = self.dev && dev::is_page(name.relative);
        let small_bytes_max = if is_page {
            PAGE_BYTES_MAX
        } else {
            SMALL_FILE_BYTES_MAX
        };
        if version.len_bytes > small_bytes_max {
            let content = FileContent::OnDisk(Arc::new(stored));
            return Ok(OpenResult::File(describe(name, version, content)));
        }
        let mut bytes = Vec::with_capacity(version.len_bytes as usize + 1);
        while bytes.len() as u64 <= version.len_bytes {
            let room = version.len_bytes as usize + 1 - bytes.len();
            if stored.read_at(bytes.len() as u64, room, &mut bytes)? == 0 {
                break;
            }
        }
        let is_settled = bytes.len() as u64 == version.len_bytes;
        if is_settled && is_page {
            bytes.extend_from_slice(dev::TAG);
        }
        let version = version.with_len(bytes.len() as u64);
        let file = describe(name, version, FileContent::InMemory(bytes.into()));
        // A file whose length has changed is still being written. It is sent as far as it was read, and not cached.
        if is_settled {
            let found = Some((file.clone(), version));
            self.cache.insert(root, name, found, now_ms);
        }
        Ok(OpenResult::File(file))
    }

    fn open_builtin(
        &mut self,
        root: &Path,
        name: &str,
        relative: &str,
        now_ms: u64,
    ) -> Result<OpenResult, OpenError> {
        // Debug builds pass the name to the file system, so ".." must not reach it.
        if relative.split('/').any(|name| name == "..") {
            return Err(OpenError::NotFound);
        }
        let embedded = match name {
            "dev" => embedded::<DevPages>(relative)?,
            "demo" | "admin" => match (name, relative.strip_prefix("vendor/")) {
                (_, Some(theirs)) => embedded::<Vendor>(theirs)?,
                ("demo", None) => embedded::<Demo>(relative)?,
                (_, None) => embedded::<AdminPages>(relative)?,
            },
            _ => return Err(OpenError::NotFound),
        };
        let Some(embedded) = embedded else {
            return Ok(OpenResult::Folder);
        };
        let bytes = match embedded.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => bytes.into(),
        };
        let modified_unix_s = embedded.metadata.last_modified().unwrap_or(0);
        let len_bytes = bytes.len() as u64;
        let digest = &embedded.metadata.sha256_hash()[..16];
        let description = FileMetadata::of_digest(relative, len_bytes, modified_unix_s, digest);
        let file = File {
            metadata: Arc::new(description),
            content: FileContent::InMemory(bytes),
        };
        if len_bytes <= SMALL_FILE_BYTES_MAX {
            let name = CacheKey {
                relative,
                encoding: None,
            };
            let found = Some((file.clone(), FileVersion::builtin(len_bytes)));
            self.cache.insert(root, name, found, now_ms);
        }
        Ok(OpenResult::File(file))
    }
}

/// Returns the name of a root built into the binary.
fn builtin(root: &Path) -> Option<&str> {
    root.to_str()?.strip_prefix(BUILTIN)
}

/// Returns the built-in page at a path; `None` if the path is a folder of pages.
fn embedded<Pages: Embed>(relative: &str) -> Result<Option<EmbeddedFile>, OpenError> {
    let page = Pages::get(relative);
    let is_below = |name: &str| {
        let rest = name.strip_prefix(relative);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    if page.is_some() || relative.is_empty() || Pages::iter().any(|name| is_below(&name)) {
        Ok(page)
    } else {
        Err(OpenError::NotFound)
    }
}

fn describe(name: CacheKey<'_>, version: FileVersion, content: FileContent) -> File {
    let description = FileMetadata::of_file(
        name.relative,
        version.len_bytes,
        version.modified_unix_s,
        version.modified_ns,
    );
    let description = match name.encoding {
        None => description,
        Some(encoding) => description.encoded(encoding),
    };
    File {
        metadata: Arc::new(description),
        content,
    }
}

/// An open file on disk. If the file is too large for the cache, its content is read in parts as it is sent.
struct Stored(std::fs::File);

impl ReadAt for Stored {
    fn read_at(&self, offset: u64, bytes_max: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        let before = out.len();
        out.resize(before + bytes_max, 0);
        let result = loop {
            match rustix::io::pread(&self.0, &mut out[before..], offset) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        out.truncate(before + *result.as_ref().unwrap_or(&0));
        Ok(result?)
    }
}

fn open_error(errno: Errno) -> OpenError {
    match errno {
        // XDEV: openat2's error for leaving the root. LOOP: a link that must not be followed.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::NAMETOOLONG
        | Errno::XDEV
        | Errno::LOOP
        | Errno::NXIO
        | Errno::INVAL => OpenError::NotFound,
        Errno::ACCESS | Errno::PERM => OpenError::Denied,
        other => OpenError::Failed(other.into()),
    }
}

#[cfg(test)]
mod tests;
