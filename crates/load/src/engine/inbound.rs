//! The path of received data from the driver to the load: TLS, then a handshake, frames, responses
//! or lines.

use veche_net::{CloseReason, Driver, DriverEvent, Epoll};
use veche_proto::websocket::deflate::DeflatePolicy;
use veche_proto::websocket::handshake::{new_key, read_response, write_request};
use veche_proto::websocket::{
    Decoder, Encoder, FrameEvent as Frame, MessageLimits, Opcode, Role, encode_control,
};

use super::{Engine, LoadIo};
use crate::client::{ClientState, LoadResponse, ResponseReader, WebSocketHandshake};
use crate::clock::now_ns;
use crate::payload::excerpt;
use crate::plan::Endpoint;
use crate::tally::{ErrorCase, ErrorCause};

/// Limits on messages of a server.
const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 64 * 1024 * 1024,
    fragments_max: 1_000_000,
    inflate_ratio_max: 0,
};
/// Maximum length of a line. A longer line ends its connection.
const LINE_BYTES_MAX: usize = 1024 * 1024;

impl Engine<'_> {
    pub(super) fn event(&mut self, driver: &mut Epoll, event: DriverEvent<'_>) {
        self.net.now_ns = now_ns();
        if self.net.work_began_ns == 0 {
            self.net.work_began_ns = self.net.now_ns;
        }
        match event {
            DriverEvent::Received { id, bytes } => {
                let Some(client_index) = self.net.find(id) else {
                    return;
                };
                self.net.current = Some(client_index);
                self.received(driver, client_index, bytes);
                self.net.current = None;
                self.net.flush(driver, client_index);
            }
            DriverEvent::Sent { id, buffer } => {
                if let Some(client_index) = self.net.find(id) {
                    self.net.set_unsent(client_index, driver.unsent(id));
                }
                self.net.recycle(buffer);
            }
            DriverEvent::Connected { id } => {
                if let Some(client_index) = self.net.find(id) {
                    self.connected(driver, client_index);
                }
            }
            DriverEvent::Ended { id } => {
                if let Some(client_index) = self.net.find(id) {
                    self.ended(driver, client_index);
                }
            }
            DriverEvent::Timer { id } => {
                if let Some(client_index) = self.net.find(id)
                    && self.net.clients[client_index as usize].state.is_opening()
                {
                    self.fail(
                        driver,
                        client_index,
                        &ErrorCase::new(ErrorCause::TimedOut, "handshake timed out"),
                    );
                }
            }
            DriverEvent::Closed { id, reason } => {
                if let Some(client_index) = self.net.find(id) {
                    if reason != CloseReason::Requested {
                        self.fail(driver, client_index, &reason.into());
                    }
                    // The connection is not marked as closed if it has been opened again in the meantime.
                    if self.net.find(id).is_some() {
                        self.net.clients[client_index as usize].state = ClientState::Closed;
                    }
                }
            }
            DriverEvent::Accepted { .. }
            | DriverEvent::AcceptStalled { .. }
            | DriverEvent::Drained { .. }
            | DriverEvent::Progressed { .. }
            | DriverEvent::Woken => {}
        }
    }

    fn connected(&mut self, driver: &mut Epoll, client_index: u32) {
        let client = &mut self.net.clients[client_index as usize];
        self.net.families[client.endpoint as usize].preferred = client.family.preferred();
        if let Some(trust) = &self.net.trusts[client.endpoint as usize] {
            match trust.connect() {
                Ok(tls) => {
                    client.tls = Some(tls);
                    self.net.flush(driver, client_index);
                }
                Err(error) => self.fail(
                    driver,
                    client_index,
                    &ErrorCase::new(ErrorCause::Tls, error.to_string()),
                ),
            }
        } else {
            self.begin(driver, client_index);
            self.net.flush(driver, client_index);
        }
    }

    /// Begins the client's protocol after connect and TLS.
    fn begin(&mut self, driver: &mut Epoll, client_index: u32) {
        let net = &mut self.net;
        let client = &mut net.clients[client_index as usize];
        let endpoint = &net.plan.endpoints[client.endpoint as usize];
        if endpoint.target.scheme.is_websocket() {
            let key = new_key(net.rng.u128(..).to_le_bytes());
            let number = u64::from(client.number);
            let headers: Vec<_> = endpoint
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.fill(number)))
                .collect();
            let mut path = endpoint.target.path.fill(number);
            self.load.amend(client_index, &mut path);
            write_request(
                &mut net.out,
                &endpoint.target.authority,
                &path,
                &key,
                &endpoint.subprotocols.join(", "),
                policy(endpoint),
                headers.iter().map(|(name, value)| (*name, value.as_str())),
            );
            client.state = ClientState::Handshaking(Box::new(WebSocketHandshake {
                key,
                response: Vec::new(),
            }));
        } else if endpoint.target.scheme.is_http() {
            let expect = self.load.expects();
            client.state = ClientState::Http(Box::new(ResponseReader::new(expect)));
            self.opened(driver, client_index);
        } else {
            client.state = ClientState::Lines(Vec::new());
            self.opened(driver, client_index);
        }
    }

    fn opened(&mut self, driver: &mut Epoll, client_index: u32) {
        let net = &mut self.net;
        let client = &mut net.clients[client_index as usize];
        driver.clear_timer(client.transport);
        net.tally.handshake.record(net.now_ns - client.began_ns);
        net.opening -= 1;
        if client.was_open {
            net.tally.reconnected += 1;
        } else {
            client.was_open = true;
            net.tally.opened += 1;
            net.tally.settled_ns = Some(net.now_ns);
        }
        let before = net.current.replace(client_index);
        self.load.opened(
            &mut LoadIo {
                driver,
                net: &mut self.net,
            },
            client_index,
        );
        self.net.current = before;
    }

    fn received(&mut self, driver: &mut Epoll, client_index: u32, bytes: &mut [u8]) {
        let client = &mut self.net.clients[client_index as usize];
        let Some(tls) = client.tls.as_mut() else {
            self.feed(driver, client_index, bytes);
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let result = tls.receive(bytes, &mut plain);
        let is_ready = !tls.is_handshaking();
        match result {
            Err(error) => self.fail(
                driver,
                client_index,
                &ErrorCase::new(ErrorCause::Tls, error.to_string()),
            ),
            Ok(()) => {
                if is_ready && matches!(client.state, ClientState::Connecting) {
                    self.begin(driver, client_index);
                }
                self.feed(driver, client_index, &mut plain);
            }
        }
        self.plain = plain;
    }

    /// Handles bytes received from the server, after decryption if TLS is used.
    fn feed(&mut self, driver: &mut Epoll, client_index: u32, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let client = &mut self.net.clients[client_index as usize];
            let taken = match &mut client.state {
                ClientState::WebSocket(decoder, _) => {
                    match decoder.decode(rest, &mut self.codecs, &LIMITS) {
                        Ok((taken, None)) => Ok(taken),
                        Ok((taken, Some(Frame::Message { kind, data }))) => {
                            let mut io = LoadIo {
                                driver,
                                net: &mut self.net,
                            };
                            if io.net.has_heartbeats
                                && let Some(answer) = io.net.heartbeat_answer(client_index, data)
                            {
                                io.send(client_index, kind, &answer);
                            } else {
                                self.load.message(&mut io, client_index, kind, data);
                            }
                            Ok(taken)
                        }
                        Ok((taken, Some(Frame::Ping(data)))) => {
                            let mask = self.net.rng.u32(..).to_le_bytes();
                            encode_control(&mut self.net.out, Opcode::Pong, data, Some(mask));
                            Ok(taken)
                        }
                        Ok((taken, Some(Frame::Pong(_)))) => Ok(taken),
                        Ok((_, Some(Frame::Close { code, reason }))) => {
                            let code =
                                code.map_or("no close code".to_owned(), |code| code.to_string());
                            Err(ErrorCase::new(
                                ErrorCause::Closed,
                                format!("the server closed the connection: {code} {reason}"),
                            ))
                        }
                        Err(error) => {
                            Err(ErrorCase::new(ErrorCause::BadProtocol, error.to_string()))
                        }
                    }
                }
                ClientState::Http(reader) => match reader.read(rest) {
                    Ok((taken, None)) => Ok(taken),
                    Ok((taken, Some(response))) => {
                        self.response(driver, client_index, response);
                        Ok(taken)
                    }
                    Err(words) => Err(ErrorCase::new(ErrorCause::BadProtocol, words)),
                },
                ClientState::Lines(partial) => {
                    let (line, taken) = match rest.iter().position(|byte| *byte == b'\n') {
                        Some(at) => (Some(&rest[..at]), at + 1),
                        None => (None, rest.len()),
                    };
                    if partial.len() + taken > LINE_BYTES_MAX {
                        Err(ErrorCase::new(
                            ErrorCause::BadProtocol,
                            "a received line is longer than 1 MiB",
                        ))
                    } else if let Some(line) = line {
                        let mut whole = std::mem::take(partial);
                        whole.extend_from_slice(line);
                        let mut io = LoadIo {
                            driver,
                            net: &mut self.net,
                        };
                        self.load.line(&mut io, client_index, &whole);
                        Ok(taken)
                    } else {
                        partial.extend_from_slice(rest);
                        Ok(taken)
                    }
                }
                ClientState::Handshaking(shaking) => {
                    shaking.response.extend_from_slice(rest);
                    self.handle_handshake(driver, client_index);
                    return;
                }
                // Data that arrives after the tester has closed the connection is ignored.
                ClientState::Closed | ClientState::Connecting | ClientState::Leaving => return,
            };
            match taken {
                Ok(taken) => rest = &mut rest[taken..],
                Err(fault) => {
                    self.fail(driver, client_index, &fault);
                    return;
                }
            }
        }
    }

    /// Handles the response to the handshake.
    fn handle_handshake(&mut self, driver: &mut Epoll, client_index: u32) {
        let client = &mut self.net.clients[client_index as usize];
        let endpoint = &self.net.plan.endpoints[client.endpoint as usize];
        let ClientState::Handshaking(shaking) = &mut client.state else {
            return;
        };
        let protocols = endpoint.subprotocols.join(", ");
        match read_response(
            &shaking.response,
            &shaking.key,
            &protocols,
            policy(endpoint),
        ) {
            Ok(None) => {}
            Ok(Some((size, accepted))) => {
                let deflate = accepted.deflate;
                let mut rest = std::mem::take(&mut shaking.response);
                client.state = ClientState::WebSocket(
                    Decoder::new(Role::Client, deflate),
                    Encoder::new(Role::Client, deflate),
                );
                self.opened(driver, client_index);
                self.feed(driver, client_index, &mut rest[size..]);
            }
            Err(error) => {
                let words = format!("{error}: {}", excerpt(&shaking.response));
                self.fail(
                    driver,
                    client_index,
                    &ErrorCase::new(ErrorCause::BadHandshake, words),
                );
            }
        }
    }

    fn response(&mut self, driver: &mut Epoll, client_index: u32, response: LoadResponse) {
        if response.is_last {
            self.drop_transport(driver, client_index);
        }
        let mut io = LoadIo {
            driver,
            net: &mut self.net,
        };
        self.load.response(&mut io, client_index, response);
    }

    fn ended(&mut self, driver: &mut Epoll, client_index: u32) {
        let client = &mut self.net.clients[client_index as usize];
        match &mut client.state {
            ClientState::Http(reader) => {
                if let Some(response) = reader.end() {
                    self.response(driver, client_index, response);
                    return;
                }
                let words = if reader.is_midway() {
                    "the server ended the connection in the middle of a response"
                } else {
                    "the server ended the connection"
                };
                self.fail(
                    driver,
                    client_index,
                    &ErrorCase::new(ErrorCause::Closed, words),
                );
            }
            ClientState::WebSocket(..) => {
                let fault = ErrorCase::new(
                    ErrorCause::Closed,
                    "the server ended the connection without a Close frame",
                );
                self.fail(driver, client_index, &fault);
            }
            ClientState::Lines(_) => {
                let fault = ErrorCase::new(ErrorCause::Closed, "the server ended the connection");
                self.fail(driver, client_index, &fault);
            }
            ClientState::Connecting | ClientState::Handshaking(_) => {
                let fault = ErrorCase::new(
                    ErrorCause::BadHandshake,
                    "the server ended the connection during the handshake",
                );
                self.fail(driver, client_index, &fault);
            }
            ClientState::Leaving => driver.close(client.transport),
            ClientState::Closed => {}
        }
    }

    /// Ends an opening or open client, counts the error, and notifies the load. A connect is first
    /// retried with the other address family.
    pub(super) fn fail(&mut self, driver: &mut Epoll, client_index: u32, fault: &ErrorCase) {
        if self.open_other_family(driver, client_index) {
            return;
        }
        let net = &mut self.net;
        let client = &mut net.clients[client_index as usize];
        let (was_opening, was_open) = (client.state.is_opening(), client.state.is_open());
        if !was_opening && !was_open {
            return;
        }
        let is_forgiven = client.was_open && self.load.forgives(fault, was_open);
        if !is_forgiven {
            net.fault(fault);
        }
        if was_open {
            net.tally.disconnected += u64::from(!is_forgiven);
        } else {
            net.opening -= 1;
            if !net.clients[client_index as usize].was_open {
                net.tally.failed += 1;
                net.tally.settled_ns = Some(net.now_ns);
            }
        }
        self.drop_transport(driver, client_index);
        let mut io = LoadIo {
            driver,
            net: &mut self.net,
        };
        self.load.closed(&mut io, client_index, was_open);
    }

    /// Retries a failed connect once with the other address family. Returns whether a retry was
    /// started.
    fn open_other_family(&mut self, driver: &mut Epoll, client_index: u32) -> bool {
        let client = &self.net.clients[client_index as usize];
        let families = &self.net.families[client.endpoint as usize];
        let is_connecting = matches!(client.state, ClientState::Connecting) && client.tls.is_none();
        let Some(family) = client.family.fallback() else {
            return false;
        };
        if !is_connecting || families.addresses.len() < 2 {
            return false;
        }
        let began_ns = client.began_ns;
        self.drop_transport(driver, client_index);
        self.net.opening -= 1;
        let mut io = LoadIo {
            driver,
            net: &mut self.net,
        };
        if let Err(fault) = io.open_family(client_index, began_ns, family) {
            self.fail(driver, client_index, &fault);
        }
        true
    }

    fn drop_transport(&mut self, driver: &mut Epoll, client_index: u32) {
        let client = &mut self.net.clients[client_index as usize];
        driver.close(client.transport);
        client.state = ClientState::Closed;
        client.tls = None;
        self.net.set_unsent(client_index, 0);
        if self.net.current == Some(client_index) {
            self.net.out.clear();
        }
    }
}

fn policy(endpoint: &Endpoint) -> Option<&'static DeflatePolicy> {
    static POLICY: DeflatePolicy = DeflatePolicy {
        takeover: true,
        server_window_bits: 15,
        client_window_bits: 15,
    };
    endpoint.deflate.then_some(&POLICY)
}
