//! A client of Centrifugo's protocol that checks everything it receives against the ledger.
//!
//! The client only receives and produces bytes, independently of the server's code. Commands are in `client_commands.rs`, the
//! view of one channel in `subscription.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use crate::channels::{self, CHANNELS, Kind, TOKEN_CHANNELS};
use crate::client_transport::{ClientTransport, HookRoute};
use crate::coverage::CoverageEvent;
use crate::data::offset_of;
use crate::emulation_connection::{EmulationConnection, SessionAddress};
use crate::failure::{PromiseResult, promise};
use crate::hook_outcome::CommandDecision;
use crate::ledger::{Ledger, RawPosition};
use crate::network::LinkId;
use crate::one_way;
use crate::phase::Phase;
use crate::protobuf;
use crate::response::{ReceivedResponse, ResponsePart};
use crate::setup::Setup;
use crate::subscription::ExpectedSubscription;
use crate::wire::{self, Reader, ServerFrame, WireEncoding};

/// Maximum number of pending commands, so that the size of their replies is bounded.
pub(crate) const PENDING_MAX: usize = 4;

/// A command whose reply is pending.
pub(crate) struct PendingCommand {
    pub(crate) id: u32,
    pub(crate) command: crate::client_commands::SentCommand,
}

pub(crate) struct SimulatedClient {
    pub(crate) number: usize,
    /// The transport by which the client receives pushes.
    pub(crate) transport: ClientTransport,
    pub(crate) encoding: WireEncoding,
    /// Whether the client requests deltas when it subscribes.
    pub(crate) wants_deltas: bool,
    pub(crate) phase: Phase,
    pub(crate) link: Option<LinkId>,
    /// The number of restarts of the server process before the client's connection was opened.
    pub(crate) incarnation: u32,
    /// Bytes that the client has not sent yet.
    pub(crate) out: Vec<u8>,
    /// Whether the client reads received bytes.
    pub(crate) reads: bool,
    /// The client's id while it is connected.
    pub(crate) name: String,
    reader: Reader,
    /// The streamed response of a client without a WebSocket. The next three fields are for such clients too: the
    /// session address, unsent commands, and the connection that sends commands.
    response: ReceivedResponse,
    pub(crate) address: Option<SessionAddress>,
    pub(crate) unsent_commands: Vec<Value>,
    pub(crate) emulation: EmulationConnection,
    /// Whether the client closes its connection, because its response has ended or it abandons the session.
    pub(crate) is_over: bool,
    pub(crate) pending: VecDeque<PendingCommand>,
    pub(crate) next_id: u32,
    /// Channels to which the client wants to be subscribed.
    pub(crate) wants: BTreeSet<usize>,
    pub(crate) subscriptions: BTreeMap<usize, ExpectedSubscription>,
    /// The client's position in each channel.
    pub(crate) positions: BTreeMap<usize, RawPosition>,
    pub(crate) hook_route: HookRoute,
    /// Hook decisions on this connection whose effects have not been observed yet.
    pub(crate) decisions: Vec<CommandDecision>,
    /// The expiry of each of the client's subscriptions by channel name, and the expiry of its connection under the
    /// empty name. What does not expire has no entry.
    pub(crate) expiries: BTreeMap<Box<str>, u64>,
    /// The close code of a drain that began while the client was connected.
    pub(crate) drain_code: Option<u16>,
    /// Whether the close code of the drain was received.
    pub(crate) has_drained: bool,
}

impl SimulatedClient {
    pub(crate) fn new(number: usize, setup: &Setup) -> Self {
        let carrier = setup.carrier(number);
        let encoding = match setup.is_protobuf(number) && carrier != ClientTransport::Events {
            true => WireEncoding::Protobuf,
            false => WireEncoding::Json,
        };
        Self {
            number,
            transport: carrier,
            encoding,
            wants_deltas: setup.wants_deltas(number),
            phase: Phase::Offline,
            link: None,
            incarnation: 0,
            out: Vec::new(),
            reads: true,
            name: String::new(),
            reader: Reader::new(encoding),
            response: ReceivedResponse::default(),
            address: None,
            unsent_commands: Vec::new(),
            emulation: EmulationConnection::default(),
            is_over: false,
            pending: VecDeque::new(),
            next_id: 0,
            wants: BTreeSet::new(),
            subscriptions: BTreeMap::new(),
            positions: BTreeMap::new(),
            hook_route: setup.decides(number),
            decisions: Vec::new(),
            expiries: BTreeMap::new(),
            drain_code: None,
            has_drained: false,
        }
    }

    /// Iterates over the channels that the client gets without requesting them: the personal channel of its user, and
    /// the channels in its token.
    pub(crate) fn server_channels(&self) -> impl Iterator<Item = usize> + use<> {
        let own = channels::own_channel(self.number);
        std::iter::once(own).chain(TOKEN_CHANNELS)
    }

    pub(crate) fn connect(&mut self, link: LinkId, incarnation: u32, ledger: &Ledger) {
        (self.drain_code, self.has_drained) = (None, false);
        self.link = Some(link);
        self.incarnation = incarnation;
        self.phase = Phase::Handshaking;
        self.reader = Reader::new(self.encoding);
        self.response = ReceivedResponse::default();
        self.next_id = 0;
        let path = self.hook_route.path(self.transport);
        if self.transport != ClientTransport::WebSocket {
            self.ask_to_connect(ledger);
            let connect = self.unsent_commands.pop().unwrap_or_default();
            self.out = self.request(&path, &connect);
            return;
        }
        let more = match self.encoding {
            WireEncoding::Json => "",
            WireEncoding::Protobuf => "Sec-WebSocket-Protocol: centrifuge-protobuf\r\n",
        };
        self.out = wire::handshake(&path, more);
    }

    /// Returns a request whose response carries the messages to the client. The request contains
    /// the first command.
    fn request(&self, path: &str, connect: &Value) -> Vec<u8> {
        let (mut body, text) = (Vec::new(), connect.to_string());
        let kind = match (self.transport, self.encoding) {
            (ClientTransport::Events, _) => {
                let connect = one_way::percent(&text);
                let request =
                    format!("GET {path}?cf_connect={connect} HTTP/1.1\r\nHost: sim.test\r\n\r\n");
                return request.into_bytes();
            }
            (_, WireEncoding::Json) => {
                body.extend_from_slice(text.as_bytes());
                "application/json"
            }
            (_, WireEncoding::Protobuf) => {
                protobuf::command(&mut body, connect);
                "application/octet-stream"
            }
        };
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: sim.test\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        request
    }

    /// Sends a command or a pong.
    pub(crate) fn send_command(&mut self, command: Value) {
        match self.transport {
            ClientTransport::WebSocket => wire::command(&mut self.out, self.encoding, &command),
            ClientTransport::Lines | ClientTransport::Events => self.unsent_commands.push(command),
        }
    }

    /// Handles the end of the connection, as the client observes it.
    pub(crate) fn dropped(&mut self) {
        self.phase = Phase::Offline;
        self.link = None;
        self.is_over = false;
        self.address = None;
        self.unsent_commands.clear();
        self.out.clear();
        self.name.clear();
        self.pending.clear();
        self.decisions.clear();
        self.expiries.clear();
        self.subscriptions.clear();
    }

    /// Sends a close. The client then reads until the server has ended the connection.
    pub(crate) fn close(&mut self) {
        if matches!(self.phase, Phase::Connecting | Phase::Online) {
            self.send_close(Some(1000));
            self.phase = Phase::Closing;
        }
    }

    fn send_close(&mut self, code: Option<u16>) {
        match self.transport {
            ClientTransport::WebSocket => wire::close(&mut self.out, code),
            // These transports have no closing handshake, so further data is ignored.
            ClientTransport::Lines | ClientTransport::Events => self.is_over = true,
        }
    }

    /// Handles bytes from the server.
    pub(crate) fn received(
        &mut self,
        bytes: Vec<u8>,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        if self.transport != ClientTransport::WebSocket {
            let form = self.transport.form(self.encoding);
            for part in self.response.read(&bytes, form)? {
                match part {
                    ResponsePart::Status(200) => {}
                    ResponsePart::Status(status) => self.refused(status, ledger)?,
                    ResponsePart::Message(line, id) => {
                        promise!(id.is_none(), "only event streams have ids", "{line}");
                        self.line(&line, ledger, setup)?;
                    }
                    ResponsePart::End => {
                        promise!(
                            self.phase == Phase::Closing,
                            "sessions end with a Close",
                            "the response to {} ends",
                            self.number
                        );
                        self.is_over = true;
                    }
                }
            }
            return Ok(());
        }
        for frame in self.reader.read(bytes)? {
            match frame {
                ServerFrame::Status(101) => self.ask_to_connect(ledger),
                ServerFrame::Status(status) => self.refused(status, ledger)?,
                ServerFrame::Ping(data) => wire::pong(&mut self.out, &data),
                ServerFrame::Close(code, reason) => self.closed(code, &reason, ledger)?,
                ServerFrame::Line(line) => self.line(&line, ledger, setup)?,
            }
        }
        Ok(())
    }

    fn refused(&mut self, status: u16, ledger: &mut Ledger) -> PromiseResult {
        match status {
            503 if self.drain_code.is_some() => ledger.seen.note(CoverageEvent::RefusedInDrain),
            // The client was too slow to send its request.
            408 => {}
            _ => promise!(false, "handshakes succeed", "{status}"),
        }
        self.phase = Phase::Closing;
        Ok(())
    }

    fn closed(&mut self, code: Option<u16>, reason: &str, ledger: &mut Ledger) -> PromiseResult {
        ledger
            .trace
            .note(&[self.number as u64, code.unwrap_or(0).into()]);
        // Accepted reasons: the client was slow, did not answer a ping, sent no connect command, was
        // disconnected by the back end, or closed the connection itself.
        let is_fair = matches!(code, Some(3008 | 3012 | 3502 | 3503))
            || self.phase == Phase::Closing
            || code.is_some() && code == self.drain_code
            || self.is_ended_by(code, ledger.now_ms);
        promise!(is_fair, "sessions end for a reason", "{code:?} {reason}");
        if code.is_some() && code == self.drain_code {
            self.has_drained = true;
            ledger.seen.note(CoverageEvent::ClosedByDrain);
        }
        match code {
            Some(3008) => ledger.seen.note(CoverageEvent::Slow),
            Some(3012) => ledger.seen.note(CoverageEvent::Silent),
            Some(3503) => ledger.seen.note(CoverageEvent::Kicked),
            _ => {}
        }
        if self.phase != Phase::Closing {
            if self.transport == ClientTransport::WebSocket {
                wire::close(&mut self.out, code);
            }
            self.phase = Phase::Closing;
        }
        Ok(())
    }

    fn line(&mut self, line: &Value, ledger: &mut Ledger, setup: &Setup) -> PromiseResult {
        let object = line.as_object();
        if object.is_some_and(serde_json::Map::is_empty) {
            self.send_command(json!({}));
            return Ok(());
        }
        if let Some(push) = line.get("push") {
            return self.push(push, ledger);
        }
        self.reply(line, ledger, setup)?;
        self.subscribe_to_all(ledger);
        Ok(())
    }

    fn push(&mut self, push: &Value, ledger: &mut Ledger) -> PromiseResult {
        if let Some(end) = push.get("disconnect") {
            promise!(
                self.transport != ClientTransport::WebSocket,
                "pushes are known",
                "{push}"
            );
            let code = end["code"].as_u64().and_then(|code| code.try_into().ok());
            return self.closed(code, end["reason"].as_str().unwrap_or_default(), ledger);
        }
        let name = push["channel"].as_str().unwrap_or_default();
        let channel = CHANNELS.iter().position(|one| one.name == name);
        let subscription = channel.and_then(|channel| self.subscriptions.get_mut(&channel));
        let (Some(channel), Some(subscription)) = (channel, subscription) else {
            promise!(
                false,
                "only subscribers receive pushes",
                "{} got {push}",
                self.number
            );
            return Ok(());
        };
        if let Some(publication) = push.get("pub") {
            let (of, number) = subscription.read(publication, ledger)?;
            let offset = offset_of(publication);
            ledger
                .trace
                .note(&[self.number as u64, channel as u64, number, offset]);
            ledger.seen.note(match self.encoding {
                WireEncoding::Json => CoverageEvent::Heard,
                WireEncoding::Protobuf => CoverageEvent::HeardInBinary,
            });
            if CHANNELS[channel].kind == Kind::Wild {
                ledger.seen.note(CoverageEvent::Overheard);
                let named = publication["channel"].as_str();
                return subscription.wildcard_published(
                    of,
                    number,
                    named,
                    self.incarnation,
                    ledger,
                );
            }
            promise!(
                of == channel,
                "publications arrive on their channel",
                "{push}"
            );
            subscription.published(number, offset, self.incarnation, ledger)?;
            if CHANNELS[channel].kind.has_history() {
                self.positions.insert(channel, subscription.place);
            }
            return Ok(());
        }
        if push.get("unsubscribe").is_some() {
            return self.unsubscribed(name, ledger);
        }
        for (event, is_in) in [("join", true), ("leave", false)] {
            if let Some(client) = push[event]["info"]["client"].as_str() {
                ledger.trace.note_text(client);
                ledger.seen.note(CoverageEvent::Moved);
                return subscription.moved(client, is_in);
            }
        }
        promise!(false, "pushes are known", "{push}");
        Ok(())
    }
}
