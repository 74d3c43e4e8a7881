//! The source of static files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

mod metadata;

pub use metadata::FileMetadata;

/// A source of files. One per worker, so it may cache without locks.
pub trait Files {
    /// Opens `relative` below `root`: names joined by `/`, none of them empty, `.` or `..`, without NUL and backslash;
    /// or empty for the root itself. Nothing outside of `root` may be opened, regardless of links and concurrent
    /// changes; a link that stays inside may be followed. Anything but files and folders is not found. `now_ms` is
    /// monotonic, for caches.
    ///
    /// # Errors
    /// [`OpenError`]; overlong names, a file in place of a folder and links out of the root are
    /// [`OpenError::NotFound`].
    fn open(&mut self, root: &Path, relative: &str, now_ms: u64) -> Result<OpenResult, OpenError>;

    /// Opens the variant of a file in that coding, stored beside it under its name with the coding's
    /// [extension](ContentCoding::extension); `None` if there is none. The rules of [`Files::open`] apply, and the metadata
    /// are those of an [encoded](FileMetadata::encoded) file under the name of the file itself.
    ///
    /// # Errors
    /// [`OpenError::Denied`] and [`OpenError::Failed`].
    fn open_variant(
        &mut self,
        root: &Path,
        relative: &str,
        encoding: ContentCoding,
        now_ms: u64,
    ) -> Result<Option<File>, OpenError>;
}

/// The result of opening a path.
#[derive(Clone)]
pub enum OpenResult {
    /// A folder, with or without an index.
    Folder,
    /// The path is a regular file.
    File(File),
}

/// An open or cached file.
#[derive(Clone)]
pub struct File {
    /// The metadata of this version.
    pub metadata: Arc<FileMetadata>,
    /// The location of its bytes.
    pub content: FileContent,
}

/// The location of a file's bytes.
#[derive(Clone)]
pub enum FileContent {
    /// The whole content in memory.
    InMemory(Bytes),
    /// To be read in pieces as the client takes them.
    OnDisk(Arc<dyn ReadAt>),
}

/// A file read in pieces.
pub trait ReadAt: Send + Sync {
    /// Appends at most `bytes_max` bytes from `offset` on; 0 only at the end, which comes early if the file has shrunk:
    /// the connection then has to be closed, since the length was announced.
    ///
    /// # Errors
    /// Errors of the file system.
    fn read_at(&self, offset: u64, bytes_max: usize, out: &mut Vec<u8>) -> io::Result<usize>;
}

/// Why nothing was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No servable file: 404.
    #[error("not found")]
    NotFound,
    /// The server may not read it: 403, and logged.
    #[error("permission denied")]
    Denied,
    /// A local failure such as no descriptors left: 500, and logged.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The coding of a precompressed variant, such as `app.js.br` beside `app.js`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// `br`, Brotli (RFC 7932).
    Brotli,
    /// The coding `gzip` (RFC 1952).
    Gzip,
}

impl ContentCoding {
    /// All codings, the usually smaller first.
    pub const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    /// Returns its name in `Accept-Encoding`, `Content-Encoding` and the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the file extension of variants, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// Returns whether a coding of `Accept-Encoding` is this one; names are case-insensitive (section 8.4.1).
    pub(crate) fn is_called(self, coding: &str) -> bool {
        coding.eq_ignore_ascii_case(self.name())
            // Section 8.4.1.3.
            || self == Self::Gzip && coding.eq_ignore_ascii_case("x-gzip")
    }
}
