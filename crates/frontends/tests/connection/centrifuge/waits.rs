//! What happens while a command waits for a home on another worker: tokens expire, back ends send
//! commands, and the client sends more commands.

use serde_json::{Value, json};

use super::streams::objects;
use super::{ask, connect, in_seconds, take, token};
use crate::world::wire::{post, response, responses, text};
use crate::world::{INTERNAL, PUBLIC, Peer, World};

/// Returns a channel of this namespace whose home is on this worker.
fn channel_at(world: &World, worker: usize, namespace: &str) -> String {
    (0..)
        .map(|n| format!("{namespace}:{n}"))
        .find(|channel| world.home_of(channel) == worker)
        .expect("endless")
}

fn subscribe(id: u32, channel: &str, token: &str) -> String {
    json!({ "id": id, "subscribe": { "channel": channel, "token": token } }).to_string()
}

/// Sends a back end's call to a worker while the other workers run no turns. The worker answers the call once the other
/// workers continue.
fn call_alone(world: &mut World, worker: usize, method: &str, body: &Value) {
    let caller = world.connect(worker, INTERNAL);
    world.send(
        caller,
        post(&format!("/api/{method}"), &body.to_string()).as_bytes(),
    );
    while world.turn(worker) {}
}

#[test]
fn a_token_for_a_channel_ends_in_time_also_while_a_command_waits() {
    let mut world = super::world(2);
    let exp = in_seconds(&world, 600);
    let pass = token(&json!({ "sub": "ann", "exp": exp }));
    let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
    let short = |world: &World, channel: &str| {
        let exp = in_seconds(world, 5);
        token(&json!({ "sub": "ann", "exp": exp, "channel": channel }))
    };
    let (first, second) = (
        channel_at(&world, 0, "token"),
        channel_at(&world, 1, "token"),
    );
    let of_first = short(&world, &first);
    let reply = ask(&mut world, peer, &subscribe(2, &first, &of_first));
    assert_eq!(reply.lines[0]["subscribe"]["ttl"], 5);
    // The home of the second channel runs no turns for a minute, so the subscription to it stays pending.
    let of_second = short(&world, &second);
    world.send(peer, &text(&subscribe(3, &second, &of_second)));
    world.advance_alone(0, 29_999);
    assert_eq!(
        super::parse_output(&world.take(peer)).lines,
        [] as [Value; 0]
    );
    let (now_ms, due_ms) = (world.now_ms, world.due_ms(peer));
    assert_eq!(due_ms, Some(now_ms + 1));
    world.advance_alone(0, 1);
    let ended = |channel: &str| {
        json!({ "push": { "channel": channel,
            "unsubscribe": { "code": 2501, "reason": "subscription expired" } } })
    };
    let received = super::parse_output(&world.take(peer));
    assert_eq!(
        (received.lines, received.closed),
        (vec![ended(&first)], None)
    );
    // The token for the second channel has expired while the subscription is pending. A pending subscription must not
    // cause a deadline that is always due.
    assert!(
        world
            .due_ms(peer)
            .is_none_or(|due_ms| due_ms > world.now_ms + 60_000)
    );
    world.advance_alone(0, 30_000);
    let received = take(&mut world, peer);
    assert_eq!(
        (&received.lines[0]["id"], received.closed),
        (&json!(3), None)
    );
    world.advance(1);
    assert!(take(&mut world, peer).lines.contains(&ended(&second)));
}

#[test]
fn what_a_back_end_wants_during_a_command_is_done_behind_it() {
    // The home of the user's personal channel is on the client's worker. The home of the command's
    // channel is on another worker.
    let mut world = super::world(2);
    let user = world.user_at(0);
    let target = format!("/centrifuge/named?user={user}");
    let (peer, _) = connect(&mut world, 0, &target, &json!({}));
    let channel = channel_at(&world, 1, "chat");
    let other = channel_at(&world, 0, "open");
    world.send(peer, &text(&subscribe(2, &channel, "")));
    let one = json!({ "user": user, "channel": channel });
    call_alone(&mut world, 0, "unsubscribe", &one);
    call_alone(
        &mut world,
        0,
        "subscribe",
        &json!({ "user": user, "channel": other }),
    );
    call_alone(
        &mut world,
        0,
        "unsubscribe",
        &json!({ "user": user, "channel": other }),
    );
    assert!(world.take(peer).is_empty(), "no push precedes the reply");
    let output = take(&mut world, peer);
    let received: Vec<(&Value, &Value)> = output
        .lines
        .iter()
        .map(|line| (&line["id"], &line["push"]))
        .collect();
    let end = json!({ "code": 2000, "reason": "server unsubscribe" });
    let pushes = [
        json!({ "channel": channel, "unsubscribe": end }),
        json!({ "channel": other, "subscribe": {} }),
        json!({ "channel": other, "unsubscribe": end }),
    ];
    let pushes = pushes.iter().map(|push| (&Value::Null, push));
    let (id, none) = (json!(2), Value::Null);
    let expected: Vec<(&Value, &Value)> = [(&id, &none)].into_iter().chain(pushes).collect();
    assert_eq!(received, expected);
    // The client can subscribe to the channel again.
    let again = ask(&mut world, peer, &subscribe(3, &channel, ""));
    assert_eq!(
        again.lines[0]["subscribe"]["recoverable"], true,
        "{again:?}"
    );
}

#[test]
fn what_a_back_end_wants_of_a_client_that_connects_is_done_behind_that() {
    let mut world = super::world(2);
    let user = world.user_at(0);
    let far = channel_at(&world, 1, "chat");
    let near = channel_at(&world, 0, "open");
    let claims = json!({ "sub": user, "exp": in_seconds(&world, 60), "channels": [far] });
    let peer = world.open(0, "/centrifuge/jwt");
    let command = json!({ "id": 1, "connect": { "token": token(&claims) } });
    world.send(peer, &text(&command.to_string()));
    call_alone(
        &mut world,
        0,
        "subscribe",
        &json!({ "user": user, "channel": near }),
    );
    call_alone(
        &mut world,
        0,
        "unsubscribe",
        &json!({ "user": user, "channel": far }),
    );
    let later = json!({ "user": user, "expire_at": in_seconds(&world, 300) });
    call_alone(&mut world, 0, "refresh", &later);
    assert!(world.take(peer).is_empty());
    let lines = take(&mut world, peer).lines;
    assert_eq!((&lines[0]["id"], lines.len()), (&json!(1), 4), "{lines:?}");
    assert_eq!(
        (&lines[1]["push"]["channel"], &lines[1]["push"]["subscribe"]),
        (&json!(near), &json!({}))
    );
    assert_eq!(lines[2]["push"]["unsubscribe"]["code"], 2000);
    assert_eq!(lines[3]["push"]["refresh"]["ttl"], 300);
}

#[test]
fn a_client_of_which_too_much_is_wanted_meanwhile_connects_again() {
    let mut world = super::world(2);
    let user = world.user_at(0);
    let target = format!("/centrifuge/named?user={user}");
    let (peer, _) = connect(&mut world, 0, &target, &json!({}));
    let channel = channel_at(&world, 1, "chat");
    world.send(peer, &text(&subscribe(2, &channel, "")));
    for _ in 0..65 {
        call_alone(
            &mut world,
            0,
            "unsubscribe",
            &json!({ "user": user, "channel": channel }),
        );
    }
    let closed = take(&mut world, peer).closed;
    assert_eq!(closed, Some((3010, "insufficient state".to_owned())));
}

/// Opens a streaming response on a worker with a connect command; returns the client of the response, and the reply to
/// the command.
fn stream(world: &mut World, worker: usize) -> (Peer, Value) {
    let peer = world.connect(worker, PUBLIC);
    let connect = r#"{"id":1,"connect":{}}"#;
    let bytes = world.ask(peer, post("/centrifuge/all/http_stream", connect));
    let (_, rest) = response(&bytes, false);
    let text = super::streams::chunks(rest).concat();
    let reply: Value = serde_json::from_str(text.trim()).expect("JSON");
    (peer, reply["connect"].clone())
}

#[test]
fn commands_that_pile_up_are_counted_by_request() {
    for (requests, is_well) in [(3, true), (40, false)] {
        let mut world = super::world(2);
        let (peer, reply) = stream(&mut world, 0);
        let say = |world: &mut World, commands: &str| {
            let caller = world.connect(0, PUBLIC);
            let body = json!({ "session": reply["session"], "node": "", "data": commands });
            let request = post("/centrifuge/all/emulation", &body.to_string());
            world.send(caller, request.as_bytes());
            while world.turn(0) {}
            assert_eq!(responses(&world.take(caller))[0].status, 204);
        };
        let channel = channel_at(&world, 1, "chat");
        say(&mut world, &subscribe(2, &channel, ""));
        let mut expected = vec![2];
        for request in 0..requests {
            let ids = 1_000 + request * 600..1_000 + (request + 1) * 600;
            let pings = ids
                .clone()
                .map(|id| json!({ "id": id, "ping": {} }).to_string());
            say(&mut world, &pings.collect::<Vec<_>>().join("\n"));
            expected.extend(ids);
        }
        let messages = objects(&mut world, peer);
        match is_well {
            true => {
                let ids: Vec<u64> = messages
                    .iter()
                    .filter_map(|one| one["id"].as_u64())
                    .collect();
                assert_eq!(ids, expected);
            }
            // Too many requests with commands are waiting, so the client is disconnected.
            false => {
                let last = &messages.last().expect("the end")["push"]["disconnect"];
                assert_eq!(last["code"], 3013);
            }
        }
    }
}

#[test]
fn a_worker_that_takes_no_commands_leaves_room_for_those_of_others() {
    let mut world = super::world(3);
    let (slow, of_slow) = stream(&mut world, 1);
    let (other, of_other) = stream(&mut world, 2);
    let caller = world.connect(0, PUBLIC);
    let say = |world: &mut World, reply: &Value| {
        let ping = r#"{"id":2,"ping":{}}"#;
        let body = json!({ "session": reply["session"], "node": "", "data": ping });
        let request = post("/centrifuge/all/emulation", &body.to_string());
        world.send(caller, request.as_bytes());
        while world.turn(0) {}
        responses(&world.take(caller))[0].status
    };
    // Worker 1 runs no turns, so the number of commands that are accepted for it is limited.
    let taken = (0..5_000).take_while(|_| say(&mut world, &of_slow) == 204);
    assert!((256..2_000).contains(&taken.count()), "it is bounded");
    assert_eq!(say(&mut world, &of_slow), 503);
    assert_eq!(say(&mut world, &of_other), 204);
    world.turn(2);
    let messages = super::streams::chunks(&world.take(other)).concat();
    assert!(messages.contains(r#""id":2"#), "{messages}");
    // The commands that were accepted are executed when the worker continues.
    world.settle();
    assert!(!world.take(slow).is_empty());
    assert_eq!(say(&mut world, &of_slow), 204);
}
