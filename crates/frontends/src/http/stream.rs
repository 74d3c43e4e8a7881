//! Responses with static files: the head is written at once, a large file piece by piece as the client reads.
//!
//! `static_files` plans the responses.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{
    Head, Method, ResponseBody, ResponseHead, ResponseWriter, Status, encoded_path,
};

use crate::context::app::{AppFile, AppResponse};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::reply::{ReplyContext, write_app_head};
use crate::http::static_files::{self, FileBody, FileContent, FileLocation, OpenError, ReadAt};
use crate::outbox::ANSWERS_BYTES_HIGH;

/// Maximum number of bytes that are read from the file and written at a time.
const PIECE_BYTES: u64 = 32 << 10;

/// The part of a response's body that is written as the client reads.
pub(crate) struct StreamedBody {
    source: Arc<dyn ReadAt>,
    offset: u64,
    end: u64,
    /// Whether the connection is kept alive after the response.
    pub(crate) keep_alive: bool,
}

/// The progress of writing the body.
pub(crate) enum StreamProgress {
    /// The response is completely written.
    Whole,
    /// The outbox is full: the client has to read first.
    Full,
    /// The file has shrunk or the disk has failed. The client sees a truncated body, and the connection is closed.
    Cut,
}

impl StreamedBody {
    /// Writes as much of the body as fits into the outbox.
    pub(crate) fn pump(&mut self, id: ConnectionId, shared: &mut Context) -> StreamProgress {
        while self.offset < self.end {
            if shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                return StreamProgress::Full;
            }
            let max = (self.end - self.offset).min(PIECE_BYTES) as usize;
            let out = shared.requests.outboxes.buffer(id);
            match self.source.read_at(self.offset, max, out) {
                Ok(count @ 1..) => self.offset += count as u64,
                Ok(0) | Err(_) => return StreamProgress::Cut,
            }
        }
        StreamProgress::Whole
    }
}

/// Responds with a file: as a whole if it is in memory, otherwise in pieces. `headers` are added to the response.
pub(crate) fn answer(
    id: ConnectionId,
    head: &Head<'_>,
    place: FileLocation<'_>,
    (reply, headers): (&ReplyContext, &[(&str, &str)]),
    shared: &mut Context,
) -> Option<StreamedBody> {
    let (answer, error) = static_files::answer(&mut *shared.files, place, head, shared.now.mono_ms);
    let variants_tried = u64::from(answer.variants_tried);
    shared.work.charge(work_budget::FILE * variants_tried);
    report_written(head, error, shared);
    let response = response_head(head, answer.status, &answer, shared);
    let out = shared.requests.outboxes.buffer(id);
    let mut writer = response.start(out, shared.date.text());
    // The headers of a planned response are valid (see `FileAnswer::write_headers`), so this can't fail.
    let _ = answer.write_headers(&mut writer, |name| reply.adds(answer.status, name));
    for (name, value) in headers.iter().copied().chain(reply.added(answer.status)) {
        let _ = writer.header(name, value);
    }
    writer.finish();
    shared.response_started(id, answer.status.0);
    write_body(id, head, answer.body, response.keep_alive, shared)
}

/// Responds with the file that an application's response names.
pub(crate) fn answer_app(
    id: ConnectionId,
    head: &Head<'_>,
    reply: &ReplyContext,
    response: &AppResponse,
    file: &AppFile,
    shared: &mut Context,
) -> Option<StreamedBody> {
    let is_plain =
        response.status != Status::OK || !matches!(head.method, Method::Get | Method::Head);
    let (answer, error) = static_files::answer_file(
        &mut *shared.files,
        &file.root,
        &file.relative,
        (!is_plain).then_some(head),
        shared.now.mono_ms,
    );
    report_written(head, error, shared);
    let (status, headers) = match (answer.has_file(), is_plain) {
        (true, true) => (response.status, &*response.headers),
        (true, false) => (answer.status, &*response.headers),
        (false, _) => (answer.status, &[][..]),
    };
    let framing = response_head(head, status, &answer, shared);
    let is_there = |name: &str| {
        headers
            .iter()
            .any(|(own, _)| own.eq_ignore_ascii_case(name))
            || reply.adds(status, name)
    };
    // Of all headers, only the application's can be invalid; `write_app_head` checks them.
    let own = |writer: &mut ResponseWriter<'_>| {
        let _ = answer.write_headers(writer, is_there);
    };
    if !write_app_head(reply, id, framing, status, headers, own, shared) {
        return None;
    }
    shared.response_started(id, status.0);
    if !status.has_body() {
        return None;
    }
    write_body(id, head, answer.body, framing.keep_alive, shared)
}

/// Logs `error`, the reason why a file could not be opened. A file that does not exist is not logged.
fn report_written(head: &Head<'_>, error: Option<OpenError>, shared: &Context) {
    if let Some(error) = error.filter(|error| !matches!(error, OpenError::NotFound)) {
        let path = encoded_path(&head.path);
        shared.process.log_error(&format!("{path}: {error}"));
    }
}

fn response_head(
    head: &Head<'_>,
    status: Status,
    answer: &static_files::FileAnswer,
    shared: &Context,
) -> ResponseHead {
    let mut response = ResponseHead::to(head, status, ResponseBody::Sized(answer.len_bytes()));
    response.keep_alive &= !shared.is_draining();
    response
}

fn write_body(
    id: ConnectionId,
    head: &Head<'_>,
    body: FileBody,
    keep_alive: bool,
    shared: &mut Context,
) -> Option<StreamedBody> {
    if head.method == Method::Head {
        return None;
    }
    match body {
        FileBody::Bytes(text) => {
            let out = shared.requests.outboxes.buffer(id);
            out.extend_from_slice(text.as_bytes());
        }
        FileBody::Part(FileContent::InMemory(bytes), part) => {
            let out = shared.requests.outboxes.buffer(id);
            out.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
        }
        FileBody::Part(FileContent::OnDisk(source), part) => {
            return Some(StreamedBody {
                source,
                offset: part.start,
                end: part.end,
                keep_alive,
            });
        }
    }
    None
}
