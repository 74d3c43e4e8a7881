//! Where static files come from: the trait, and what it gives.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

mod metadata;

pub use metadata::FileMetadata;

/// Where files come from. One per worker, so it may cache without locks.
pub trait Files {
    /// Opens what lies at `relative` below `root`: names joined by `/`, none of them empty, `.` or `..`, without NUL
    /// and backslash; or nothing, for the root itself. However files and links are arranged, and whoever changes them
    /// meanwhile, nothing outside of `root` may be opened; a link that stays inside may be followed. What is neither
    /// file nor folder is not found. `now_ms` is monotonic, for caches.
    ///
    /// # Errors
    /// [`OpenError`]; names that are too long, a file where a folder should be and links out of the root are
    /// [`OpenError::NotFound`].
    fn open(&mut self, root: &Path, relative: &str, now_ms: u64) -> Result<OpenResult, OpenError>;

    /// Opens the variant of a file in that coding, which lies beside it under its name with the coding's
    /// [extension](ContentCoding::extension); `None` if there is none. The rules of [`Files::open`] hold, and the description
    /// is one of an [encoded](FileMetadata::encoded) file under the name of the file itself.
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

/// What was found at a path.
#[derive(Clone)]
pub enum OpenResult {
    /// A folder, with or without an index.
    Folder,
    /// A regular file.
    File(File),
}

/// A file that is open or cached.
#[derive(Clone)]
pub struct File {
    /// What is said about it.
    pub metadata: Arc<FileMetadata>,
    /// What it holds.
    pub content: FileContent,
}

/// Where a file's bytes are.
#[derive(Clone)]
pub enum FileContent {
    /// In memory, whole.
    InMemory(Bytes),
    /// To be read as the client takes them.
    OnDisk(Arc<dyn ReadAt>),
}

/// A file that is read in pieces.
pub trait ReadAt: Send + Sync {
    /// Appends at most `bytes_max` bytes from `offset` on; 0 only at the end, which comes early if the file has
    /// shrunk: the connection then has to be closed, as the length was promised.
    ///
    /// # Errors
    /// Of the file system.
    fn read_at(&self, offset: u64, bytes_max: usize, out: &mut Vec<u8>) -> io::Result<usize>;
}

/// Why nothing was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there that may be served: 404.
    #[error("not found")]
    NotFound,
    /// It is there and the server may not read it: 403, and worth a log line.
    #[error("permission denied")]
    Denied,
    /// Our own trouble, such as no descriptors left: 500, and worth a log line.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The coding of a precompressed variant, such as `app.js.br` beside `app.js`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// `br`, Brotli (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl ContentCoding {
    /// All of them, the usually smaller first.
    pub const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    /// Returns its name as `Accept-ContentCoding`, `FileContent-ContentCoding` and the configuration have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the ending of a variant's name, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// Whether a coding of `Accept-ContentCoding` is this one; names are case-insensitive (section 8.4.1).
    pub(crate) fn is_called(self, coding: &str) -> bool {
        coding.eq_ignore_ascii_case(self.name())
            // Section 8.4.1.3.
            || self == Self::Gzip && coding.eq_ignore_ascii_case("x-gzip")
    }
}
