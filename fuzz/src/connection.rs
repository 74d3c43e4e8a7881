//! Runs arbitrary clients of a few workers. Checks that nothing panics, that outboxes stay within their limits, and
//! that no state is left when all clients are gone.
//!
//! The input is a script: the first byte selects the world, then each operation is a byte and its arguments. Clients
//! send arbitrary bytes or parts of well-formed conversations, so that deeper states are reached.

#[path = "../../crates/frontends/tests/world/mod.rs"]
pub mod world;

use world::{INTERNAL, Options, PUBLIC, PUSH, Peer, World, limits, wire};

/// Maximum number of connections of a script.
const CLIENTS_MAX: usize = 24;

/// Maximum number of operations of a script.
const OPERATIONS_MAX: usize = 300;

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

/// Runs one script; panics on a finding.
pub fn run(data: &[u8]) {
    let mut script = Script(data);
    let Some(config) = script.byte() else { return };
    let mut world = World::new(options(config));
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..OPERATIONS_MAX {
        if operate(&mut script, &mut world, &mut peers).is_none() {
            break;
        }
    }
    world.settle();
    world.reset_all();
    world.settle();
    world.check_empty();
}

fn options(config: u8) -> Options {
    let mut limits = limits();
    if config & 16 != 0 {
        limits.session_idle_timeout_ms = 40_000;
    }
    let mut hub = Options::default().hub;
    if config & 64 != 0 {
        hub.channel_queue_publications_max = 2;
        hub.subscriptions_max = 6;
    }
    Options {
        workers: u16::from(config & 3).clamp(1, 3),
        credits: if config & 4 == 0 { 2 } else { 64 },
        outbox_bytes: if config & 8 == 0 { 1000 } else { 100_000 },
        api_keys: if config & 32 == 0 {
            Vec::new()
        } else {
            vec!["key"]
        },
        limits,
        hub,
        ..Options::default()
    }
}

fn operate(script: &mut Script<'_>, world: &mut World, peers: &mut Vec<Peer>) -> Option<()> {
    let (operation, argument) = (script.byte()?, script.byte()?);
    let workers = world.workers.len();
    let worker = usize::from(argument) % workers;
    if peers.is_empty() || (operation % 16 == 0 && peers.len() < CLIENTS_MAX) {
        peers.push(world.connect(
            worker,
            [PUBLIC, INTERNAL, PUSH][usize::from(argument >> 4) % 3],
        ));
        return Some(());
    }
    let peer = peers[usize::from(argument) % peers.len()];
    match operation % 16 {
        0 | 1 => {
            let count = usize::from(script.byte()?);
            world.send(peer, script.bytes(count));
        }
        2..=4 => say(world, peer, script.byte()?, script.byte()?),
        5 => {
            world.turn(worker);
        }
        6 => world.settle(),
        7 => world.advance(u64::from(argument) * 100),
        8 => world.advance_alone(worker, u64::from(script.byte()?) * 200),
        9 => world.read_at_most(peer, usize::from(script.byte()?) * 64),
        10 => world.read_at_most(peer, usize::MAX),
        11 => world.finish(peer),
        12 => world.reset(peer),
        13 if argument > 200 => world.drain(),
        13 if argument > 160 => {
            world.end_wait(peer);
        }
        13 if argument > 120 => {
            let decision = ["accept", "user", "refuse", "bad-user"][usize::from(argument) % 4];
            world.answer(peer, decision);
        }
        13 | 14 => {
            // A frame with a payload from the script.
            let (kind, count) = (script.byte()?, usize::from(script.byte()?));
            let mut frame = vec![
                0x80 | (kind & 0x7f),
                0x80 | (count.min(125) as u8),
                0,
                0,
                0,
                0,
            ];
            frame.extend_from_slice(script.bytes(count.min(125)));
            world.send(peer, &frame);
        }
        _ => {
            // The received data itself is not checked.
            world.drop_received(peer);
        }
    }
    Some(())
}

/// Sends a part of a well-formed conversation, in one piece or two.
fn say(world: &mut World, peer: Peer, what: u8, split: u8) {
    let user = ["ann", "bob", "cyd"][usize::from(what >> 5) % 3];
    // Cases from 20 on were added later, in such a way that earlier scripts keep their meaning.
    let what = match what {
        0..240 => what % 20,
        240.. => 20 + what % 6,
    };
    let input: Vec<u8> = match what {
        0 => wire::handshake(&format!("/ws?user={user}"), "").into(),
        1 => wire::handshake(
            &format!("/ws?user={user}&channel=news&channel=room:{user}"),
            "",
        )
        .into(),
        2 => wire::handshake("/echo", "").into(),
        3 => wire::handshake(
            "/deflate",
            "Sec-WebSocket-Extensions: permessage-deflate\r\n",
        )
        .into(),
        4 => wire::handshake("/api/socket", "X-API-Key: key\r\n").into(),
        5 => wire::get("/files/large.bin").into(),
        6 => wire::get("/health").into(),
        7 => wire::post("/none", "body").into(),
        8 => wire::post(
            "/api/push",
            &format!(r#"{{"user":"{user}","data":"called"}}"#),
        )
        .into(),
        9 => wire::post(
            "/api/broadcast",
            r#"{"channels":["news","room:ann"],"data":[1, 2]}"#,
        )
        .into(),
        10 => wire::post("/api/disconnect", &format!(r#"{{"user":"{user}"}}"#)).into(),
        11 => format!("{{\"user\":\"{user}\",\"data\":\"lined\",\"ack\":true}}\n").into(),
        12 => format!("{{\"channel\":\"news\",\"data\":\"{user}\"}}\n")
            .repeat(20)
            .into(),
        13 => "{\"users\":[\"ann\",\"bob\",\"cyd\"],\"data\":1,\"id\":1}\nbad\n"
            .repeat(10)
            .into(),
        14 => wire::text(&format!(r#"{{"user":"{user}","data":"framed"}}"#)),
        15 => wire::text(r#"{"channels":["news","room:bob"],"data":true,"id":"x"}"#).repeat(5),
        16 => wire::text(&"said ".repeat(usize::from(split) * 40)),
        17 => wire::close(Some(1000), "bye"),
        18 => "x\n".repeat(1500).into(),
        20 => wire::handshake(&format!("/app-user?user={user}"), "").into(),
        21 => wire::handshake("/decided?decision=later&open=wait", "").into(),
        22 => (wire::get("/app/later") + &wire::post("/app/x", "body")).into(),
        23 => [wire::text("wait"), wire::text("say back")].concat(),
        24 => wire::text("flood on"),
        25 => wire::text("close 4000 why"),
        _ => format!(
            "{{\"user\":\"{user}\",\"data\":\"{}\"}}\n",
            "long".repeat(200)
        )
        .into(),
    };
    let at = usize::from(split) * input.len() / 255;
    world.send(peer, &input[..at]);
    world.send(peer, &input[at..]);
}
