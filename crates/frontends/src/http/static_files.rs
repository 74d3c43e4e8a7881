//! Static files: plans the response to a request below a route's root (RFC 9110 sections 13 and 14).
//!
//! This module selects the file and its encoding, and determines whether the client already has this version and
//! which range to send. It opens no file itself: that is done by [`Files`], which also ensures that nothing outside
//! of the root is opened. The connection writes the head and then the body, at once or in pieces.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use veche_proto::http::{Head, InvalidHeader, Method, ResponseWriter, Status};

mod conditions;
mod encoding;
mod path;
mod range;

pub use crate::context::files::{
    ContentCoding, File, FileContent, FileMetadata, Files, OpenError, OpenResult, ReadAt,
};

use conditions::Precondition;
use encoding::AcceptedCodings;

/// The file that is served for a folder.
const INDEX: &str = "index.html";

/// Where a requested file is, and which encodings are offered for it.
#[derive(Clone, Copy, Debug)]
pub struct FileLocation<'a> {
    /// The route's root: a folder, or `builtin:NAME`.
    pub root: &'a Path,
    /// The part of the request path below the route's path.
    pub relative: &'a str,
    /// Codings for which precompressed files are looked up, in order of preference, without duplicates.
    pub variants: &'a [ContentCoding],
}

/// The planned response to a request for a file.
pub struct FileAnswer {
    /// The status of the response.
    pub status: Status,
    /// The body of the response. HEAD requests get only its length.
    pub body: FileBody,
    /// The number of variants that were looked up for the file.
    pub variants_tried: u32,
    headers: Headers,
    file: Option<Arc<FileMetadata>>,
    /// Whether the response depends on `Accept-Encoding`.
    varies: bool,
}

/// The body of a response to a request for a static file.
pub enum FileBody {
    /// A text that describes the status, or an empty body.
    Bytes(&'static str),
    /// A range of a file's bytes.
    Part(FileContent, Range<u64>),
}

/// The kind of a response. The kind and the file determine the response's headers.
enum Headers {
    None,
    Allow,
    Location(String),
    /// For a 416 response: the length of the file.
    Unsatisfiable(u64),
    NotModified,
    Whole,
    Part(Range<u64>),
}

/// Plans the response to a request for a file. If the file or one of its variants could not be opened, the error is
/// returned too, for the log.
pub fn answer(
    files: &mut dyn Files,
    place: FileLocation<'_>,
    head: &Head<'_>,
    now_ms: u64,
) -> (FileAnswer, Option<OpenError>) {
    if !matches!(head.method, Method::Get | Method::Head) {
        let text = "files allow only GET and HEAD\n";
        return (
            FileAnswer::plain(Status::METHOD_NOT_ALLOWED, Headers::Allow, text),
            None,
        );
    }
    match find(files, place, head, now_ms) {
        Ok(FileLookup::File { file, .. }) if place.variants.is_empty() => {
            (FileAnswer::file(file, head), None)
        }
        Ok(FileLookup::File { file, relative }) => {
            answer_encoded(files, place, (file, &relative), head, now_ms)
        }
        Ok(FileLookup::Redirect(location)) => (
            FileAnswer::plain(Status::MOVED_PERMANENTLY, Headers::Location(location), ""),
            None,
        ),
        Err(error) => FileAnswer::without_file(error),
    }
}

/// Plans the response with a file that was found and that may have variants.
fn answer_encoded(
    files: &mut dyn Files,
    place: FileLocation<'_>,
    (file, relative): (File, &str),
    head: &Head<'_>,
    now_ms: u64,
) -> (FileAnswer, Option<OpenError>) {
    let accepted = AcceptedCodings::of(head, place.variants);
    let (mut variants_tried, mut trouble, mut chosen) = (0, None, None);
    for encoding in accepted.variants() {
        variants_tried += 1;
        match files.open_variant(place.root, relative, encoding, now_ms) {
            // A variant older than its file is not used. Whole seconds are compared, since tools that copy a file's
            // time may round it.
            Ok(Some(variant))
                if variant.metadata.modified_unix_s >= file.metadata.modified_unix_s =>
            {
                chosen = Some(variant);
                break;
            }
            Ok(_) => {}
            Err(error) => {
                let why = format!("the {} variant of the file: {error}", encoding.name());
                trouble = Some(OpenError::Failed(io::Error::other(why)));
            }
        }
    }
    let answer = match chosen.or_else(|| accepted.takes_identity.then_some(file)) {
        Some(file) => FileAnswer::file(file, head),
        // RFC 9110 section 12.5.3: the unencoded file is acceptable unless the client excludes it, and this client
        // does.
        None => FileAnswer::plain(
            Status::NOT_ACCEPTABLE,
            Headers::None,
            "the file is not available in an accepted encoding\n",
        ),
    };
    let answer = FileAnswer {
        variants_tried,
        varies: true,
        ..answer
    };
    (answer, trouble)
}

/// Returns whether [`answer_file`] accepts a decoded path. Such a path has no leading slash and no component that could
/// lead out of the folder, is hidden, or is interpreted differently by different programs.
#[must_use]
pub fn is_safe_path(relative: &str) -> bool {
    path::is_safe(relative)
}

/// Plans the response with the file of a [safe](is_safe_path) path below a root. Conditional and range requests are
/// served only if `conditional`, the request's head, is given.
pub fn answer_file(
    files: &mut dyn Files,
    root: &Path,
    relative: &str,
    conditional: Option<&Head<'_>>,
    now_ms: u64,
) -> (FileAnswer, Option<OpenError>) {
    let opened = match is_safe_path(relative) {
        true => files.open(root, relative, now_ms),
        false => Err(OpenError::NotFound),
    };
    match opened {
        Ok(OpenResult::File(file)) => match conditional {
            Some(head) => (FileAnswer::file(file, head), None),
            None => (FileAnswer::whole(file), None),
        },
        Ok(OpenResult::Folder) => FileAnswer::without_file(OpenError::NotFound),
        Err(error) => FileAnswer::without_file(error),
    }
}

enum FileLookup<'p> {
    File { file: File, relative: Cow<'p, str> },
    Redirect(String),
}

fn find<'p>(
    files: &mut dyn Files,
    FileLocation {
        root,
        relative: below,
        ..
    }: FileLocation<'p>,
    head: &Head<'_>,
    now_ms: u64,
) -> Result<FileLookup<'p>, OpenError> {
    let relative = path::relative(below).ok_or(OpenError::NotFound)?;
    let is_folder_asked = head.path.ends_with('/');
    if !is_folder_asked {
        return match files.open(root, &relative, now_ms)? {
            OpenResult::File(file) => Ok(FileLookup::File { file, relative }),
            OpenResult::Folder => Ok(FileLookup::Redirect(path::with_slash(
                &head.path, head.query,
            ))),
        };
    }
    let index = if relative.is_empty() {
        INDEX.to_owned()
    } else {
        format!("{relative}/{INDEX}")
    };
    match files.open(root, &index, now_ms)? {
        OpenResult::File(file) => Ok(FileLookup::File {
            file,
            relative: index.into(),
        }),
        OpenResult::Folder => Err(OpenError::NotFound),
    }
}

impl FileAnswer {
    fn plain(status: Status, headers: Headers, text: &'static str) -> Self {
        Self {
            status,
            body: FileBody::Bytes(text),
            variants_tried: 0,
            headers,
            file: None,
            varies: false,
        }
    }

    fn without_file(error: OpenError) -> (Self, Option<OpenError>) {
        let (status, text) = match error {
            OpenError::NotFound => (Status::NOT_FOUND, "not found\n"),
            OpenError::Denied => (Status::FORBIDDEN, "forbidden\n"),
            OpenError::Failed(_) => (
                Status::INTERNAL_SERVER_ERROR,
                "the file could not be read\n",
            ),
        };
        (Self::plain(status, Headers::None, text), Some(error))
    }

    fn whole(file: File) -> Self {
        let length = file.metadata.len_bytes;
        Self {
            status: Status::OK,
            body: FileBody::Part(file.content, 0..length),
            variants_tried: 0,
            headers: Headers::Whole,
            file: Some(file.metadata),
            varies: false,
        }
    }

    /// Returns whether the response is based on a file that was found.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    fn file(file: File, head: &Head<'_>) -> Self {
        let File {
            metadata: description,
            content,
        } = file;
        let length = description.len_bytes;
        let (status, body, headers) = match conditions::evaluate(head, &description) {
            Precondition::Failed => (
                Status::PRECONDITION_FAILED,
                FileBody::Bytes(""),
                Headers::NotModified,
            ),
            Precondition::NotModified => (
                Status::NOT_MODIFIED,
                FileBody::Bytes(""),
                Headers::NotModified,
            ),
            Precondition::Send => match range::choose(head, &description) {
                range::RangeChoice::Whole => (
                    Status::OK,
                    FileBody::Part(content, 0..length),
                    Headers::Whole,
                ),
                range::RangeChoice::Part(part) => (
                    Status::PARTIAL_CONTENT,
                    FileBody::Part(content, part.clone()),
                    Headers::Part(part),
                ),
                range::RangeChoice::Unsatisfiable => (
                    Status::RANGE_NOT_SATISFIABLE,
                    FileBody::Bytes(""),
                    Headers::Unsatisfiable(length),
                ),
            },
        };
        Self {
            status,
            body,
            variants_tried: 0,
            headers,
            file: Some(description),
            varies: false,
        }
    }

    /// Returns the length of the body in bytes, for `Content-Length`.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match &self.body {
            FileBody::Bytes(text) => text.len() as u64,
            FileBody::Part(_, part) => part.end - part.start,
        }
    }

    /// Writes the headers of the file; the headers for framing are written already. A header is left out if `is_there`
    /// returns true for its name.
    ///
    /// # Errors
    /// A header is invalid ([`InvalidHeader`]). A peer can't cause this, because values taken from the request were
    /// checked when its head was parsed.
    pub fn write_headers(
        &self,
        writer: &mut ResponseWriter<'_>,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<(), InvalidHeader> {
        let mut header = |name: &str, value: &str| match is_there(name) {
            true => Ok(()),
            false => writer.header(name, value),
        };
        match (&self.headers, &self.file) {
            (Headers::Whole | Headers::Part(_), Some(file)) => {
                header("Content-Type", &file.content_type)?;
                header("Accept-Ranges", "bytes")?;
                if let Some(encoding) = file.encoding {
                    header("Content-Encoding", encoding.name())?;
                }
            }
            _ if self.len_bytes() > 0 => header("Content-Type", "text/plain; charset=utf-8")?,
            _ => {}
        }
        if let (Headers::Whole | Headers::Part(_) | Headers::NotModified, Some(file)) =
            (&self.headers, &self.file)
        {
            header("ETag", &file.etag)?;
            header("Last-Modified", &file.last_modified)?;
            // Browsers revalidate the file each time and get a 304 if it is unchanged. Without this header they would
            // guess for how long the file is valid, and combine an old script with a new page.
            header("Cache-Control", "no-cache")?;
        }
        if self.varies {
            header("Vary", "Accept-Encoding")?;
        }
        match &self.headers {
            Headers::Allow => header("Allow", "GET, HEAD")?,
            Headers::Location(location) => header("Location", location)?,
            Headers::Unsatisfiable(length) => {
                header("Content-Range", &format!("bytes */{length}"))?;
            }
            Headers::Part(part) => {
                let length = self.file.as_ref().map_or(0, |file| file.len_bytes);
                let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
                header("Content-Range", &range)?;
            }
            Headers::None | Headers::NotModified | Headers::Whole => {}
        }
        // Prevents browsers from guessing that a text uploaded by a user is a script.
        header("X-Content-Type-Options", "nosniff")
    }
}

#[cfg(test)]
mod tests;
