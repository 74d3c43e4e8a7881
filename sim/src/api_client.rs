//! A back end on its own connection: pipelined calls of the HTTP API, or push lines.

use std::collections::VecDeque;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::Failure;
use crate::channels::{CHANNELS, Kind};
use crate::coverage::CoverageEvent;
use crate::data::{data, number_in, offset_of};
use crate::failure::{PromiseResult, promise};
use crate::ledger::{CLIENTS, Ledger, place_of};
use crate::network::LinkId;
use crate::response::{find, take_chunk};
use crate::setup::Setup;

/// Maximum number of pending calls.
const PENDING_MAX: usize = 3;

/// Number of publications requested at a time.
const PAGE: usize = 20;

/// The protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiProtocol {
    Http,
    Lines,
}

/// The type of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEndCall {
    Publish(u16),
    History,
    Presence,
    RemoveHistory,
    Disconnect,
    Channels,
    Connections,
    UserStatus,
    /// Several calls in one, selected by this seed.
    Batch(u32),
}

/// How a response marks the end of its body.
enum BodyFraming {
    Length(u32),
    Chunked,
}

#[derive(Debug)]
enum PendingCall {
    Publication(usize, u64),
    History(usize, u64),
    Presence,
    Listed(&'static str),
    Done,
    /// The calls of a batch, each with its method.
    Batch(Vec<(&'static str, Self)>),
}

pub(crate) struct ApiClient {
    pub(crate) speaks: ApiProtocol,
    pub(crate) link: Option<LinkId>,
    incarnation: u32,
    pub(crate) out: Vec<u8>,
    received: Vec<u8>,
    /// The status and the received part of the body of an incomplete chunked response.
    chunked: Option<(u16, Vec<u8>)>,
    owed: VecDeque<PendingCall>,
    next_id: u64,
    /// The server has announced the end of the connection.
    is_over: bool,
}

impl ApiClient {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            speaks: match number % 2 {
                0 => ApiProtocol::Http,
                _ => ApiProtocol::Lines,
            },
            link: None,
            incarnation: 0,
            out: Vec::new(),
            received: Vec::new(),
            chunked: None,
            owed: VecDeque::new(),
            next_id: 0,
            is_over: false,
        }
    }

    pub(crate) fn connect(&mut self, link: LinkId, incarnation: u32) {
        self.dropped();
        self.link = Some(link);
        self.incarnation = incarnation;
        self.is_over = false;
    }

    pub(crate) fn dropped(&mut self) {
        self.link = None;
        self.out.clear();
        self.received.clear();
        self.chunked = None;
        self.owed.clear();
    }

    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }

    pub(crate) fn call(
        &mut self,
        call: BackEndCall,
        channel: usize,
        user: &str,
        ledger: &mut Ledger,
    ) {
        let Some(link) = self.link else {
            return;
        };
        if self.owed.len() >= PENDING_MAX || self.is_over {
            return;
        }
        let call = match (self.speaks, call) {
            (ApiProtocol::Http, _) | (_, BackEndCall::Publish(_)) => call,
            (ApiProtocol::Lines, BackEndCall::Batch(_)) => BackEndCall::Publish(0),
            (ApiProtocol::Lines, _) => return,
        };
        if let BackEndCall::Batch(salt) = call {
            let mut random = Rng::with_seed(salt.into());
            let calls = (0..random.usize(2..6)).map(|_| call_in_batch(&mut random));
            let (mut commands, mut owed) = (Vec::new(), Vec::new());
            for (method, command, one) in
                calls.filter_map(|call| request(call, link, channel, user, ledger))
            {
                commands.push(json!({ method: command }));
                owed.push((method, one));
            }
            if !owed.is_empty() {
                let batch = json!({ "commands": commands });
                self.ask("batch", batch, PendingCall::Batch(owed));
            }
            return;
        }
        if let Some((method, command, owed)) = request(call, link, channel, user, ledger) {
            self.ask(method, command, owed);
        }
    }

    fn ask(&mut self, method: &str, mut command: Value, owed: PendingCall) {
        self.owed.push_back(owed);
        match self.speaks {
            ApiProtocol::Http => {
                let body = command.to_string();
                let request = format!(
                    "POST /api/{method} HTTP/1.1\r\nHost: sim.test\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                self.out.extend_from_slice(request.as_bytes());
            }
            ApiProtocol::Lines => {
                self.next_id += 1;
                command["id"] = self.next_id.into();
                self.out.extend_from_slice(command.to_string().as_bytes());
                self.out.push(b'\n');
            }
        }
    }

    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        self.received.extend_from_slice(bytes);
        while let Some((status, answer)) = self.next_answer()? {
            // The connection sent nothing, or an incomplete request, for too long.
            if status == 408 {
                self.is_over = true;
                self.owed.clear();
                return Ok(());
            }
            promise!(
                status == 200 && answer.get("error").is_none(),
                "calls succeed",
                "{status} {answer}"
            );
            let Some(owed) = self.owed.pop_front() else {
                promise!(false, "every answer has a request", "{answer}");
                return Ok(());
            };
            if let ApiProtocol::Lines = self.speaks {
                let id = self.next_id - self.owed.len() as u64;
                promise!(
                    answer["id"] == id,
                    "replies come in order",
                    "{answer}, not to {id}"
                );
            }
            match &owed {
                PendingCall::Batch(calls) => {
                    self.batch_answered(calls, &answer["replies"], ledger, setup)?;
                }
                _ => self.answered(&owed, &answer["result"], ledger, setup)?,
            }
        }
        Ok(())
    }

    /// Checks the replies to a batch, whose calls are executed in order.
    fn batch_answered(
        &self,
        calls: &[(&str, PendingCall)],
        replies: &Value,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        let count = replies.as_array().map(Vec::len);
        promise!(count == Some(calls.len()), "calls succeed", "{replies}");
        // The position of the last publication, and that of the last one before a removal of the history.
        let (mut published, mut removed) = ((0, 0), (0, 0));
        for (number, (method, owed)) in calls.iter().enumerate() {
            let result = &replies[number][method];
            self.answered(owed, result, ledger, setup)?;
            match owed {
                PendingCall::Publication(channel, _) if CHANNELS[*channel].kind.has_history() => {
                    published = place_of(result)?;
                }
                PendingCall::Done if *method == "history_remove" => removed = published,
                PendingCall::History(..) => {
                    let place = place_of(result)?;
                    if published.0 == place.0 {
                        ledger.seen.note(CoverageEvent::CalledInOrder);
                    }
                    let all = result["publications"].as_array();
                    let oldest = all.into_iter().flatten().map(offset_of).min();
                    let has_published = published.0 != place.0 || published.1 <= place.1;
                    let has_removed =
                        removed.0 != place.0 || oldest.is_none_or(|one| one > removed.1);
                    promise!(
                        has_published && has_removed,
                        "the calls of a batch are executed in order",
                        "{result} after {published:?}, removed up to {removed:?}"
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the next response with its status; `None` if it is incomplete.
    fn next_answer(&mut self) -> Result<Option<(u16, Value)>, Failure> {
        let found = match self.speaks {
            ApiProtocol::Lines => self.next_line(),
            ApiProtocol::Http => self.next_response()?,
        };
        let Some((status, body)) = found else {
            return Ok(None);
        };
        let answer = serde_json::from_slice(&body);
        promise!(
            answer.is_ok() || status != 200,
            "lines are JSON",
            "{}",
            String::from_utf8_lossy(&body)
        );
        Ok(Some((status, answer.unwrap_or_default())))
    }

    fn next_line(&mut self) -> Option<(u16, Vec<u8>)> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        Some((200, self.received.drain(..=end).collect()))
    }

    fn next_response(&mut self) -> Result<Option<(u16, Vec<u8>)>, Failure> {
        if self.chunked.is_none() {
            let Some(head_end) = find(&self.received, b"\r\n\r\n") else {
                return Ok(None);
            };
            let head = String::from_utf8_lossy(&self.received[..head_end]).to_lowercase();
            let begin = head_end + 4;
            match parse_head(&head) {
                Some((status, BodyFraming::Length(length))) => {
                    let end = begin + length as usize;
                    if self.received.len() < end {
                        return Ok(None);
                    }
                    let body = self.received.drain(..end).skip(begin).collect();
                    return Ok(Some((status, body)));
                }
                Some((status, BodyFraming::Chunked)) => {
                    self.received.drain(..begin);
                    self.chunked = Some((status, Vec::new()));
                }
                None => promise!(false, "responses are HTTP", "{head:?}"),
            }
        }
        while let Some(chunk) = take_chunk(&mut self.received)? {
            match &mut self.chunked {
                Some((_, body)) if !chunk.is_empty() => body.extend(chunk),
                chunked => return Ok(chunked.take()),
            }
        }
        Ok(None)
    }

    fn answered(
        &self,
        owed: &PendingCall,
        result: &Value,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        promise!(result.is_object(), "calls succeed", "{result} to {owed:?}");
        match *owed {
            PendingCall::Publication(channel, number) => {
                ledger.seen.note(match self.speaks {
                    ApiProtocol::Http => CoverageEvent::Called,
                    ApiProtocol::Lines => CoverageEvent::Lined,
                });
                ledger.taken(channel, number);
                if CHANNELS[channel].kind.has_history() {
                    let place = place_of(result)?;
                    ledger.note_publication_position(channel, number, place, self.incarnation)?;
                }
                Ok(())
            }
            PendingCall::History(channel, asked_ms) => {
                ledger.seen.note(CoverageEvent::CalledForHistory);
                let place = place_of(result)?;
                let all = result["publications"].as_array();
                let count = all.map_or(0, Vec::len);
                promise!(
                    count <= PAGE.min(CHANNELS[channel].kind.size(setup) as usize),
                    "history respects its size",
                    "{count} of {}",
                    CHANNELS[channel].name
                );
                let mut before = None;
                for one in all.into_iter().flatten() {
                    let (of, number) = number_in(&one["data"])?;
                    let offset = one["offset"].as_u64().unwrap_or(0);
                    promise!(
                        of == channel && before.is_none_or(|before| before + 1 == offset),
                        "history has no gap",
                        "{offset} behind {before:?} in {result}"
                    );
                    before = Some(offset);
                    ledger.check_age(channel, number, asked_ms)?;
                    ledger.note_publication_position(
                        channel,
                        number,
                        (place.0, offset),
                        self.incarnation,
                    )?;
                }
                Ok(())
            }
            PendingCall::Presence => {
                ledger.seen.note(CoverageEvent::CalledForPresence);
                promise!(result["presence"].is_object(), "calls succeed", "{result}");
                Ok(())
            }
            PendingCall::Listed(key) => {
                promise!(result[key].is_object(), "calls succeed", "{result}");
                Ok(())
            }
            PendingCall::Done | PendingCall::Batch(_) => Ok(()),
        }
    }
}

/// Returns a call of a batch.
fn call_in_batch(random: &mut Rng) -> BackEndCall {
    match random.u8(0..16) {
        0..8 => BackEndCall::Publish(0),
        8..12 => BackEndCall::History,
        12..14 => BackEndCall::Presence,
        14 => BackEndCall::RemoveHistory,
        _ => BackEndCall::UserStatus,
    }
}

/// Returns the method, the parameters and the expected answer of a call; `None` if the channel does not support it.
fn request(
    call: BackEndCall,
    link: LinkId,
    channel: usize,
    user: &str,
    ledger: &mut Ledger,
) -> Option<(&'static str, Value, PendingCall)> {
    let one = CHANNELS[channel];
    let asked = json!({ "channel": one.name });
    Some(match call {
        // Only the back end publishes versioned states.
        BackEndCall::Publish(pad) if one.kind.takes_any() && one.kind != Kind::State => {
            let number = ledger.publish(channel, CLIENTS | link);
            let key = format!("{link}-{number}");
            let data = data(channel, number, pad);
            let command = json!({ "channel": one.name, "data": data, "idempotency_key": key });
            let owed = PendingCall::Publication(channel, number);
            ("publish", command, owed)
        }
        BackEndCall::History if one.kind.has_history() => {
            let asked = json!({ "channel": one.name, "limit": PAGE });
            let owed = PendingCall::History(channel, ledger.now_ms);
            ("history", asked, owed)
        }
        BackEndCall::Presence if one.kind.has_presence() => {
            ("presence", asked, PendingCall::Presence)
        }
        BackEndCall::RemoveHistory if one.kind.has_history() => {
            ledger.clear(channel);
            ("history_remove", asked, PendingCall::Done)
        }
        BackEndCall::Channels => ("channels", json!({}), PendingCall::Listed("channels")),
        BackEndCall::Connections => ("connections", asked, PendingCall::Listed("connections")),
        BackEndCall::UserStatus => ("user_status", json!({ "user": user }), PendingCall::Done),
        BackEndCall::Disconnect => ("disconnect", json!({ "user": user }), PendingCall::Done),
        _ => return None,
    })
}

/// Returns the status and the framing of a response with this head in lower case; `None` if it is not HTTP, or has not
/// exactly one framing.
fn parse_head(head: &str) -> Option<(u16, BodyFraming)> {
    let mut lines = head.split("\r\n");
    let rest = lines.next()?.strip_prefix("http/1.1 ")?;
    let status = rest.split(' ').next()?.parse().ok()?;
    let framing: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| matches!(*name, "content-length" | "transfer-encoding"))
        .collect();
    let framing = match *framing {
        [("content-length", length)] => BodyFraming::Length(length.parse().ok()?),
        [("transfer-encoding", "chunked")] => BodyFraming::Chunked,
        _ => return None,
    };
    Some((status, framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_in_any_parts() {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            4\r\n{\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}";
        for step in 1..text.len() {
            let mut client = ApiClient::new(0);
            let mut answers = Vec::new();
            for bytes in text.chunks(step) {
                client.received.extend_from_slice(bytes);
                while let Some(answer) = client.next_answer().expect("it is HTTP") {
                    answers.push(answer);
                }
            }
            assert_eq!(answers, [(200, json!({ "a": 1 })), (404, json!({}))]);
            assert!(client.received.is_empty(), "in steps of {step}");
        }
    }

    #[test]
    fn a_response_has_one_length() {
        for fields in [
            "A: b",
            "Content-Length: 2\r\nContent-Length: 2",
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
            "Content-Length: 4294967296",
        ] {
            let mut client = ApiClient::new(0);
            let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{{}}");
            client.received = response.into_bytes();
            assert!(client.next_answer().is_err(), "{fields}");
        }
    }
}
