//! Static files on the wire: the answer's head at once, a large file piece by piece as the client reads.
//!
//! What is answered is planned by `static_files`.

use std::path::Path;
use std::sync::Arc;

use veche_hub::SessionId;
use veche_proto::http::{Head, Method, ResponseBody, ResponseHead};

use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::shared::Shared;
use crate::static_files::{self, Body as FileBody, Content, ReadAt};

/// Bytes written at a time.
const PIECE_BYTES: u64 = 32 << 10;

/// The rest of a response that is made piece by piece as the client reads.
pub(crate) struct Stream {
    source: Arc<dyn ReadAt>,
    offset: u64,
    end: u64,
    /// Whether the connection goes on afterwards.
    pub(crate) keep_alive: bool,
}

/// How far a stream got.
pub(crate) enum Pumped {
    /// All of it is written.
    Whole,
    /// The client has to read first.
    Full,
    /// The file shrank or the disk failed: the client sees a body that is too short and a closed connection.
    Cut,
}

impl Stream {
    /// Writes as much as the client's reading allows.
    pub(crate) fn pump(&mut self, id: SessionId, shared: &mut Shared) -> Pumped {
        while self.offset < self.end {
            if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                return Pumped::Full;
            }
            let max = (self.end - self.offset).min(PIECE_BYTES) as usize;
            let out = shared.ports.outboxes.buffer(id);
            match self.source.read_at(self.offset, max, out) {
                Ok(count @ 1..) => self.offset += count as u64,
                Ok(0) | Err(_) => return Pumped::Cut,
            }
        }
        Pumped::Whole
    }
}

/// Answers with a file: the whole of it if it is in memory, else its head and the rest as the client reads.
pub(crate) fn answer(
    id: SessionId,
    head: &Head<'_>,
    root: &Path,
    below: &str,
    shared: &mut Shared,
) -> Option<Stream> {
    let (answer, error) =
        static_files::answer(&mut *shared.files, root, below, head, shared.now.mono_ms);
    if let Some(error) = error.filter(|error| !matches!(error, static_files::OpenError::NotFound)) {
        shared.process.trouble(&format!("{}: {error}", head.path));
    }
    let mut response =
        ResponseHead::to(head, answer.status, ResponseBody::Sized(answer.len_bytes()));
    response.keep_alive &= !shared.is_draining();
    shared.stats.answer(answer.status.0);
    let out = shared.ports.outboxes.buffer(id);
    let mut writer = response.start(out, shared.date.text());
    // The plan holds nothing that can't be written: see its documentation.
    let _ = answer.write_headers(&mut writer);
    writer.finish();
    if head.method == Method::Head {
        return None;
    }
    match answer.body {
        FileBody::Text(text) => out.extend_from_slice(text.as_bytes()),
        FileBody::Part(Content::Whole(bytes), part) => {
            out.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
        }
        FileBody::Part(Content::Stored(source), part) => {
            return Some(Stream {
                source,
                offset: part.start,
                end: part.end,
                keep_alive: response.keep_alive,
            });
        }
    }
    None
}
