//! What a client without a WebSocket says: commands in envelopes, which it posts on a connection beside its response, to
//! whichever worker takes that. The worker hands them to the one that has the response.
//!
//! An envelope names the process and the session as the connect reply did. It is answered with 204 once it is taken, and
//! with 404 by another process; of a session that is none nobody hears.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::Failure;
use crate::failure::{Check, promise};
use crate::ledger::Ledger;
use crate::network::LinkId;
use crate::one_way::Carrier;
use crate::peers::POSTS;
use crate::protobuf;
use crate::seen::Event;
use crate::site;
use crate::wire::Encoding;
use crate::world::World;

/// After so many envelopes a client goes on by another connection when nothing is under way.
const ENVELOPES_MAX: u32 = 4;

/// The id of a command that no client has given.
const FORGED_ID: u32 = 1 << 30;

/// Where a session is, as its client was told.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    node: String,
    session: String,
    /// The process that said it.
    life: u32,
}

impl Address {
    pub(crate) fn new(reply: &Value, life: u32) -> Self {
        let text = |name: &str| reply[name].as_str().unwrap_or_default().to_owned();
        Self {
            node: text("node"),
            session: text("session"),
            life,
        }
    }
}

/// An envelope that is not answered.
struct Posted {
    status: u16,
    /// The session whose commands are in it.
    of: Option<LinkId>,
}

/// A client's connection for envelopes, if it has one.
#[derive(Default)]
pub(crate) struct Posts {
    pub(crate) link: Option<LinkId>,
    /// The process at its other end.
    life: u32,
    out: Vec<u8>,
    received: Vec<u8>,
    owed: VecDeque<Posted>,
    /// Envelopes of this connection.
    count: u32,
    /// Connections so far.
    connections: u8,
}

impl Posts {
    fn begin(&mut self, link: LinkId, life: u32) {
        self.link = Some(link);
        self.life = life;
        self.count = 0;
    }

    pub(crate) fn dropped(&mut self) {
        self.link = None;
        self.out.clear();
        self.received.clear();
        self.owed.clear();
    }

    fn has_done_enough(&self) -> bool {
        self.count >= ENVELOPES_MAX && self.owed.is_empty()
    }

    fn request(&mut self, encoding: Encoding, body: &[u8], posted: Posted) {
        let kind = match encoding {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/octet-stream",
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: sim.test\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            site::EMULATION,
            body.len()
        );
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(body);
        self.owed.push_back(posted);
        self.count += 1;
    }

    /// What of an envelope to this address becomes at the process that this connection leads to.
    fn status(&self, to: &Address) -> u16 {
        match to.life == self.life {
            true => 204,
            false => 404,
        }
    }

    /// Reads answers; the session of which commands were not taken.
    fn received(&mut self, bytes: &[u8], ledger: &mut Ledger) -> Result<Option<LinkId>, Failure> {
        self.received.extend_from_slice(bytes);
        let mut lost = None;
        while let Some(status) = self.next_status()? {
            let Some(posted) = self.owed.pop_front() else {
                // A connection of which nothing was heard for too long.
                promise!(status == 408, "answers are to what was asked", "{status}");
                continue;
            };
            if status == 408 {
                // Not all of it came in time, nor does what is behind it.
                let mut sessions = self.owed.drain(..).rev().filter_map(|one| one.of);
                return Ok(sessions.next().or(posted.of));
            }
            promise!(
                status == posted.status,
                "an envelope is answered with what becomes of it",
                "{status} instead of {}",
                posted.status
            );
            ledger.seen.note(match posted.of {
                Some(_) => Event::Posted,
                None => Event::Forged,
            });
            if status != 204 {
                lost = lost.or(posted.of);
            }
        }
        Ok(lost)
    }

    fn next_status(&mut self) -> Result<Option<u16>, Failure> {
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

/// Commands as they stand in an envelope.
fn written(encoding: Encoding, commands: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        match encoding {
            Encoding::Json if out.is_empty() => {
                out.extend_from_slice(command.to_string().as_bytes())
            }
            Encoding::Json => out.extend_from_slice(format!("\n{command}").as_bytes()),
            Encoding::Protobuf => protobuf::command(&mut out, command),
        }
    }
    out
}

fn envelope(encoding: Encoding, node: &str, session: &str, commands: &[Value]) -> Vec<u8> {
    let commands = written(encoding, commands);
    match encoding {
        Encoding::Protobuf => protobuf::envelope(node, session, &commands),
        Encoding::Json => {
            let data = String::from_utf8_lossy(&commands);
            let body = json!({ "node": node, "session": session, "data": data });
            body.to_string().into_bytes()
        }
    }
}

impl World {
    /// What a client without a WebSocket has to say goes on its way.
    pub(crate) fn post(&mut self, number: usize) {
        let Some(client) = self.peers.clients.get(number) else {
            return;
        };
        if client.unsaid.is_empty() || client.address.is_none() || !self.opens_posts(number) {
            return;
        }
        let client = &mut self.peers.clients[number];
        let (Some(address), of) = (&client.address, client.link) else {
            return;
        };
        let commands = std::mem::take(&mut client.unsaid);
        let encoding = client.encoding;
        let body = envelope(encoding, &address.node, &address.session, &commands);
        let status = client.posts.status(address);
        client.posts.request(encoding, &body, Posted { status, of });
        let elsewhere = self.worker_of(of);
        let client = &self.peers.clients[number];
        if elsewhere.is_some() && self.worker_of(client.posts.link) != elsewhere {
            self.ledger.seen.note(Event::PostedElsewhere);
        }
        self.send_posts(number);
        if let Some(id) = of
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.owed = self.peers.clients[number].owed.len();
        }
    }

    /// Whether a client has a connection for envelopes, which begins now if there is none.
    fn opens_posts(&mut self, number: usize) -> bool {
        let posts = &mut self.peers.clients[number].posts;
        if posts.link.is_some() {
            return true;
        }
        if self.drain.is_some() {
            return false;
        }
        posts.connections = posts.connections.wrapping_add(1);
        let worker = posts.connections.wrapping_mul(3).wrapping_add(number as u8);
        let link = self.open(POSTS + number, worker, site::PUBLIC);
        let life = self.ledger.life;
        self.peers.clients[number].posts.begin(link, life);
        true
    }

    fn send_posts(&mut self, number: usize) {
        let posts = &mut self.peers.clients[number].posts;
        if let Some(id) = posts.link
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.up.extend(posts.out.drain(..));
            link.owed = 1;
        }
    }

    /// Somebody posts what is not his to say, or is nothing: it is told so, or nobody hears of it.
    pub(crate) fn forge(&mut self, number: usize, victim: usize, how: u8) {
        let Some(address) = self.peers.clients[victim].address.clone() else {
            return;
        };
        let client = &self.peers.clients[number];
        if client.carrier == Carrier::WebSocket || !self.opens_posts(number) {
            return;
        }
        let client = &mut self.peers.clients[number];
        let command = [json!({ "id": FORGED_ID, "rpc": { "method": "echo", "data": 1 } })];
        let Address { node, session, .. } = &address;
        let (half, rest) = session.split_at(session.len() / 2);
        let (node, session, status) = match how % 4 {
            // No process is called so.
            0 => (format!("{node}0"), session.clone(), 404),
            // The end of it is a secret.
            1 => {
                let rest: String = rest.chars().rev().collect();
                (
                    node.clone(),
                    format!("{half}{rest}"),
                    client.posts.status(&address),
                )
            }
            2 => (node.clone(), half.to_owned(), client.posts.status(&address)),
            _ => (node.clone(), session.clone(), 400),
        };
        if status == 204 && session == address.session {
            return;
        }
        let encoding = client.encoding;
        let mut body = envelope(encoding, &node, &session, &command);
        if status == 400 {
            // It ends too early.
            body.pop();
        }
        client
            .posts
            .request(encoding, &body, Posted { status, of: None });
        self.send_posts(number);
    }

    /// A client that has said enough by one connection goes on by another, while nothing is under way: there what comes
    /// later could overtake it.
    pub(crate) fn change_posts(&mut self, number: usize) {
        let Some(client) = self.peers.clients.get(number) else {
            return;
        };
        let is_done = client.owed.is_empty() && client.unsaid.is_empty();
        if let Some(link) = client.posts.link.filter(|_| is_done)
            && client.posts.has_done_enough()
        {
            self.drop_client(link, true);
        }
    }

    /// Envelopes are answered. A session whose commands were not taken is of no use any more.
    pub(crate) fn hand_to_posts(&mut self, number: usize, bytes: &[u8]) -> Check {
        let client = &mut self.peers.clients[number];
        let lost = client.posts.received(bytes, &mut self.ledger)?;
        if let Some(link) = lost.filter(|lost| client.link == Some(*lost)) {
            self.drop_client(link, true);
        }
        Ok(())
    }
}
