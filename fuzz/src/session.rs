//! Runs arbitrary clients of Centrifugo's protocol. Checks that nothing panics, that outboxes stay
//! within their limits, that each command is answered once and in order, and that each publication
//! has the form that its subscriber requested.
//!
//! The input is a script like that of `connection`. Clients send commands as SDKs do, in both
//! encodings, or arbitrary bytes, after which nothing is assumed about the ids of replies. Deltas
//! are applied, and each result must be identical to the publication.

#[path = "../../crates/centrifuge/tests/fossil/decoder.rs"]
mod decoder;
#[path = "session/wire.rs"]
mod wire;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use veche_frontends::hooks::{HookDecision, HookGrant};

use crate::connection::world::{INTERNAL, Options, PUSH, Peer, World, wire as http};
use wire::{Line, ReplyReader};

/// Maximum number of connections of a script.
const CLIENTS_MAX: usize = 12;

/// Maximum number of operations of a script.
const OPERATIONS_MAX: usize = 600;

/// The channels that clients use. A channel that is listed several times is used more often.
const CHANNELS: [&str; 16] = [
    "chat:1",
    "price:1",
    "chat:1",
    "price:1",
    "chat:1",
    "price:1",
    "chat:1",
    "price:1",
    "chat:2",
    "price:2",
    "open:1",
    "chat:1#ann",
    "asked:1",
    "token:1",
    "news",
    "#ann",
];

/// Counts of a run. Tests use them to check that fuzzer scripts cover all counted cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Commands that were answered.
    pub replies: usize,
    /// Publications sent whole, not as deltas, to clients that use JSON.
    pub whole: usize,
    /// Publications sent as deltas.
    pub deltas: usize,
    /// Publications that passed a filter.
    pub filtered: usize,
}

struct Script<'d>(&'d [u8]);

impl<'d> Script<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// The state of a client's subscription.
#[derive(Default)]
struct Subscription {
    has_deltas: bool,
    has_filter: bool,
    has: Vec<u8>,
    offset: u64,
}

struct Client {
    peer: Peer,
    reader: ReplyReader,
    /// Whether the client has sent arbitrary bytes, so that the ids of its replies are unknown.
    is_wild: bool,
    id: u32,
    /// The client's unanswered commands.
    asked: std::collections::VecDeque<(u32, Value)>,
    subscriptions: BTreeMap<String, Subscription>,
    /// For each channel, the last position from which the client can recover.
    positions: BTreeMap<String, (Value, u64)>,
}

struct Scene {
    world: World,
    back_end: Peer,
    clients: Vec<Client>,
    published: u32,
    tally: Tally,
}

/// Runs one script; panics on a finding.
pub fn run(data: &[u8]) -> Tally {
    let mut script = Script(data);
    let Some(config) = script.byte() else {
        return Tally::default();
    };
    let mut world = World::new(Options {
        workers: u16::from(config & 3).clamp(1, 3),
        credits: if config & 4 == 0 { 2 } else { 64 },
        outbox_bytes: if config & 8 == 0 { 2000 } else { 100_000 },
        ..Options::default()
    });
    let back_end = world.connect(0, PUSH);
    let mut scene = Scene {
        world,
        back_end,
        clients: Vec::new(),
        published: 0,
        tally: Tally::default(),
    };
    for _ in 0..OPERATIONS_MAX {
        if scene.operate(&mut script).is_none() {
            break;
        }
    }
    scene.world.settle();
    for client in &mut scene.clients {
        scene.world.read_at_most(client.peer, usize::MAX);
    }
    scene.world.settle();
    scene.look();
    scene.world.reset_all();
    scene.world.settle();
    // History expires: publications first, positions later.
    for _ in 0..2 {
        scene.world.advance(200_000);
        scene.world.maintain();
    }
    scene.world.check_empty();
    scene.tally
}

impl Scene {
    fn operate(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (operation, argument) = (script.byte()?, script.byte()?);
        let worker = usize::from(argument) % self.world.workers.len();
        if self.clients.is_empty() || (operation % 20 == 0 && self.clients.len() < CLIENTS_MAX) {
            self.open(worker, argument);
            return Some(());
        }
        let index = usize::from(argument) % self.clients.len();
        let peer = self.clients[index].peer;
        match operation % 20 {
            // Sends a message of arbitrary bytes, but only from every fourth client.
            0 | 1 if index % 4 == 3 => {
                let (kind, count) = (script.byte()?, script.byte()?);
                let kind = match kind % 2 {
                    0 => veche_proto::websocket::MessageKind::Text,
                    _ => veche_proto::websocket::MessageKind::Binary,
                };
                let message = http::message(kind, script.bytes(count.into()));
                self.clients[index].is_wild = true;
                self.world.send(peer, &message);
            }
            0..=7 => self.say(index, script)?,
            8 | 9 => self.publish(argument, script.byte()?),
            10 => self.instruct(worker, script.byte()?),
            11 => {
                self.world.turn(worker);
            }
            12 => self.world.settle(),
            13 => {
                // All pending work is done before time passes.
                self.world.settle();
                self.world.advance(u64::from(script.byte()?) * 200);
            }
            14 => self
                .world
                .read_at_most(peer, usize::from(script.byte()?) * 64),
            15 => self.world.read_at_most(peer, usize::MAX),
            16 => self.answer_hooks(script.byte()?),
            17 if argument == 255 => self.world.drain(),
            17 if argument > 230 => self.world.finish(peer),
            17 if argument > 200 => self.world.reset(peer),
            _ => self.look(),
        }
        Some(())
    }

    /// Opens another client, which sends its connect command.
    fn open(&mut self, worker: usize, argument: u8) {
        let is_json = argument & 64 == 0;
        let path = [
            "/centrifuge/named?user=ann",
            "/centrifuge/named?user=bob",
            "/centrifuge?",
            "/centrifuge/asked-named?user=ann",
        ][usize::from(argument >> 4) % 4];
        let format = if is_json { "" } else { "&cf_protocol=protobuf" };
        let peer = self.world.connect(worker, crate::connection::world::PUBLIC);
        let handshake = http::handshake(&format!("{path}{format}"), "");
        self.world.send(peer, handshake.as_bytes());
        self.clients.push(Client {
            peer,
            reader: ReplyReader::new(is_json),
            is_wild: false,
            id: 0,
            asked: Default::default(),
            subscriptions: BTreeMap::new(),
            positions: BTreeMap::new(),
        });
        let index = self.clients.len() - 1;
        self.send(index, vec![json!({ "connect": {} })], 255);
    }

    /// Sends some commands in one message, in one piece or two.
    fn say(&mut self, index: usize, script: &mut Script<'_>) -> Option<()> {
        let count = script.byte()? % 3 + 1;
        let mut commands = Vec::new();
        for _ in 0..count {
            commands.push(self.command(index, script.byte()?, script.byte()?));
        }
        let split = script.byte()?;
        self.send(index, commands, split);
        Some(())
    }

    fn send(&mut self, index: usize, commands: Vec<Value>, split: u8) {
        let client = &mut self.clients[index];
        let mut numbered = Vec::new();
        for mut command in commands {
            client.id += 1;
            command["id"] = json!(client.id);
            client.asked.push_back((client.id, command.clone()));
            numbered.push(command);
        }
        let message = client.reader.message(&numbered);
        let at = usize::from(split) * message.len() / 255;
        let peer = client.peer;
        self.world.send(peer, &message[..at]);
        self.world.send(peer, &message[at..]);
    }

    fn command(&mut self, index: usize, what: u8, argument: u8) -> Value {
        let channel = CHANNELS[usize::from(argument) % CHANNELS.len()];
        let sells = json!({ "key": "side", "cmp": "eq", "val": "sell" });
        let join_leave = argument & 128 != 0;
        match what % 16 {
            0 => json!({ "subscribe": { "channel": channel, "join_leave": join_leave } }),
            1..=3 => json!({ "subscribe": { "channel": channel, "delta": "fossil" } }),
            4 => {
                json!({ "subscribe": { "channel": channel, "tf": sells, "join_leave": join_leave } })
            }
            5 | 6 => {
                let positions = &self.clients[index].positions;
                let (epoch, offset) = positions.get(channel).cloned().unwrap_or((json!(""), 0));
                let mut request = json!({ "channel": channel, "recover": true, "epoch": epoch,
                    "offset": offset.saturating_sub(u64::from(what >> 6)) });
                match argument >> 6 {
                    0 => request["tf"] = sells,
                    1 => {}
                    _ => request["delta"] = json!("fossil"),
                }
                json!({ "subscribe": request })
            }
            7 | 8 => json!({ "unsubscribe": { "channel": channel } }),
            9 | 10 => {
                self.published += 1;
                json!({ "publish": { "channel": channel, "data": state(self.published) } })
            }
            11 => json!({ "history": { "channel": channel, "limit": i64::from(argument % 7) - 1,
                "reverse": join_leave } }),
            12 => json!({ "presence": { "channel": channel } }),
            13 => json!({ "presence_stats": { "channel": channel } }),
            14 => json!({ "rpc": { "method": "m", "data": { "a": 1 } } }),
            _ => match argument % 3 {
                0 => json!({ "sub_refresh": { "channel": channel, "token": "t" } }),
                1 => json!({ "refresh": { "token": "t" } }),
                _ => json!({ "ping": {} }),
            },
        }
    }

    fn publish(&mut self, argument: u8, how: u8) {
        self.published += 1;
        let channel = CHANNELS[usize::from(argument) % CHANNELS.len()];
        let data = match how % 8 {
            0 => json!("a text, which is a \"string\" to JSON clients"),
            _ => state(self.published),
        };
        let side = ["sell", "buy"][usize::from(how >> 3) % 2];
        let line = json!({ "channel": channel, "data": data, "tags": { "side": side },
            "delta": how & 16 == 0, "skip_history": how > 224 });
        self.world
            .send(self.back_end, format!("{line}\n").as_bytes());
    }

    /// Makes a call of the HTTP API.
    fn instruct(&mut self, worker: usize, what: u8) {
        let user = ["ann", "bob"][usize::from(what >> 4) % 2];
        let channel = CHANNELS[usize::from(what >> 5) % 5];
        let (method, body) = match what % 6 {
            0 | 1 => ("subscribe", json!({ "user": user, "channel": channel })),
            2 | 3 => ("unsubscribe", json!({ "user": user, "channel": channel })),
            4 => ("history_remove", json!({ "channel": channel })),
            _ => ("disconnect", json!({ "user": user })),
        };
        let peer = self.world.connect(worker, INTERNAL);
        let request = http::post(&format!("/api/{method}"), &body.to_string());
        self.world.send(peer, request.as_bytes());
        self.world.settle();
        self.world.reset(peer);
    }

    /// Answers pending hook requests; `how` selects the response.
    fn answer_hooks(&mut self, how: u8) {
        for worker in 0..self.world.workers.len() {
            for request in self.world.hook_requests(worker) {
                let decision = match how % 6 {
                    0 => HookDecision::Failed,
                    1 => HookDecision::Error {
                        code: 400,
                        message: "no".into(),
                        is_temporary: false,
                    },
                    2 => HookDecision::Disconnect {
                        code: 4000,
                        reason: "go".into(),
                    },
                    _ => HookDecision::Granted(Box::new(HookGrant {
                        user: "ann".into(),
                        ..HookGrant::default()
                    })),
                };
                self.world.deliver_decision(worker, &request, decision);
            }
        }
        self.world.settle();
    }

    /// Checks all received frames.
    fn look(&mut self) {
        for client in &mut self.clients {
            let bytes = self.world.take(client.peer);
            for line in client.reader.lines(&bytes) {
                client.look(line, &mut self.tally);
            }
        }
    }
}

/// Returns a state that changes little from one number to the next.
fn state(number: u32) -> Value {
    json!({ "n": number, "what": "the same each time, with „quotes“ and 😀", "rest": "x".repeat(number as usize % 5) })
}

impl Client {
    fn look(&mut self, line: Line, tally: &mut Tally) {
        let Line { id, json } = line;
        if self.is_wild {
            return;
        }
        if id > 0 {
            let (expected, command) = self.asked.pop_front().expect("it was asked");
            assert_eq!(id, expected, "commands are answered once, and in order");
            tally.replies += 1;
            return self.answered(&command, &json, tally);
        }
        let push = &json["push"];
        let channel = push["channel"].as_str().unwrap_or_default();
        if !push["subscribe"].is_null() {
            let offset = push["subscribe"]["offset"].as_u64().unwrap_or(0);
            self.subscribe(
                channel,
                Subscription {
                    offset,
                    ..Subscription::default()
                },
            );
        } else if !push["unsubscribe"].is_null() {
            self.subscriptions
                .remove(channel)
                .expect("it was subscribed");
        } else if !push["pub"].is_null() {
            self.note_publication(channel, &push["pub"], tally);
        }
    }

    fn subscribe(&mut self, channel: &str, subscription: Subscription) {
        let before = self.subscriptions.insert(channel.to_owned(), subscription);
        assert!(before.is_none(), "{channel} twice");
    }

    fn answered(&mut self, command: &Value, reply: &Value, tally: &mut Tally) {
        if reply.is_null() || !reply["error"].is_null() {
            return;
        }
        for (channel, result) in reply["connect"]["subs"].as_object().into_iter().flatten() {
            let offset = result["offset"].as_u64().unwrap_or(0);
            self.subscribe(
                channel,
                Subscription {
                    offset,
                    ..Subscription::default()
                },
            );
        }
        let request = &command["subscribe"];
        if let Some(channel) = request["channel"].as_str() {
            let result = &reply["subscribe"];
            let has_deltas = result["delta"] == true;
            assert!(!has_deltas || request["delta"] == "fossil");
            let has_filter = !request["tf"].is_null();
            self.subscribe(
                channel,
                Subscription {
                    has_deltas,
                    has_filter,
                    ..Subscription::default()
                },
            );
            for publication in result["publications"].as_array().into_iter().flatten() {
                self.note_publication(channel, publication, tally);
            }
            let offset = result["offset"].as_u64().unwrap_or(0);
            let subscription = self.subscriptions.get_mut(channel).expect("from above");
            assert!(subscription.offset <= offset);
            subscription.offset = offset;
            if result["recoverable"] == true {
                let position = (result["epoch"].clone(), offset);
                self.positions.insert(channel.to_owned(), position);
            }
        }
        if let Some(channel) = command["unsubscribe"]["channel"].as_str() {
            self.subscriptions.remove(channel);
        }
    }

    fn note_publication(&mut self, channel: &str, publication: &Value, tally: &mut Tally) {
        let subscription = self.subscriptions.get_mut(channel);
        let subscription =
            subscription.expect("publications are of channels that it is subscribed to");
        if let Some(offset) = publication["offset"].as_u64() {
            let before = std::mem::replace(&mut subscription.offset, offset);
            match subscription.has_filter || before == 0 {
                true => assert!(offset > before, "{channel}: {offset} behind {before}"),
                false => assert_eq!(offset, before + 1, "{channel}"),
            }
            if let Some(position) = self.positions.get_mut(channel) {
                position.1 = offset;
            }
        }
        if subscription.has_filter {
            assert_eq!(publication["tags"]["side"], "sell");
            tally.filtered += 1;
        }
        let is_delta = publication["delta"] == true;
        let data = &publication["data"];
        if !subscription.has_deltas {
            assert!(
                !is_delta && (data.is_object() || data.is_string()),
                "{publication}"
            );
            tally.whole += 1;
            return;
        }
        let data = data.as_str().expect("a string that holds JSON or a delta");
        subscription.has = match is_delta {
            true => decoder::applied(&subscription.has, data.as_bytes()).expect("a delta"),
            false => data.as_bytes().to_vec(),
        };
        let whole: Value = serde_json::from_slice(&subscription.has).expect("JSON");
        assert!(whole.is_object() || whole.is_string());
        tally.deltas += usize::from(is_delta);
    }
}
