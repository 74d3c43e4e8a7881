//! A back end on its own connection: pipelined calls of the HTTP API, or push lines.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::Failure;
use crate::channels::{CHANNELS, Kind};
use crate::data::{data, number_in};
use crate::failure::{Check, promise};
use crate::ledger::{CLIENTS, Ledger, place_of};
use crate::network::LinkId;
use crate::seen::Event;
use crate::setup::Setup;

/// Maximum number of pending calls.
const OWED_MAX: usize = 3;

/// Number of publications requested at a time.
const PAGE: usize = 20;

/// The protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http,
    Lines,
}

/// The type of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Publish(u16),
    History,
    Presence,
    RemoveHistory,
    Disconnect,
    Channels,
    Connections,
    UserStatus,
}

/// A pending call.
#[derive(Debug)]
enum Owed {
    Publication(usize, u64),
    History(usize, u64),
    Presence,
    Listed(&'static str),
    Done,
}

pub(crate) struct Caller {
    pub(crate) speaks: Speaks,
    pub(crate) link: Option<LinkId>,
    life: u32,
    pub(crate) out: Vec<u8>,
    received: Vec<u8>,
    owed: VecDeque<Owed>,
    next_id: u64,
    /// The server has announced the end of the connection.
    is_over: bool,
}

impl Caller {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            speaks: match number % 2 {
                0 => Speaks::Http,
                _ => Speaks::Lines,
            },
            link: None,
            life: 0,
            out: Vec::new(),
            received: Vec::new(),
            owed: VecDeque::new(),
            next_id: 0,
            is_over: false,
        }
    }

    pub(crate) fn connect(&mut self, link: LinkId, life: u32) {
        self.dropped();
        self.link = Some(link);
        self.life = life;
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

    pub(crate) fn call(&mut self, call: Call, channel: usize, user: &str, ledger: &mut Ledger) {
        let Some(link) = self.link else {
            return;
        };
        if self.owed.len() >= OWED_MAX || self.is_over {
            return;
        }
        let one = CHANNELS[channel];
        if let Call::Publish(pad) = call {
            // Versions of states belong to the back end.
            if !one.kind.takes_any() || one.kind == Kind::State {
                return;
            }
            let number = ledger.publish(channel, CLIENTS | link);
            let key = format!("{link}-{number}");
            let data = data(channel, number, pad);
            let command = json!({ "channel": one.name, "data": data, "idempotency_key": key });
            return self.ask("publish", command, Owed::Publication(channel, number));
        }
        if self.speaks == Speaks::Lines {
            return;
        }
        let asked = json!({ "channel": one.name });
        match call {
            Call::History if one.kind.remembers() => {
                let asked = json!({ "channel": one.name, "limit": PAGE });
                self.ask("history", asked, Owed::History(channel, ledger.now_ms));
            }
            Call::Presence if one.kind.has_presence() => {
                self.ask("presence", asked, Owed::Presence);
            }
            Call::RemoveHistory if one.kind.remembers() => {
                ledger.clear(channel);
                self.ask("history_remove", asked, Owed::Done);
            }
            Call::Channels => self.ask("channels", json!({}), Owed::Listed("channels")),
            Call::Connections => self.ask("connections", asked, Owed::Listed("connections")),
            Call::UserStatus => {
                self.ask("user_status", json!({ "user": user }), Owed::Done);
            }
            Call::Disconnect => self.ask("disconnect", json!({ "user": user }), Owed::Done),
            _ => {}
        }
    }

    fn ask(&mut self, method: &str, mut command: Value, owed: Owed) {
        self.owed.push_back(owed);
        match self.speaks {
            Speaks::Http => {
                let body = command.to_string();
                let request = format!(
                    "POST /api/{method} HTTP/1.1\r\nHost: sim.test\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                self.out.extend_from_slice(request.as_bytes());
            }
            Speaks::Lines => {
                self.next_id += 1;
                command["id"] = self.next_id.into();
                self.out.extend_from_slice(command.to_string().as_bytes());
                self.out.push(b'\n');
            }
        }
    }

    pub(crate) fn received(&mut self, bytes: &[u8], ledger: &mut Ledger, setup: &Setup) -> Check {
        self.received.extend_from_slice(bytes);
        while let Some((status, answer)) = self.next_answer()? {
            // It sent nothing, or an incomplete request, for too long.
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
            if let Speaks::Lines = self.speaks {
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
            Speaks::Lines => {
                let end = self.received.iter().position(|byte| *byte == b'\n');
                let Some(end) = end else {
                    return Ok(None);
                };
                (200, 0..end, end + 1)
            }
            Speaks::Http => {
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

    fn answered(&self, owed: &Owed, result: &Value, ledger: &mut Ledger, setup: &Setup) -> Check {
        promise!(result.is_object(), "calls succeed", "{result} to {owed:?}");
        match *owed {
            Owed::Publication(channel, number) => {
                ledger.seen.note(match self.speaks {
                    Speaks::Http => Event::Called,
                    Speaks::Lines => Event::Lined,
                });
                ledger.taken(channel, number);
                if CHANNELS[channel].kind.remembers() {
                    let place = place_of(result)?;
                    ledger.placed(channel, number, place, self.life)?;
                }
                Ok(())
            }
            Owed::History(channel, asked_ms) => {
                ledger.seen.note(Event::CalledForHistory);
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
                    ledger.placed(channel, number, (place.0, offset), self.life)?;
                }
                Ok(())
            }
            Owed::Presence => {
                ledger.seen.note(Event::CalledForPresence);
                promise!(result["presence"].is_object(), "calls succeed", "{result}");
                Ok(())
            }
            Owed::Listed(key) => {
                promise!(result[key].is_object(), "calls succeed", "{result}");
                Ok(())
            }
            Owed::Done => Ok(()),
        }
    }
}
