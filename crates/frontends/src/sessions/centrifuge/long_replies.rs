//! Replies with long lists, to history and presence commands. They are written in slices, each
//! after the previous one was sent.
//!
//! Such a reply refers to stored publications and encodes them when its client reads, so a client
//! that reads nothing costs the memory of a few slices. The session's next command and its pushes
//! wait until the reply is complete. A reply that is shorter than one slice is written at once.

use std::ops::Range;
use std::sync::Arc;

use veche_centrifuge::{
    Element, Encoding, HistoryResult, Outcome, PresenceResult, Reply, ReplyWriter,
};
use veche_hub::{ClientInfo, HistoryPage, HubReply, Payload};

use super::pushes::kind;
use super::{Flow, SessionContext, writing};
use crate::context::step::WaitReason;
use crate::context::work_budget;
use crate::outbox::{ANSWERS_BYTES_HIGH, PartialMessage, SLICE_BYTES};

/// Approximate size in bytes of an encoded publication or client without its data.
const ELEMENT_BYTES: usize = 64;

/// The home worker's answer, with the list that the reply contains.
pub(super) enum LongResult {
    History(Box<HistoryPage>),
    Presence(Box<[Arc<ClientInfo>]>),
}

/// A reply that is not completely written.
pub(super) struct UnfinishedReply {
    content: LongResult,
    /// Number of list elements that are already written.
    next: usize,
    /// The id of the command that is answered.
    id: u32,
    /// The writer of the reply and its message; `None` until the first slice is written.
    begun: Option<(ReplyWriter, PartialMessage)>,
}

impl LongResult {
    /// If the list in the answer is longer than one slice, returns the list. Otherwise returns the
    /// answer as the error.
    pub(super) fn of(answer: HubReply) -> Result<Self, HubReply> {
        let content = match answer {
            HubReply::History(Ok(page)) => Self::History(page),
            HubReply::Presence(Ok(clients)) => Self::Presence(clients),
            other => return Err(other),
        };
        match content.is_long() {
            true => Ok(content),
            false => Err(match content {
                Self::History(page) => HubReply::History(Ok(page)),
                Self::Presence(clients) => HubReply::Presence(Ok(clients)),
            }),
        }
    }

    fn is_long(&self) -> bool {
        let length = |info: &Option<Payload>| info.as_ref().map_or(0, |info| info.bytes.len());
        let mut bytes = self.len() * ELEMENT_BYTES;
        bytes += match self {
            Self::History(page) => page.payload_bytes(),
            Self::Presence(clients) => {
                let bytes = clients
                    .iter()
                    .map(|one| one.user.len() + length(&one.conn_info) + length(&one.chan_info));
                bytes.sum()
            }
        };
        bytes > SLICE_BYTES
    }

    fn len(&self) -> usize {
        match self {
            Self::History(page) => page.len(),
            Self::Presence(clients) => clients.len(),
        }
    }

    /// Returns the reply with an empty list, to which the elements are added.
    fn outcome<'e>(&self, epoch: &'e str) -> Outcome<'e> {
        match self {
            Self::History(page) => Outcome::History(HistoryResult {
                publications: &[],
                epoch,
                offset: page.position.offset,
            }),
            Self::Presence(_) => Outcome::Presence(PresenceResult::default()),
        }
    }

    fn epoch(&self) -> String {
        match self {
            Self::History(page) => page.position.epoch.to_string(),
            Self::Presence(_) => String::new(),
        }
    }

    /// Passes the list elements in this range to `look`, until it returns false or the range ends.
    fn visit_elements(
        &self,
        places: Range<usize>,
        encoding: Encoding,
        mut look: impl FnMut(&Element<'_>) -> bool,
    ) {
        match self {
            Self::Presence(clients) => {
                for one in &clients[places] {
                    if !look(&Element::Client(&one.client, writing::client(one))) {
                        break;
                    }
                }
            }
            Self::History(page) => {
                for one in page.publications(places) {
                    let info = one.info.as_deref();
                    let tags = writing::tags(info);
                    let quoted = writing::quoted(one.payload.borrow(), encoding);
                    let payload = match &quoted {
                        Some(text) => writing::as_json(text),
                        None => one.payload.borrow(),
                    };
                    let form = writing::publication(payload, one.position, info, &tags);
                    if !look(&Element::Publication(form)) {
                        break;
                    }
                }
            }
        }
    }
}

impl UnfinishedReply {
    /// Creates the reply to the command with this id.
    pub(super) fn new(id: u32, content: LongResult) -> Self {
        Self {
            content,
            next: 0,
            id,
            begun: None,
        }
    }

    /// Writes as much of the reply as fits into the client's outbox and the connection's share of the turn. If it
    /// returns [`Flow::Continue`], the reply is complete.
    pub(super) fn write_next(&mut self, encoding: Encoding, cx: &mut SessionContext<'_>) -> Flow {
        while self.next < self.content.len() {
            if cx.shared.work.is_spent() {
                return Flow::Wait(WaitReason::Turn);
            }
            if cx.shared.requests.outboxes.queued(cx.id) > ANSWERS_BYTES_HIGH {
                return Flow::Wait(WaitReason::Output);
            }
            let mut slice = cx.shared.requests.outboxes.spare();
            self.write(encoding, &mut slice, cx);
            cx.shared.requests.outboxes.recycle(slice);
            let codecs = cx.shared.take_codec_work();
            cx.shared.work.charge(codecs);
        }
        Flow::Continue
    }

    /// Writes the next slice of the reply.
    fn write(&mut self, encoding: Encoding, slice: &mut Vec<u8>, cx: &mut SessionContext<'_>) {
        let outboxes = &mut cx.shared.requests.outboxes;
        let len = self.content.len();
        if self.begun.is_none() {
            let parts = self.begin(encoding, slice);
            self.begun = Some((parts, outboxes.begin_parts(cx.id, kind(encoding))));
            cx.shared
                .work
                .charge(work_budget::ANSWER_BYTE * (len * ELEMENT_BYTES) as u64);
        }
        let Some((parts, message)) = &mut self.begun else {
            return;
        };
        let next = &mut self.next;
        self.content
            .visit_elements(*next..len, encoding, |element| {
                parts.element(slice, element);
                *next += 1;
                slice.len() < SLICE_BYTES
            });
        let is_last = *next == len;
        if is_last {
            parts.end(slice);
        }
        let outboxes = &mut cx.shared.requests.outboxes;
        outboxes.part(cx.id, message, slice, is_last);
        cx.shared
            .work
            .charge(work_budget::ANSWER_BYTE * slice.len() as u64);
    }

    fn begin(&self, encoding: Encoding, slice: &mut Vec<u8>) -> ReplyWriter {
        let mut bytes = 0;
        if encoding == Encoding::Protobuf {
            self.content
                .visit_elements(0..self.content.len(), encoding, |element| {
                    bytes += encoding.element_bytes(element);
                    true
                });
        }
        let epoch = self.content.epoch();
        let reply = Reply {
            id: self.id,
            outcome: self.content.outcome(&epoch),
        };
        ReplyWriter::begin(encoding, slice, &reply, bytes)
    }
}
