//! What is said about a file, made once per version of it.

use std::time::{Duration, SystemTime};

use super::ContentCoding;

/// What is said about one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// Its length.
    pub len_bytes: u64,
    /// By the file's extension, with `charset=utf-8` for text.
    pub content_type: Box<str>,
    /// The entity tag, quoted.
    pub etag: Box<str>,
    /// The time of the last change, as the header has it.
    pub last_modified: Box<str>,
    /// The same in seconds since 1970.
    pub modified_unix_s: u64,
    /// The coding of its content; `None`: as it is.
    pub encoding: Option<ContentCoding>,
}

impl FileMetadata {
    /// Of a file in a file system. The tag is strong: it has the time of the change in nanoseconds, and whoever
    /// changes a file twice within one tick of the kernel's clock (4 ms) without changing its length would have to do
    /// so between two requests.
    #[must_use]
    pub fn of_file(name: &str, len_bytes: u64, modified_unix_s: u64, modified_ns: u32) -> Self {
        Self::new(
            name,
            len_bytes,
            modified_unix_s,
            &format!("{modified_unix_s:x}.{modified_ns:x}-{len_bytes:x}"),
        )
    }

    /// Of a file whose content has a digest.
    #[must_use]
    pub fn of_digest(name: &str, len_bytes: u64, modified_unix_s: u64, digest: &[u8]) -> Self {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::new(name, len_bytes, modified_unix_s, &hex)
    }

    fn new(name: &str, len_bytes: u64, modified_unix_s: u64, tag: &str) -> Self {
        // Dates before 1970 come as 0; above the year 9999 they can't be written.
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

    /// Of a variant in that coding: it has the type of the file that it stands for, and a tag that no other
    /// representation of it has. Tools that give a variant the time of its file may round that to seconds (`brotli` does),
    /// and then two builds within one second have the same tag if they have the same length.
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
