//! Connections that applications open to another server, and that server: it accepts or refuses, sends messages that
//! are echoed, and closes.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use veche_frontends::{AppId, ClientOptions, DialCommand, DialId};
use veche_hub::ConnectionId;
use veche_proto::http::{HeadLimits, parse_head};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent as Frame, MessageKind, MessageLimits, Opcode, Role, encode_close,
    encode_control, encode_message, handshake,
};

use crate::Failure;
use crate::apps::{DialEvent, DialRequest};
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::network::LinkId;
use crate::peers::DIALED;
use crate::world::World;

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 64 << 10,
    fragments_max: 16,
    inflate_ratio_max: 0,
};

/// Maximum number of open connections.
const OPEN_MAX: usize = 4;

/// The port of simulated servers that accept a WebSocket; servers with the port [`REFUSES`] refuse it. The host of a
/// server's address is the number of the connection.
const AGREES: u16 = 80;
const REFUSES: u16 = 81;

const PING_INTERVAL_MS: u64 = 10_000;
const PONG_TIMEOUT_MS: u64 = 3_000;
const DIAL_TIMEOUT_MS: u64 = 5_000;

/// All dialed connections by number, and the existing servers.
#[derive(Default)]
pub(crate) struct Dials {
    all: BTreeMap<u64, State>,
    servers: BTreeMap<u64, Server>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Open,
    Over,
}

/// The remote end of one connection.
pub(crate) struct Server {
    pub(crate) link: Option<LinkId>,
    pub(crate) out: Vec<u8>,
    refuses: bool,
    /// The request head; `None` once it is answered.
    head: Option<Vec<u8>>,
    decoder: Decoder,
    codecs: Codecs,
    /// Messages that were not echoed yet.
    sent: VecDeque<u64>,
    next: u64,
    is_over: bool,
}

impl Server {
    fn new(link: LinkId, refuses: bool) -> Self {
        Self {
            link: Some(link),
            out: Vec::new(),
            refuses,
            head: Some(Vec::new()),
            decoder: Decoder::new(Role::Server, None),
            codecs: Codecs::default(),
            sent: VecDeque::new(),
            next: 0,
            is_over: false,
        }
    }

    fn received(&mut self, mut bytes: Vec<u8>) -> Result<bool, Failure> {
        let mut has_echoed = false;
        if let Some(head) = &mut self.head {
            head.extend_from_slice(&bytes);
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(false);
            };
            bytes = head.split_off(end + 4);
            let parsed = parse_head(head, &HeadLimits::default());
            let request = parsed.as_ref().ok();
            let upgrade = request.and_then(|head| handshake::read(head).ok()?);
            promise!(
                upgrade.is_some(),
                "an application requests a WebSocket",
                "{}",
                String::from_utf8_lossy(head)
            );
            if let Some(upgrade) = upgrade.filter(|_| !self.refuses) {
                handshake::write_response(&mut self.out, upgrade.key, None, None);
            } else {
                let refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                self.out.extend_from_slice(refusal);
            }
            self.head = None;
        }
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let decoded = self.decoder.decode(rest, &mut self.codecs, &LIMITS);
            let (taken, event) = decoded.map_err(|error| Failure {
                name: "frames are good".to_owned(),
                detail: format!("{error:?}"),
            })?;
            match event {
                Some(Frame::Message { data, .. }) => {
                    let text = String::from_utf8_lossy(data).into_owned();
                    let expected = self.sent.pop_front();
                    promise!(
                        expected.map(|number| number.to_string()).as_deref() == Some(&text),
                        "messages of an application arrive once and in order",
                        "{text} instead of {expected:?}"
                    );
                    has_echoed = true;
                }
                Some(Frame::Ping(data)) => {
                    encode_control(&mut self.out, Opcode::Pong, data, None);
                }
                Some(Frame::Close { code, .. }) => {
                    if !self.is_over {
                        encode_close(&mut self.out, code, "", None);
                    }
                    self.is_over = true;
                }
                Some(Frame::Pong(_)) | None => {}
            }
            rest = &mut rest[taken..];
        }
        Ok(has_echoed)
    }

    fn is_open(&self) -> bool {
        self.head.is_none() && !self.refuses && !self.is_over
    }
}

impl Dials {
    pub(crate) fn server(&mut self, number: usize) -> Option<&mut Server> {
        self.servers.get_mut(&(number as u64))
    }

    /// Forgets all connections after a crash of the process; no further events are expected for them.
    pub(crate) fn crashed(&mut self) {
        for state in self.all.values_mut() {
            *state = State::Over;
        }
    }

    pub(crate) fn dropped(&mut self, number: usize) {
        self.servers.remove(&(number as u64));
    }
}

impl World {
    /// Makes an application of a worker dial a server.
    pub(crate) fn dial(&mut self, worker: u8, salt: u32) {
        let worker = self.worker(worker);
        // The server refuses to dial at the end of a drain, so nothing is dialed during a drain.
        if self.peers.dials.servers.len() >= OPEN_MAX || self.drain.is_some() {
            return;
        }
        let token = self.peers.dials.all.len() as u64;
        let caller = DialId {
            app: AppId(0),
            token,
        };
        self.peers.dials.all.insert(token, State::Begun);
        // No server listens on port 0.
        let port = match salt % 8 {
            0 => 0,
            1 => REFUSES,
            _ => AGREES,
        };
        let ip = (token as u32).to_be_bytes();
        let to = SocketAddr::from((ip, port));
        let dial = DialCommand {
            caller,
            authority: "other.test".to_owned(),
            target: "/".to_owned(),
            protocols: String::new(),
            headers: Vec::new(),
            compresses: false,
            timeout_ms: DIAL_TIMEOUT_MS,
            options: ClientOptions {
                message_limits: LIMITS,
                ping_interval_ms: PING_INTERVAL_MS,
                pong_timeout_ms: PONG_TIMEOUT_MS,
            },
        };
        self.process.workers[worker].dial(DialRequest { dial, to });
    }

    /// Opens the server's end of a connection that a worker has dialed.
    pub(crate) fn dialed(&mut self, worker: usize, id: ConnectionId, to: SocketAddr) {
        let IpAddr::V4(ip) = to.ip() else {
            return;
        };
        let token = u64::from(ip.to_bits());
        let link = self.network.open(DIALED + token as usize);
        let server = Server::new(link, to.port() == REFUSES);
        self.peers.dials.servers.insert(token, server);
        self.network.attach(link, worker, id);
        self.process.workers[worker].note_place(id);
    }

    /// Makes a server send a message on a dialed connection, or close the connection.
    pub(crate) fn server_send(&mut self, number: usize, closes: bool) {
        let servers = &mut self.peers.dials.servers;
        let Some(place) = number.checked_rem(servers.len()) else {
            return;
        };
        let Some((&token, server)) = servers.iter_mut().nth(place) else {
            return;
        };
        if !server.is_open() {
            return;
        }
        if closes {
            encode_close(&mut server.out, Some(4_000), "", None);
            server.is_over = true;
        } else {
            let number = server.next;
            server.next += 1;
            server.sent.push_back(number);
            let text = number.to_string();
            encode_message(&mut server.out, MessageKind::Text, text.as_bytes(), None);
        }
        self.send(DIALED + token as usize);
    }

    /// Passes bytes of an application's connection to the server.
    pub(crate) fn hand_to_server(&mut self, number: usize, bytes: Vec<u8>) -> PromiseResult {
        let Some(server) = self.peers.dials.server(number) else {
            return Ok(());
        };
        if server.received(bytes)? {
            self.ledger.seen.note(CoverageEvent::Echoed);
        }
        let is_over = server.is_over;
        let link = server.link;
        self.send(DIALED + number);
        if let Some(link) = link.filter(|_| is_over) {
            self.drop_client(link, true);
        }
        Ok(())
    }

    /// Handles the events of dialed connections.
    pub(crate) fn take_dialed(&mut self, worker: usize) -> PromiseResult {
        for why in self.process.workers[worker].take_reasons() {
            self.ledger.trace.note_text(&why);
            self.ledger.trace.count_output(&why);
        }
        for (token, event) in self.process.workers[worker].take_dialed() {
            let before = self.peers.dials.all.get(&token).copied();
            let after = match (before, event) {
                (Some(State::Begun), DialEvent::Opened) => Some(State::Open),
                (Some(State::Begun), DialEvent::Failed)
                | (Some(State::Open), DialEvent::Closed) => Some(State::Over),
                _ => None,
            };
            promise!(
                after.is_some(),
                "the end of a dialed connection is reported once",
                "{event:?} of {token}, which is {before:?}"
            );
            self.ledger.seen.note(match event {
                DialEvent::Opened => CoverageEvent::DialedOpen,
                DialEvent::Failed => CoverageEvent::DialFailed,
                DialEvent::Closed => CoverageEvent::DialedClosed,
            });
            self.ledger.trace.note(&[token, event as u64]);
            self.peers
                .dials
                .all
                .extend(after.map(|after| (token, after)));
        }
        Ok(())
    }

    /// Checks the dialed connections when nothing is in flight. With `is_end`, all of them must have ended.
    pub(crate) fn check_dials(&mut self, is_end: bool) -> PromiseResult {
        for worker in 0..self.process.workers.len() {
            self.take_dialed(worker)?;
        }
        let Dials { all, servers } = &self.peers.dials;
        for (token, state) in all {
            let link = servers.get(token).and_then(|server| server.link);
            let link = link.and_then(|link| self.network.links.get(&link));
            // A server that has vanished is detected only later, by the missing pong.
            let is_there = link.is_some_and(|link| link.server.is_some());
            let is_undelivered = self
                .network
                .links
                .values()
                .any(|link| link.client == DIALED + *token as usize);
            promise!(
                *state == State::Over || !is_end && (is_there || is_undelivered),
                "the end of a dialed connection is reported",
                "{token} is {state:?}"
            );
        }
        for (token, server) in servers {
            promise!(
                server.sent.is_empty() || !server.is_open(),
                "messages of an application arrive once and in order",
                "{:?} of {token} did not arrive",
                server.sent
            );
        }
        Ok(())
    }
}
