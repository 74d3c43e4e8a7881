//! A unidirectional client of Centrifugo's protocol: on a WebSocket, a response of lines, or one of server-sent events.
//!
//! The client sends only its connect request. When it reconnects, the request contains its positions, or, if events have ids,
//! only the id of the last event.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::channels::{self, CHANNELS, TOKEN_CHANNELS};
use crate::client_transport::{CLIENT_TRANSPORTS, ClientTransport};
use crate::coverage::CoverageEvent;
use crate::data::{number_in, offset_of};
use crate::failure::{PromiseResult, promise};
use crate::frontend_config;
use crate::ledger::{KnownState, Ledger, RawPosition, place_of};
use crate::network::LinkId;
use crate::phase::Phase;
use crate::response::{ReceivedResponse, ResponseFormat, ResponsePart};
use crate::wire::{self, Reader, ServerFrame, WireEncoding};

/// The channels that the client requests.
const REQUESTED_CHANNELS: [&str; 4] = ["chat:2", "open:1", "log:1", "state:1"];

pub(crate) struct OneWayClient {
    number: usize,
    carrier: ClientTransport,
    pub(crate) phase: Phase,
    pub(crate) link: Option<LinkId>,
    /// The client's id while it is connected.
    name: String,
    /// Whether the response to the client has ended, so that the client closes its connection.
    pub(crate) is_over: bool,
    incarnation: u32,
    pub(crate) out: Vec<u8>,
    pub(crate) reads: bool,
    /// The code with which the server closes connections in a drain; `None` before a drain.
    pub(crate) drain_code: Option<u16>,
    reader: Reader,
    response: ReceivedResponse,
    /// The id of the last received event.
    last_id: String,
    /// The client's position in each channel.
    places: BTreeMap<usize, RawPosition>,
    /// By channel: the position with which the client reconnected, if any, and the ledger's state of the channel at
    /// that time.
    since: BTreeMap<usize, (Option<RawPosition>, Option<KnownState>)>,
    views: BTreeMap<usize, ChannelView>,
}

/// The client's state of a channel on its current connection.
struct ChannelView {
    /// Publications with this number or a later one were published after the client had connected.
    from: u64,
    numbers: BTreeSet<u64>,
    /// The client's position, if the channel has history.
    place: Option<RawPosition>,
    /// Publications up to this offset are recovered, not live.
    missed_to: u64,
}

impl OneWayClient {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            carrier: CLIENT_TRANSPORTS[number % CLIENT_TRANSPORTS.len()].0,
            phase: Phase::Offline,
            link: None,
            name: String::new(),
            is_over: false,
            incarnation: 0,
            out: Vec::new(),
            reads: true,
            drain_code: None,
            reader: Reader::new(WireEncoding::Json),
            response: ReceivedResponse::default(),
            last_id: String::new(),
            places: BTreeMap::new(),
            since: BTreeMap::new(),
            views: BTreeMap::new(),
        }
    }

    fn own_channel(&self) -> usize {
        channels::own_channel(self.number)
    }

    /// Iterates over all channels of the client, requested and granted.
    pub(crate) fn channels(&self) -> impl Iterator<Item = usize> + use<> {
        let asked = REQUESTED_CHANNELS
            .iter()
            .filter_map(|name| channels::find(name));
        asked.chain(TOKEN_CHANNELS).chain([self.own_channel()])
    }

    pub(crate) fn connect(&mut self, link: LinkId, incarnation: u32, ledger: &Ledger) {
        (self.link, self.incarnation, self.phase) = (Some(link), incarnation, Phase::Handshaking);
        self.drain_code = None;
        self.is_over = false;
        self.reader = Reader::new(WireEncoding::Json);
        self.response = ReceivedResponse::default();
        let user = CHANNELS[self.own_channel()].user.unwrap_or_default();
        let mut request = json!({ "token": frontend_config::token(user), "subs": {} });
        for channel in self.channels() {
            let name = CHANNELS[channel].name;
            let place = self.places.get(&channel).copied();
            self.since.insert(channel, (place, ledger.known(channel)));
            request["subs"][name] = match place.filter(|_| self.carrier != ClientTransport::Events)
            {
                Some((epoch, offset)) => json!({
                    "recover": true,
                    "epoch": veche_hub::Epoch::from_bits(epoch).to_string(),
                    "offset": offset,
                }),
                None => json!({}),
            };
        }
        let path = CLIENT_TRANSPORTS[self.number % CLIENT_TRANSPORTS.len()].1;
        let request = request.to_string();
        self.out = match self.carrier {
            ClientTransport::WebSocket => wire::handshake(path, ""),
            ClientTransport::Lines => format!(
                "POST {path} HTTP/1.1\r\nHost: sim.test\r\nContent-Length: {}\r\n\r\n{request}",
                request.len()
            )
            .into_bytes(),
            ClientTransport::Events => {
                let last_id = match self.last_id.is_empty() {
                    true => String::new(),
                    false => format!("Last-Event-ID: {}\r\n", self.last_id),
                };
                let request = percent(&request);
                format!(
                    "GET {path}?cf_connect={request} HTTP/1.1\r\nHost: sim.test\r\n{last_id}\r\n"
                )
                .into_bytes()
            }
        };
        if self.carrier == ClientTransport::WebSocket {
            // The connect request is sent with the handshake, without waiting for its response.
            let value = serde_json::from_str(&request).unwrap_or_default();
            wire::command(&mut self.out, WireEncoding::Json, &value);
        }
    }

    pub(crate) fn dropped(&mut self) {
        self.phase = Phase::Offline;
        self.drain_code = None;
        self.link = None;
        self.out.clear();
        self.views.clear();
        self.since.clear();
    }

    pub(crate) fn received(&mut self, bytes: Vec<u8>, ledger: &mut Ledger) -> PromiseResult {
        if self.carrier != ClientTransport::WebSocket {
            // Each event must be one push, because a web page passes its data to `JSON.parse`.
            let form = match self.carrier {
                ClientTransport::Events => ResponseFormat::Events,
                ClientTransport::Lines | ClientTransport::WebSocket => ResponseFormat::Lines,
            };
            for part in self.response.read(&bytes, form)? {
                match part {
                    ResponsePart::Status(status) => self.answered(status, 200)?,
                    ResponsePart::Message(line, id) => self.message(&line, id, ledger)?,
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
                ServerFrame::Status(status) => self.answered(status, 101)?,
                ServerFrame::Ping(data) => wire::pong(&mut self.out, &data),
                ServerFrame::Close(code, reason) => {
                    self.closed(code, &reason, ledger)?;
                    wire::close(&mut self.out, code);
                }
                ServerFrame::Line(line) => self.message(&line, None, ledger)?,
            }
        }
        Ok(())
    }

    fn answered(&mut self, status: u16, expected: u16) -> PromiseResult {
        match status {
            // The client was too slow, or the process shuts down, or a back end has closed the connection before it was open.
            408 => self.phase = Phase::Closing,
            503 if self.drain_code.is_some() => self.phase = Phase::Closing,
            _ => promise!(status == expected, "handshakes succeed", "{status}"),
        }
        Ok(())
    }

    fn closed(&mut self, code: Option<u16>, reason: &str, ledger: &mut Ledger) -> PromiseResult {
        let is_drain = code.is_some() && code == self.drain_code;
        // These codes mean that the client was slow or stale, or that the back end disconnected it.
        let is_fair = matches!(code, Some(3008 | 3012 | 3502 | 3503))
            || is_drain
            || self.phase == Phase::Closing;
        promise!(is_fair, "sessions end for a reason", "{code:?} {reason}");
        if is_drain {
            ledger.seen.note(CoverageEvent::OneWayClosedByDrain);
        }
        self.phase = Phase::Closing;
        Ok(())
    }

    fn message(&mut self, line: &Value, id: Option<String>, ledger: &mut Ledger) -> PromiseResult {
        // A ping, which unidirectional clients don't answer.
        if line.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        if line.get("connect").is_some() {
            promise!(
                self.phase == Phase::Handshaking,
                "a client is connected once",
                "{line}"
            );
            promise!(
                id.is_some() == (self.carrier == ClientTransport::Events),
                "every event has the client's position",
                "{line}"
            );
            self.connected(&line["connect"], ledger)?;
        } else if line.get("disconnect").is_some() {
            let end = &line["disconnect"];
            let code = end["code"].as_u64().and_then(|code| code.try_into().ok());
            self.closed(code, end["reason"].as_str().unwrap_or_default(), ledger)?;
        } else if line.get("pub").is_some() {
            self.published(line, id.is_some(), ledger)?;
        } else {
            promise!(false, "pushes are known", "{line}");
        }
        if let Some(id) = id {
            self.last_id = id;
        }
        Ok(())
    }

    fn connected(&mut self, push: &Value, ledger: &mut Ledger) -> PromiseResult {
        let name = push["client"].as_str().unwrap_or_default();
        promise!(!name.is_empty(), "clients have ids", "{push}");
        ledger.trace.note_text(name);
        ledger.seen.note(CoverageEvent::ConnectedOneWay);
        self.phase = Phase::Online;
        self.name = name.to_owned();
        for channel in self.channels() {
            let one = CHANNELS[channel];
            let reply = &push["subs"][one.name];
            promise!(
                reply.is_object(),
                "server-side subscriptions are delivered",
                "{} in {push}",
                one.name
            );
            let (since, known) = self.since.get(&channel).copied().unwrap_or_default();
            let mut view = ChannelView {
                from: ledger.next_number(channel),
                numbers: BTreeSet::new(),
                place: None,
                missed_to: 0,
            };
            if one.kind.has_history() {
                let place = place_of(reply)?;
                let is_recovered = reply["recovered"].as_bool().unwrap_or(false);
                promise!(
                    !is_recovered || since == Some(place),
                    "a one-way client continues at its position",
                    "{} begins at {place:x?} for a client that was at {since:x?}",
                    one.name
                );
                promise!(
                    is_recovered || since != Some(place),
                    "a client that has missed nothing continues",
                    "{} at {place:x?} by {:?} with {:?}",
                    one.name,
                    self.carrier,
                    self.last_id
                );
                ledger.note_position(channel, place, self.incarnation)?;
                if !is_recovered {
                    ledger.check_position(channel, known, place, self.incarnation)?;
                }
                ledger.seen.note(match (since, is_recovered) {
                    (None, _) => CoverageEvent::Heard,
                    (_, true) => CoverageEvent::WentOnOneWay,
                    (_, false) => CoverageEvent::Lost,
                });
                view.place = Some(place);
                view.missed_to = known.filter(|_| is_recovered).map_or(0, |known| known.top);
                self.places.insert(channel, place);
            }
            self.views.insert(channel, view);
        }
        Ok(())
    }

    fn published(&mut self, push: &Value, has_id: bool, ledger: &mut Ledger) -> PromiseResult {
        let (channel, number) = number_in(&push["pub"]["data"])?;
        let name = CHANNELS[channel].name;
        promise!(
            push["channel"] == name,
            "publications arrive on their channel",
            "{push}"
        );
        let Some(view) = self.views.get_mut(&channel) else {
            promise!(false, "only subscribers receive pushes", "{push}");
            return Ok(());
        };
        let offset = offset_of(&push["pub"]);
        ledger
            .trace
            .note(&[self.number as u64, channel as u64, number, offset]);
        ledger.note_delivery(channel, number)?;
        promise!(
            view.numbers.insert(number),
            "nothing is delivered twice",
            "{number} in {name}"
        );
        ledger.seen.note(CoverageEvent::HeardOneWay);
        let Some((epoch, before)) = view.place else {
            return Ok(());
        };
        promise!(
            offset == before + 1,
            "publications of a one-way client have no gap",
            "{offset} behind {before} in {name}"
        );
        promise!(
            has_id == (self.carrier == ClientTransport::Events),
            "every event has the client's position",
            "{push}"
        );
        if offset <= view.missed_to {
            ledger.seen.note(CoverageEvent::RecoveredOneWay);
        }
        let place = (epoch, offset);
        view.place = Some(place);
        self.places.insert(channel, place);
        ledger.note_publication_position(channel, number, place, self.incarnation)
    }

    /// Returns the client's id in a channel, if it is connected and subscribed.
    pub(crate) fn name_in(&self, channel: usize) -> Option<String> {
        let is_in = self.phase == Phase::Online && self.reads && self.views.contains_key(&channel);
        is_in.then(|| self.name.clone())
    }

    /// Checks the client's state while the world is at rest.
    pub(crate) fn check(&self, ledger: &Ledger) -> PromiseResult {
        if !self.reads {
            return Ok(());
        }
        promise!(
            !matches!(self.phase, Phase::Handshaking | Phase::Connecting),
            "commands are answered",
            "the request of {}",
            self.number
        );
        if self.phase != Phase::Online {
            return Ok(());
        }
        for (channel, view) in &self.views {
            let name = CHANNELS[*channel].name;
            let mut taken = ledger.all_taken(*channel, view.from);
            let missing = taken.find(|number| !view.numbers.contains(number));
            promise!(
                missing.is_none(),
                "subscribers receive everything",
                "{} by {:?} did not get {missing:?} of {name}",
                self.number,
                self.carrier
            );
            let known = ledger.known(*channel).map(|known| (known.epoch, known.top));
            promise!(
                view.place.is_none() || view.place == known,
                "subscribers receive everything",
                "{} by {:?} is at {:x?} of {name}, which is at {known:x?}",
                self.number,
                self.carrier,
                view.place
            );
        }
        Ok(())
    }
}

/// Percent-encodes text for a query.
pub(crate) fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}
