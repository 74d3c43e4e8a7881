//! The trait through which static files are read.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

mod metadata;

pub use metadata::FileMetadata;

/// A source of files. Each worker has its own, so that it may cache without locks.
pub trait Files {
    /// Opens `relative` below `root`. `relative` is empty for the root itself; otherwise it consists of names joined
    /// by `/`, none of which is empty, `.` or `..` or contains NUL or a backslash. Nothing outside of `root` may be
    /// opened, regardless of links and concurrent changes; a link to a target inside may be followed. Anything but
    /// regular files and folders is [`OpenError::NotFound`]. `now_ms` is monotonic, for caches.
    ///
    /// # Errors
    /// [`OpenError`]. Names that are too long, paths below a file, and links that lead out of the root are
    /// [`OpenError::NotFound`].
    fn open(&mut self, root: &Path, relative: &str, now_ms: u64) -> Result<OpenResult, OpenError>;

    /// Opens the precompressed variant of a file in a coding: a file beside it with the same name and the coding's
    /// [extension](ContentCoding::extension). Returns `None` if there is none. The rules of [`Files::open`] apply;
    /// the metadata is that of an [encoded](FileMetadata::encoded) file under the name of the original.
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
    /// A folder, whether or not it has an index file.
    Folder,
    /// The path is a regular file.
    File(File),
}

/// An open or cached file.
#[derive(Clone)]
pub struct File {
    /// The metadata of this version of the file.
    pub metadata: Arc<FileMetadata>,
    /// The content, or the means to read it.
    pub content: FileContent,
}

/// The content of a file, or the means to read it.
#[derive(Clone)]
pub enum FileContent {
    /// The whole content in memory.
    InMemory(Bytes),
    /// The file is read in pieces as the client reads the response.
    OnDisk(Arc<dyn ReadAt>),
}

/// A file read in pieces.
pub trait ReadAt: Send + Sync {
    /// Reads at most `bytes_max` bytes at `offset`, appends them to `out`, and returns their number, which is 0 only at
    /// the end of the file. If the file has shrunk, its end comes earlier than the announced length, and the caller has
    /// to close the connection.
    ///
    /// # Errors
    /// Errors of the file system.
    fn read_at(&self, offset: u64, bytes_max: usize, out: &mut Vec<u8>) -> io::Result<usize>;
}

/// The reason why a path was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file, or it can't be served. The response is 404.
    #[error("not found")]
    NotFound,
    /// The server has no permission to read the file. The response is 403, and a message is logged.
    #[error("permission denied")]
    Denied,
    /// A local failure, such as a lack of descriptors. The response is 500, and a message is logged.
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
    /// All codings, in the order of the usual size of variants, smallest first.
    pub const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    /// Returns the coding's name, as used in `Accept-Encoding`, `Content-Encoding` and the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the file extension of the coding's variants, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// Returns whether a name in `Accept-Encoding` means this coding; names are case-insensitive (RFC 9110 section
    /// 8.4.1).
    pub(crate) fn is_called(self, coding: &str) -> bool {
        coding.eq_ignore_ascii_case(self.name())
            // RFC 9110 section 8.4.1.3: `x-gzip` is equivalent to `gzip`.
            || self == Self::Gzip && coding.eq_ignore_ascii_case("x-gzip")
    }
}
