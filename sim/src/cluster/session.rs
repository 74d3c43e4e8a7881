//! A client's connection to a node: WebSocket frames with Centrifugo's protocol in JSON.
//!
//! It parses the worker's output into [`ClusterEffect`]s, and encodes commands. The world checks the effects.

use serde_json::{Value, json};
use veche_hub::{Epoch, Position, Ticket};

use super::effect::{ClusterEffect, ConfirmedSubscription, ReceivedRecovery};
use crate::Failure;
use crate::data::offset_of;
use crate::failure::{PromiseResult, promise};
use crate::wire::{self, Reader, ServerFrame, WireEncoding};

/// The path of the clients' route.
pub(super) const PATH: &str = "/connection/websocket";

/// The id of the connect command. The other commands have smaller ids: the tickets of the world.
const CONNECT: u32 = u32::MAX;

/// The code with which a subscription ends if its publications are lost.
const INSUFFICIENT_STATE: u64 = 2500;

/// The payload of publication 0. All payloads have the same length, so that the number can be read from the end of an
/// encoded publication.
const FIRST_PAYLOAD: u64 = 10_000_000;

/// A client's end of its connection: reads what the node sends.
pub(super) struct ClusterSession {
    client: usize,
    reader: Reader,
}

impl ClusterSession {
    pub(super) fn new(client: usize) -> Self {
        Self {
            client,
            reader: Reader::new(WireEncoding::Json),
        }
    }

    /// Parses received bytes into `effects`, and appends the client's output to `out`.
    pub(super) fn read(
        &mut self,
        bytes: Vec<u8>,
        effects: &mut Vec<ClusterEffect>,
        out: &mut Vec<u8>,
    ) -> PromiseResult {
        for frame in self.reader.read(bytes)? {
            match frame {
                ServerFrame::Status(101) => {
                    out.extend(command(&json!({ "id": CONNECT, "connect": {} })));
                }
                ServerFrame::Status(status) => promise!(false, "handshakes succeed", "{status}"),
                ServerFrame::Ping(data) => wire::pong(out, &data),
                ServerFrame::Close(code, reason) => promise!(
                    false,
                    "no node ends a client's session",
                    "{code:?} {reason} to client {}",
                    self.client
                ),
                ServerFrame::Line(line) => effects.extend(self.line(&line)?),
            }
        }
        Ok(())
    }

    fn line(&self, line: &Value) -> Result<Option<ClusterEffect>, Failure> {
        if let Some(push) = line.get("push") {
            return self.push(push).map(Some);
        }
        let id = line["id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let Some(id) = id else {
            return Err(unknown(line));
        };
        if id == CONNECT {
            promise!(line.get("connect").is_some(), "clients connect", "{line}");
            return Ok(None);
        }
        let ticket = Ticket(id);
        if let Some(error) = line.get("error") {
            let is_temporary = error["temporary"].as_bool() == Some(true);
            promise!(is_temporary, "failed commands may be repeated", "{line}");
            return Ok(Some(ClusterEffect::Refused(ticket)));
        }
        if let Some(result) = line.get("subscribe") {
            let confirmed = confirmed(result)?;
            return Ok(Some(ClusterEffect::Subscribed(ticket, confirmed)));
        }
        match line.get("unsubscribe") {
            Some(_) => Ok(Some(ClusterEffect::Unsubscribed(ticket))),
            None => Err(unknown(line)),
        }
    }

    fn push(&self, push: &Value) -> Result<ClusterEffect, Failure> {
        let (client, channel) = (self.client, push["channel"].as_str());
        let channel = channel.unwrap_or_default().into();
        if let Some(publication) = push.get("pub") {
            let (offset, number) = offset_and_number(publication)?;
            return Ok(ClusterEffect::Delivered {
                client,
                channel,
                offset,
                number,
            });
        }
        let code = push["unsubscribe"]["code"].as_u64();
        promise!(
            code == Some(INSUFFICIENT_STATE),
            "pushes are known",
            "{push}"
        );
        Ok(ClusterEffect::Lost { client, channel })
    }
}

/// Reads the result of a subscribe command.
fn confirmed(result: &Value) -> Result<ConfirmedSubscription, Failure> {
    let epoch = result["epoch"].as_str();
    let epoch = epoch.and_then(|epoch| epoch.parse::<Epoch>().ok());
    let Some(epoch) = epoch else {
        return Err(Failure {
            name: "a subscription has a position".to_owned(),
            detail: result.to_string(),
        });
    };
    let position = Position {
        epoch,
        offset: offset_of(result),
    };
    let is_recovering = result["was_recovering"].as_bool() == Some(true);
    let missed = result["publications"].as_array();
    let missed = missed.into_iter().flatten().map(offset_and_number);
    let publications = missed.collect::<Result<Vec<_>, _>>()?;
    let recovery = is_recovering.then(|| ReceivedRecovery {
        is_complete: result["recovered"].as_bool() == Some(true),
        publications,
    });
    Ok(ConfirmedSubscription { position, recovery })
}

/// Returns the offset and the number of a publication.
fn offset_and_number(publication: &Value) -> Result<(u64, u64), Failure> {
    let number = publication["data"].as_u64();
    match number.and_then(|number| number.checked_sub(FIRST_PAYLOAD)) {
        Some(number) => Ok((offset_of(publication), number)),
        None => Err(unknown(publication)),
    }
}

fn unknown(line: &Value) -> Failure {
    Failure {
        name: "messages are known".to_owned(),
        detail: line.to_string(),
    }
}

/// Returns the frame of a command.
pub(super) fn command(command: &Value) -> Vec<u8> {
    let mut frame = Vec::new();
    wire::command(&mut frame, WireEncoding::Json, command);
    frame
}

/// Returns the payload that stands for a number.
pub(super) fn payload_of(number: u64) -> String {
    (FIRST_PAYLOAD + number).to_string()
}

/// Returns the number of an encoded publication. The publication ends with the payload of the number ([`payload_of`]).
pub(super) fn number_in_payload(data: &[u8]) -> Option<u64> {
    let digits: &[u8; 8] = data.last_chunk()?;
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_sub(FIRST_PAYLOAD)
}
