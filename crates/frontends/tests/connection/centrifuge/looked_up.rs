//! Tests how many replies to history and presence commands are written per turn, and that these commands are refused
//! while memory is short.

use serde_json::{Value, json};

use super::{ask, connect, take, world};
use crate::world::wire::text;
use crate::world::{INTERNAL, PUSH, Peer, World};

const CHANNEL: &str = "chat:1";
const KEPT: usize = 3;

const PUBLICATION_BYTES: usize = 3_000;

/// Number of clients, whose commands together cause more than twice the work of a turn.
const CLIENTS: usize = 400;
const HISTORIES: usize = 6;

/// Maximum number of bytes of replies per turn: the replies that fit into the work budget of a
/// turn, and one more.
const TURN_BYTES_MAX: usize = 10_010_000;

/// Returns a client that is subscribed to [`CHANNEL`].
fn member(world: &mut World, user: &str) -> Peer {
    let target = format!("/centrifuge/named?user={user}");
    let (peer, _) = connect(world, 0, &target, &json!({}));
    let subscribe = json!({ "id": 2, "subscribe": { "channel": CHANNEL } });
    let reply = ask(world, peer, &subscribe.to_string());
    assert!(reply.lines[0]["subscribe"].is_object(), "{reply:?}");
    peer
}

fn history() -> Value {
    json!({ "id": 3, "history": { "channel": CHANNEL, "limit": -1 } })
}

/// Publishes to [`CHANNEL`], until its history is full, with `bytes` bytes of data each time.
fn fill(world: &mut World, bytes: usize) {
    let back_end = world.connect(0, PUSH);
    let data = "x".repeat(bytes);
    for _ in 0..KEPT {
        let line = json!({ "channel": CHANNEL, "data": data });
        assert!(world.ask(back_end, format!("{line}\n")).is_empty());
    }
}

#[test]
fn answers_are_work_of_a_turn_by_their_size() {
    let mut world = world(1);
    fill(&mut world, PUBLICATION_BYTES);
    let peers: Vec<Peer> = (0..CLIENTS)
        .map(|number| member(&mut world, &format!("user{number}")))
        .collect();
    let histories = vec![history().to_string(); HISTORIES].join("\n");
    for &peer in &peers {
        world.send(peer, &text(&histories));
    }
    let all = CLIENTS * HISTORIES * KEPT * PUBLICATION_BYTES;
    let mut received = 0;
    let mut turns = 0;
    while received < all {
        world.turn(0);
        turns += 1;
        let bytes: usize = peers.iter().map(|peer| world.take(*peer).len()).sum();
        assert!(bytes <= TURN_BYTES_MAX, "{bytes} in turn {turns}");
        received += bytes;
        assert!(turns < 100, "{received} of {all}");
    }
    assert!(turns > all / TURN_BYTES_MAX, "{turns}");
}

#[test]
fn short_of_memory_no_answer_that_may_be_large_is_made() {
    let mut world = world(1);
    fill(&mut world, 400);
    let peer = member(&mut world, "ann");
    let back_end = world.connect(0, INTERNAL);
    let by_api = [
        ("history", json!({ "channel": CHANNEL, "limit": 9 })),
        ("presence", json!({ "channel": CHANNEL })),
        ("channels", json!({})),
        ("connections", json!({ "user": "ann" })),
    ];
    for is_short in [true, false] {
        world.workers[0].shared_mut().is_short_of_memory = is_short;
        let recovering = json!({ "channel": "chat:2", "recover": true, "epoch": "", "offset": 0 });
        for command in [
            history(),
            json!({ "id": 3, "presence": { "channel": CHANNEL } }),
            json!({ "id": 3, "subscribe": recovering }),
        ] {
            let reply = ask(&mut world, peer, &command.to_string());
            let error = &reply.lines[0]["error"];
            assert_eq!(error["code"] == 100, is_short, "{command}: {reply:?}");
            assert_eq!(error["temporary"] == true, is_short, "{command}: {reply:?}");
        }
        for (method, body) in &by_api {
            let body = body.to_string();
            let request = format!(
                "POST /api/{method} HTTP/1.1\r\nHost: veche.test\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = world.ask(back_end, request);
            let answer = String::from_utf8(answer).expect("text");
            let status = if is_short { "503" } else { "200" };
            assert_eq!(answer.split(' ').nth(1), Some(status), "{method}: {answer}");
        }
    }
    assert!(take(&mut world, peer).lines.is_empty());
}
