//! Static files: a request below a route's root to the plan of its answer (RFC 9110 sections 13 and 14).
//!
//! It decides which file is meant and in which encoding, whether the client has it already and which part is sent. It opens
//! nothing itself:
//! [`Files`] does, and is where the root is kept closed. Whoever holds the connection writes the answer's head and
//! lets the body's bytes follow, whole or piece by piece.

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
    Content, Description, Encoding, File, Files, OpenError, Opened, ReadAt,
};

use conditions::Verdict;
use encoding::Accepted;

/// What a folder is answered with.
const INDEX: &str = "index.html";

/// The place of a requested file, and the encodings offered.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The route's root: a folder, or `builtin:NAME`.
    pub root: &'a Path,
    /// The end of the request's path, behind that of the route.
    pub below: &'a str,
    /// The codings in which files may lie prepared, the preferred one first; each at most once.
    pub variants: &'a [Encoding],
}

/// The plan of an answer.
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Its body. To HEAD the same length is said and nothing sent.
    pub body: Body,
    /// The number of variants of the file that were looked for.
    pub variants_tried: u32,
    headers: Headers,
    file: Option<Arc<Description>>,
    /// Whether it would be another one for another `Accept-Encoding`.
    varies: bool,
}

/// An answer's body.
pub enum Body {
    /// None, or one that the status itself explains.
    Text(&'static str),
    /// So many bytes of a file.
    Part(Content, Range<u64>),
}

/// The headers that depend on more than the file.
enum Headers {
    None,
    Allow,
    Location(String),
    /// Of a file of this length.
    Unsatisfiable(u64),
    NotModified,
    Whole,
    Part(Range<u64>),
}

/// Plans the answer to a request for a file. A refusal of the file system is handed back beside its answer, for the
/// log.
pub fn answer(
    files: &mut dyn Files,
    place: Place<'_>,
    head: &Head<'_>,
    now_ms: u64,
) -> (Answer, Option<OpenError>) {
    if !matches!(head.method, Method::Get | Method::Head) {
        let text = "only GET and HEAD\n";
        return (
            Answer::plain(Status::METHOD_NOT_ALLOWED, Headers::Allow, text),
            None,
        );
    }
    match find(files, place, head, now_ms) {
        Ok(Found::File { file, .. }) if place.variants.is_empty() => {
            (Answer::file(file, head), None)
        }
        Ok(Found::File { file, relative }) => {
            answer_encoded(files, place, (file, &relative), head, now_ms)
        }
        Ok(Found::Elsewhere(location)) => (
            Answer::plain(Status::MOVED_PERMANENTLY, Headers::Location(location), ""),
            None,
        ),
        Err(error) => Answer::without_file(error),
    }
}

/// The same for a file that was found, where variants of it may be.
fn answer_encoded(
    files: &mut dyn Files,
    place: Place<'_>,
    (file, relative): (File, &str),
    head: &Head<'_>,
    now_ms: u64,
) -> (Answer, Option<OpenError>) {
    let accepted = Accepted::of(head, place.variants);
    let (mut variants_tried, mut trouble, mut chosen) = (0, None, None);
    for encoding in accepted.variants() {
        variants_tried += 1;
        match files.open_variant(place.root, relative, encoding, now_ms) {
            // Tools that copy a file's time may round it to seconds.
            Ok(Some(variant))
                if variant.description.modified_unix_s >= file.description.modified_unix_s =>
            {
                chosen = Some(variant);
                break;
            }
            Ok(_) => {}
            Err(error) => {
                let why = format!("its variant in {}: {error}", encoding.name());
                trouble = Some(OpenError::Failed(io::Error::other(why)));
            }
        }
    }
    let answer = match chosen.or_else(|| accepted.takes_identity.then_some(file)) {
        Some(file) => Answer::file(file, head),
        // Section 12.5.3: the file as it is would be sent unless the client excludes that.
        None => Answer::plain(
            Status::NOT_ACCEPTABLE,
            Headers::None,
            "the file is in none of the encodings that are accepted\n",
        ),
    };
    let answer = Answer {
        variants_tried,
        varies: true,
        ..answer
    };
    (answer, trouble)
}

/// Whether a path, not encoded, is one that [`answer_named`] takes: it begins with no slash and has nothing in it that
/// could lead out of a folder, is hidden, or is taken differently by different readers.
#[must_use]
pub fn is_safe_path(relative: &str) -> bool {
    path::is_safe(relative)
}

/// Plans the answer with the file of that [safe](is_safe_path) path below a root. Conditions and ranges count if it is
/// `conditional`.
pub fn answer_named(
    files: &mut dyn Files,
    root: &Path,
    relative: &str,
    conditional: Option<&Head<'_>>,
    now_ms: u64,
) -> (Answer, Option<OpenError>) {
    let opened = match is_safe_path(relative) {
        true => files.open(root, relative, now_ms),
        false => Err(OpenError::NotFound),
    };
    match opened {
        Ok(Opened::File(file)) => match conditional {
            Some(head) => (Answer::file(file, head), None),
            None => (Answer::whole(file), None),
        },
        Ok(Opened::Folder) => Answer::without_file(OpenError::NotFound),
        Err(error) => Answer::without_file(error),
    }
}

enum Found<'p> {
    File { file: File, relative: Cow<'p, str> },
    Elsewhere(String),
}

fn find<'p>(
    files: &mut dyn Files,
    Place { root, below, .. }: Place<'p>,
    head: &Head<'_>,
    now_ms: u64,
) -> Result<Found<'p>, OpenError> {
    let relative = path::relative(below).ok_or(OpenError::NotFound)?;
    let is_folder_asked = head.path.ends_with('/');
    if !is_folder_asked {
        return match files.open(root, &relative, now_ms)? {
            Opened::File(file) => Ok(Found::File { file, relative }),
            Opened::Folder => Ok(Found::Elsewhere(path::with_slash(&head.path, head.query))),
        };
    }
    let index = if relative.is_empty() {
        INDEX.to_owned()
    } else {
        format!("{relative}/{INDEX}")
    };
    match files.open(root, &index, now_ms)? {
        Opened::File(file) => Ok(Found::File {
            file,
            relative: index.into(),
        }),
        Opened::Folder => Err(OpenError::NotFound),
    }
}

impl Answer {
    fn plain(status: Status, headers: Headers, text: &'static str) -> Self {
        Self {
            status,
            body: Body::Text(text),
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
        let length = file.description.len_bytes;
        Self {
            status: Status::OK,
            body: Body::Part(file.content, 0..length),
            variants_tried: 0,
            headers: Headers::Whole,
            file: Some(file.description),
            varies: false,
        }
    }

    /// Whether it is about a file that was found.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    fn file(file: File, head: &Head<'_>) -> Self {
        let File {
            description,
            content,
        } = file;
        let length = description.len_bytes;
        let (status, body, headers) = match conditions::judge(head, &description) {
            Verdict::Failed => (
                Status::PRECONDITION_FAILED,
                Body::Text(""),
                Headers::NotModified,
            ),
            Verdict::NotModified => (Status::NOT_MODIFIED, Body::Text(""), Headers::NotModified),
            Verdict::Send => match range::choose(head, &description) {
                range::Choice::Whole => {
                    (Status::OK, Body::Part(content, 0..length), Headers::Whole)
                }
                range::Choice::Part(part) => (
                    Status::PARTIAL_CONTENT,
                    Body::Part(content, part.clone()),
                    Headers::Part(part),
                ),
                range::Choice::Unsatisfiable => (
                    Status::RANGE_NOT_SATISFIABLE,
                    Body::Text(""),
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

    /// The length of the body, for `Content-Length`.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Part(_, part) => part.end - part.start,
        }
    }

    /// Writes the answer's own headers after those that frame it, without those that are there already.
    ///
    /// # Errors
    /// [`InvalidHeader`] never comes from what a peer sent: what is reflected was checked with the request's head.
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
            // Asked again each time and answered with 304: else a browser guesses how long a page is good for, and
            // meets an old script in a new page.
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
        // A text that a user put there must not become a script in a browser that guesses.
        header("X-Content-Type-Options", "nosniff")
    }
}

#[cfg(test)]
mod tests;
