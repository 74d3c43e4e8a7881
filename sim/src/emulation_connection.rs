//! Commands of a client without a WebSocket: envelopes posted on a separate connection, to any worker, which forwards
//! them to the worker of the response.
//!
//! An envelope names the process and the session from the connect reply. The named process accepts it with
//! status 204; any other process responds with 404. Envelopes for unknown sessions are ignored.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::Failure;
use crate::coverage::CoverageEvent;
use crate::failure::promise;
use crate::frontend_config;
use crate::ledger::Ledger;
use crate::network::LinkId;
use crate::protobuf;
use crate::wire::WireEncoding;

/// Number of envelopes after which a client changes to another connection when nothing is in flight.
const ENVELOPES_MAX: u32 = 4;

/// The address of a session from its connect reply.
#[derive(Clone, Debug)]
pub(crate) struct SessionAddress {
    pub(crate) node: String,
    pub(crate) session: String,
    /// The number of the process that sent the address.
    pub(crate) incarnation: u32,
}

impl SessionAddress {
    pub(crate) fn new(reply: &Value, incarnation: u32) -> Self {
        let text = |name: &str| reply[name].as_str().unwrap_or_default().to_owned();
        Self {
            node: text("node"),
            session: text("session"),
            incarnation,
        }
    }
}

/// An envelope without a response yet.
pub(crate) struct PendingEnvelope {
    pub(crate) status: u16,
    /// The session that the envelope's commands are for.
    pub(crate) of: Option<LinkId>,
}

/// A client's connection for envelopes, if it has one.
#[derive(Default)]
pub(crate) struct EmulationConnection {
    pub(crate) link: Option<LinkId>,
    /// The number of the process at the other end.
    pub(crate) incarnation: u32,
    pub(crate) out: Vec<u8>,
    pub(crate) received: Vec<u8>,
    pub(crate) owed: VecDeque<PendingEnvelope>,
    /// Envelopes sent on this connection.
    pub(crate) count: u32,
    /// Number of connections so far.
    pub(crate) connections: u8,
}

impl EmulationConnection {
    pub(crate) fn begin(&mut self, link: LinkId, incarnation: u32) {
        self.link = Some(link);
        self.incarnation = incarnation;
        self.count = 0;
    }

    pub(crate) fn dropped(&mut self) {
        self.link = None;
        self.out.clear();
        self.received.clear();
        self.owed.clear();
    }

    pub(crate) fn has_done_enough(&self) -> bool {
        self.count >= ENVELOPES_MAX && self.owed.is_empty()
    }

    pub(crate) fn request(&mut self, encoding: WireEncoding, body: &[u8], posted: PendingEnvelope) {
        let kind = match encoding {
            WireEncoding::Json => "application/json",
            WireEncoding::Protobuf => "application/octet-stream",
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: sim.test\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            frontend_config::EMULATION,
            body.len()
        );
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(body);
        self.owed.push_back(posted);
        self.count += 1;
    }

    /// Returns the expected status of an envelope to this address on this connection.
    pub(crate) fn status(&self, to: &SessionAddress) -> u16 {
        match to.incarnation == self.incarnation {
            true => 204,
            false => 404,
        }
    }

    /// Reads responses; returns the session of commands that were not accepted.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        ledger: &mut Ledger,
    ) -> Result<Option<LinkId>, Failure> {
        self.received.extend_from_slice(bytes);
        let mut lost = None;
        while let Some(status) = self.next_status()? {
            let Some(posted) = self.owed.pop_front() else {
                // A connection that was silent for too long gets a 408 and is closed.
                promise!(status == 408, "every answer has a request", "{status}");
                continue;
            };
            if status == 408 {
                // This envelope did not arrive completely in time, so the later envelopes were not accepted either.
                let mut sessions = self.owed.drain(..).rev().filter_map(|one| one.of);
                return Ok(sessions.next().or(posted.of));
            }
            promise!(
                status == posted.status,
                "an envelope gets the right status",
                "{status} instead of {}",
                posted.status
            );
            ledger.seen.note(match posted.of {
                Some(_) => CoverageEvent::Posted,
                None => CoverageEvent::Forged,
            });
            if status != 204 {
                lost = lost.or(posted.of);
            }
        }
        Ok(lost)
    }

    pub(crate) fn next_status(&mut self) -> Result<Option<u16>, Failure> {
        let found = self
            .received
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        let Some(end) = found else {
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&self.received[..end]).to_lowercase();
        let status = head
            .strip_prefix("http/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        promise!(status.is_some(), "responses are HTTP", "{head:?}");
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let end = end + 4 + length.unwrap_or(0);
        if self.received.len() < end {
            return Ok(None);
        }
        self.received.drain(..end);
        Ok(status)
    }
}

/// Encodes commands as in an envelope.
fn written(encoding: WireEncoding, commands: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        match encoding {
            WireEncoding::Json if out.is_empty() => {
                out.extend_from_slice(command.to_string().as_bytes())
            }
            WireEncoding::Json => out.extend_from_slice(format!("\n{command}").as_bytes()),
            WireEncoding::Protobuf => protobuf::command(&mut out, command),
        }
    }
    out
}

pub(crate) fn envelope(
    encoding: WireEncoding,
    node: &str,
    session: &str,
    commands: &[Value],
) -> Vec<u8> {
    let commands = written(encoding, commands);
    match encoding {
        WireEncoding::Protobuf => protobuf::envelope(node, session, &commands),
        WireEncoding::Json => {
            let data = String::from_utf8_lossy(&commands);
            let body = json!({ "node": node, "session": session, "data": data });
            body.to_string().into_bytes()
        }
    }
}
