//! Metadata of a file, computed once per version of the file.

use std::time::{Duration, SystemTime};

use super::ContentCoding;

/// Metadata of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// The length of the file in bytes.
    pub len_bytes: u64,
    /// The media type by extension, with `charset=utf-8` for text.
    pub content_type: Box<str>,
    /// The entity tag, quoted.
    pub etag: Box<str>,
    /// The modification time, formatted for the `Last-Modified` header.
    pub last_modified: Box<str>,
    /// The modification time in seconds since 1970.
    pub modified_unix_s: u64,
    /// The coding of the file's content; `None`: unencoded.
    pub encoding: Option<ContentCoding>,
}

impl FileMetadata {
    /// Creates the metadata of a file on disk. The entity tag is strong: it contains the modification time in
    /// nanoseconds and the length. Two versions have the same tag only if they are of equal length and were written
    /// within one tick of the kernel's clock (4 ms); a client notices nothing unless it requested the file between
    /// the two writes.
    #[must_use]
    pub fn of_file(name: &str, len_bytes: u64, modified_unix_s: u64, modified_ns: u32) -> Self {
        Self::new(
            name,
            len_bytes,
            modified_unix_s,
            &format!("{modified_unix_s:x}.{modified_ns:x}-{len_bytes:x}"),
        )
    }

    /// Creates the metadata of a file from the digest of its content, which becomes the entity tag.
    #[must_use]
    pub fn of_digest(name: &str, len_bytes: u64, modified_unix_s: u64, digest: &[u8]) -> Self {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::new(name, len_bytes, modified_unix_s, &hex)
    }

    fn new(name: &str, len_bytes: u64, modified_unix_s: u64, tag: &str) -> Self {
        // Times before 1970 are passed as 0. Years after 9999 can't be formatted, so later times are limited to the
        // end of that year.
        let modified_unix_s = modified_unix_s.min(253_402_300_799);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified_unix_s);
        Self {
            len_bytes,
            content_type: content_type(name).into(),
            etag: format!("\"{tag}\"").into(),
            last_modified: httpdate::fmt_http_date(modified).into(),
            modified_unix_s,
            encoding: None,
        }
    }

    /// Converts the metadata to that of a variant in this coding. The media type remains that of the unencoded file;
    /// the name of the coding is appended to the entity tag. Some tools (`brotli`) round the modification time that
    /// they copy to the variant to seconds; two variants built within one second then have the same tag if their
    /// lengths are equal.
    #[must_use]
    pub fn encoded(mut self, encoding: ContentCoding) -> Self {
        let tag = self.etag.trim_matches('"');
        self.etag = format!("\"{tag}-{}\"", encoding.name()).into();
        self.encoding = Some(encoding);
        self
    }
}

fn content_type(name: &str) -> String {
    let guess = mime_guess::from_path(name)
        .first_raw()
        .unwrap_or("application/octet-stream");
    let is_text = guess.starts_with("text/") || guess == "application/javascript";
    format!("{guess}{}", if is_text { "; charset=utf-8" } else { "" })
}
