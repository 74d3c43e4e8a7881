//! A back end on its own connection: pipelined calls of the HTTP API, or push lines.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::Failure;
use crate::channels::{CHANNELS, Kind};
use crate::coverage::CoverageEvent;
use crate::data::{data, number_in};
use crate::failure::{PromiseResult, promise};
use crate::ledger::{CLIENTS, Ledger, place_of};
use crate::network::LinkId;
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
}

#[derive(Debug)]
enum PendingCall {
    Publication(usize, u64),
    History(usize, u64),
    Presence,
    Listed(&'static str),
    Done,
}

pub(crate) struct ApiClient {
    pub(crate) speaks: ApiProtocol,
    pub(crate) link: Option<LinkId>,
    incarnation: u32,
    pub(crate) out: Vec<u8>,
    received: Vec<u8>,
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
        let one = CHANNELS[channel];
        if let BackEndCall::Publish(pad) = call {
            // Only the back end publishes versioned states.
            if !one.kind.takes_any() || one.kind == Kind::State {
                return;
            }
            let number = ledger.publish(channel, CLIENTS | link);
            let key = format!("{link}-{number}");
            let data = data(channel, number, pad);
            let command = json!({ "channel": one.name, "data": data, "idempotency_key": key });
            return self.ask(
                "publish",
                command,
                PendingCall::Publication(channel, number),
            );
        }
        if self.speaks == ApiProtocol::Lines {
            return;
        }
        let asked = json!({ "channel": one.name });
        match call {
            BackEndCall::History if one.kind.has_history() => {
                let asked = json!({ "channel": one.name, "limit": PAGE });
                self.ask(
                    "history",
                    asked,
                    PendingCall::History(channel, ledger.now_ms),
                );
            }
            BackEndCall::Presence if one.kind.has_presence() => {
                self.ask("presence", asked, PendingCall::Presence);
            }
            BackEndCall::RemoveHistory if one.kind.has_history() => {
                ledger.clear(channel);
                self.ask("history_remove", asked, PendingCall::Done);
            }
            BackEndCall::Channels => {
                self.ask("channels", json!({}), PendingCall::Listed("channels"))
            }
            BackEndCall::Connections => {
                self.ask("connections", asked, PendingCall::Listed("connections"))
            }
            BackEndCall::UserStatus => {
                self.ask("user_status", json!({ "user": user }), PendingCall::Done);
            }
            BackEndCall::Disconnect => {
                self.ask("disconnect", json!({ "user": user }), PendingCall::Done)
            }
            _ => {}
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
            self.answered(&owed, &answer["result"], ledger, setup)?;
        }
        Ok(())
    }

    fn next_answer(&mut self) -> Result<Option<(u16, Value)>, Failure> {
        let (status, body, end) = match self.speaks {
            ApiProtocol::Lines => {
                let end = self.received.iter().position(|byte| *byte == b'\n');
                let Some(end) = end else {
                    return Ok(None);
                };
                (200, 0..end, end + 1)
            }
            ApiProtocol::Http => {
                let found = self
                    .received
                    .windows(4)
                    .position(|four| four == b"\r\n\r\n");
                let Some(head_end) = found else {
                    return Ok(None);
                };
                let head = String::from_utf8_lossy(&self.received[..head_end]).to_lowercase();
                let status = head
                    .strip_prefix("http/1.1 ")
                    .and_then(|rest| rest.get(..3));
                let length = head.split("content-length: ").nth(1);
                let length: Option<usize> =
                    length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
                let status = status.and_then(|status| status.parse().ok());
                let (Some(status), Some(length)) = (status, length) else {
                    promise!(false, "responses are HTTP", "{head:?}");
                    return Ok(None);
                };
                let begin = head_end + 4;
                let end = begin + length;
                if self.received.len() < end {
                    return Ok(None);
                }
                (status, begin..end, end)
            }
        };
        let answer = serde_json::from_slice(&self.received[body]);
        promise!(
            answer.is_ok() || status != 200,
            "lines are JSON",
            "{}",
            String::from_utf8_lossy(&self.received)
        );
        self.received.drain(..end);
        Ok(Some((status, answer.unwrap_or_default())))
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
            PendingCall::Done => Ok(()),
        }
    }
}
