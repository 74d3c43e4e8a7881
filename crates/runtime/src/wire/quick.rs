//! Fast paths without a general writer or parser of JSON: encoding the event `message`, and parsing
//! answers whose effects are all `send`.
//!
//! Nearly all frames of a busy worker have such heads. They have their fields in the order in which Veche and its SDKs write
//! them, and no spaces. The general code handles all other heads. For the heads that this module handles, it would give the
//! same results.

use veche_calls::WorkerConnection;
use veche_types::{ConnectionId, MessageKind, WorkerId};

use super::frame::{Frame, FrameLimits, FrameTooLong, PREFIX_BYTES, finish_frame};
use super::from_worker::{EFFECTS_MAX, FromWorker, HandlerEnd, HandlerOutput, WorkerEffect};
use super::head::EventName;
use super::part::PayloadParts;
use super::to_worker::EventConnection;
use crate::{Attributes, Event};

/// Bytes reserved for a message's head without the user.
const MESSAGE_HEAD_BYTES: usize = 160;

/// Appends the frame of the event `message` with the event id 0. Returns `None` for other events, and
/// for a connection with attributes.
///
/// # Errors
/// The frame exceeds the limits; nothing was appended.
pub fn encode_message(
    out: &mut Vec<u8>,
    limits: FrameLimits,
    event: &Event<'_>,
    known: EventConnection<'_>,
) -> Option<Result<(), FrameTooLong>> {
    let Event::Message { id, kind, data } = event else {
        return None;
    };
    let has_attributes = |attributes: &Attributes| attributes.iter().next().is_some();
    if known.attributes.is_some_and(has_attributes) {
        return None;
    }
    let from = out.len();
    let user_bytes = known.user.map_or(0, str::len);
    out.reserve(PREFIX_BYTES + MESSAGE_HEAD_BYTES + user_bytes + data.len());
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    out.extend_from_slice(br#"{"type":"event","id":0,"event":"message","connection":""#);
    push_number(out, known.worker.0.into());
    out.push(b'.');
    push_number(out, id.index.into());
    out.push(b'.');
    push_number(out, id.generation.into());
    out.push(b'"');
    if let Some(user) = known.user {
        out.extend_from_slice(br#","user":"#);
        // Writing a string as JSON to a vector can't fail.
        let _ = serde_json::to_writer(&mut *out, user);
    }
    out.extend_from_slice(br#","data_kind":""#);
    out.extend_from_slice(kind.name().as_bytes());
    out.extend_from_slice(br#"","data":0}"#);
    Some(finish_frame(out, from, limits, &[*data]))
}

/// Appends a number in decimal digits.
fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Returns the event id of an answer, if its head is complete and has a form that this module reads.
#[must_use]
pub fn answer_id(head: &[u8]) -> Option<u64> {
    let answer = Answer::begin(head)?;
    answer.finish(|_| Some(()), |_| ())?;
    Some(answer.id)
}

/// Reads an answer to the event `message` or `close` whose effects are all `send`. Returns `None` if the general
/// parser has to read the frame.
pub(super) fn read_answer<'a>(
    frame: Frame<'a>,
    event: impl Fn(u64) -> Option<EventName>,
) -> Option<FromWorker<'a>> {
    let answer = Answer::begin(frame.head)?;
    let name = event(answer.id)?;
    if !matches!(name, EventName::Message | EventName::Close) {
        return None;
    }
    let (mut sends, mut lengths) = (Vec::new(), Vec::new());
    let send = |send| {
        sends.push(send);
        (sends.len() <= EFFECTS_MAX).then_some(())
    };
    answer.finish(send, |length| lengths.push(length))?;
    let parts = PayloadParts::new(frame.payload, &lengths).ok()?;
    let effects = sends.into_iter().map(|send| {
        let kind = match send.is_binary {
            true => MessageKind::Binary,
            false => MessageKind::Text,
        };
        let data = parts.get_as(send.data, kind.into()).ok()?;
        let to = send.to;
        Some(WorkerEffect::Send { to, kind, data })
    });
    Some(FromWorker::Handled(HandlerOutput {
        event: Some(answer.id),
        effects: effects.collect::<Option<_>>()?,
        end: Some(HandlerEnd::Done),
    }))
}

/// An answer whose id was read.
#[derive(Clone, Copy)]
struct Answer<'a> {
    id: u64,
    rest: Cursor<'a>,
}

/// The effect `send` with its fields.
#[derive(Clone, Copy)]
struct SendEffect {
    to: Option<WorkerConnection>,
    is_binary: bool,
    data: u32,
}

impl<'a> Answer<'a> {
    fn begin(head: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(head);
        rest.take(br#"{"type":"answer","id":"#)?;
        let id = rest.number()?;
        Some(Self { id, rest })
    }

    /// Reads the rest of the head: passes each effect to `send`, and the length of each part to `part`. Returns `None`
    /// if the head has another form.
    fn finish(
        &self,
        mut send: impl FnMut(SendEffect) -> Option<()>,
        mut part: impl FnMut(u32),
    ) -> Option<()> {
        let mut rest = self.rest;
        if rest.take(br#","effects":["#).is_some() {
            loop {
                send(rest.send()?)?;
                if rest.take(b"]").is_some() {
                    break;
                }
                rest.take(b",")?;
            }
        }
        if rest.take(br#","parts":["#).is_some() {
            loop {
                part(rest.number()?.try_into().ok()?);
                if rest.take(b"]").is_some() {
                    break;
                }
                rest.take(b",")?;
            }
        }
        (rest.0 == b"}").then_some(())
    }
}

/// The part of a head that is not parsed yet. If the expected text does not follow, a method returns `None` and
/// consumes nothing.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Takes a number of at most 18 digits, without leading zeros as JSON demands.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        let mut count = 0;
        for byte in self.0 {
            match byte {
                b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
                _ => break,
            }
            count += 1;
            if count > 18 {
                return None;
            }
        }
        let has_zero = count > 1 && self.0.first() == Some(&b'0');
        if count == 0 || has_zero {
            return None;
        }
        self.0 = &self.0[count..];
        Some(number)
    }

    fn send(&mut self) -> Option<SendEffect> {
        self.take(br#"{"effect":"send""#)?;
        let to = match self.take(br#","connection":""#) {
            Some(()) => Some(self.connection()?),
            None => None,
        };
        let is_binary = self.take(br#","data_kind":"binary""#).is_some();
        if !is_binary {
            let _ = self.take(br#","data_kind":"text""#);
        }
        self.take(br#","data":"#)?;
        let data = self.number()?.try_into().ok()?;
        self.take(b"}")?;
        Some(SendEffect {
            to,
            is_binary,
            data,
        })
    }

    /// Takes the id of a connection and the quote after it.
    fn connection(&mut self) -> Option<WorkerConnection> {
        let worker = WorkerId(self.number()?.try_into().ok()?);
        self.take(b".")?;
        let index = self.number()?.try_into().ok()?;
        self.take(b".")?;
        let generation = self.number()?.try_into().ok()?;
        self.take(b"\"")?;
        Some(WorkerConnection {
            worker,
            connection: ConnectionId { index, generation },
        })
    }
}
