//! Presence, commands of back ends for connections, and the ends of sessions.

use serde_json::{Value, json};

use super::{Received, ann, ask, connect, in_seconds, publish, take, token};
use crate::world::wire::{post, responses};
use crate::world::{INTERNAL, Options, PUSH, World};

#[test]
fn sessions_end_with_the_protocol_s_own_codes() {
    let mut world = World::new(Options {
        outbox_bytes: 4 << 10,
        ..Options::default()
    });
    let back_end = world.connect(0, PUSH);
    let subscribe = r#"{"id":2,"subscribe":{"channel":"open:1"}}"#;
    // This client reads nothing and is closed as a slow consumer.
    let slow = ann(&mut world, 0);
    ask(&mut world, slow, subscribe);
    world.read_at_most(slow, 0);
    for number in 0..200 {
        publish(&mut world, back_end, "open:1", number);
    }
    world.read_at_most(slow, usize::MAX);
    assert_eq!(
        take(&mut world, slow).closed,
        Some((3008, "slow".to_owned()))
    );
    // This client is closed by a back end.
    let ended = ann(&mut world, 0);
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post("/api/disconnect", r#"{"user":"ann"}"#));
    assert_eq!(responses(&answer)[0].status, 200);
    assert_eq!(
        take(&mut world, ended).closed.map(|(code, _)| code),
        Some(3503)
    );
    // This client is closed by the drain.
    let last = ann(&mut world, 0);
    world.drain();
    assert_eq!(
        take(&mut world, last).closed,
        Some((3001, "shutdown".to_owned()))
    );
}

#[test]
fn joins_and_leaves_reach_other_members() {
    for worker in 0..3 {
        let mut world = super::world(3);
        let peer = ann(&mut world, worker);
        let subscribe = r#"{"id":2,"subscribe":{"channel":"chat:1","join_leave":true}}"#;
        // A client that requests join events receives its own join event after the reply.
        let received = ask(&mut world, peer, subscribe);
        assert_eq!(received.lines[0]["id"], 2, "{received:?}");
        let (bob, reply) = connect(
            &mut world,
            (worker + 1) % 3,
            "/centrifuge/named?user=bob",
            &json!({}),
        );
        let client = reply["client"].as_str().expect("a name").to_owned();
        ask(
            &mut world,
            bob,
            r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
        );
        let client_info = json!({ "user": "bob", "client": client });
        let push =
            |kind: &str| json!({ "push": { "channel": "chat:1", kind: { "info": client_info } } });
        assert_eq!(take(&mut world, peer).lines, [push("join")]);
        let received = ask(
            &mut world,
            peer,
            r#"{"id":3,"presence":{"channel":"chat:1"}}"#,
        );
        let presence = &received.lines[0]["presence"]["presence"];
        assert_eq!(presence[&client], client_info);
        assert_eq!(presence.as_object().map(serde_json::Map::len), Some(2));
        let stats = ask(
            &mut world,
            peer,
            r#"{"id":4,"presence_stats":{"channel":"chat:1"}}"#,
        );
        let counts = json!({ "num_clients": 2, "num_users": 2 });
        assert_eq!(stats.lines[0]["presence_stats"], counts);
        // A client that does not request join events receives none.
        assert_eq!(take(&mut world, bob).lines.len(), 0);
        ask(
            &mut world,
            bob,
            r#"{"id":3,"unsubscribe":{"channel":"chat:1"}}"#,
        );
        world.advance(4_999);
        assert_eq!(
            take(&mut world, peer),
            Received::default(),
            "he may come back"
        );
        world.advance(2_000);
        for worker in &mut world.workers {
            worker.shared_mut().trim();
        }
        assert_eq!(take(&mut world, peer).lines, [push("leave")]);
    }
}

#[test]
fn a_back_end_subscribes_and_unsubscribes_connections() {
    for worker in 0..3 {
        let mut world = super::world(3);
        let back_end = world.connect(0, PUSH);
        publish(&mut world, back_end, "chat:1", 1);
        let (peer, reply) = connect(&mut world, worker, "/centrifuge/named?user=ann", &json!({}));
        let other = ann(&mut world, 2);
        let call = |world: &mut World, method: &str, body: Value| {
            let caller = world.connect(1, INTERNAL);
            let answer = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
            let answer = &responses(&answer)[0];
            assert_eq!(answer.status, 200);
            assert!(!answer.body.contains("error"), "{}", answer.body);
        };
        let client = &reply["client"];
        let body =
            json!({ "user": "ann", "client": client, "channel": "chat:1", "data": { "a": 1 } });
        call(&mut world, "subscribe", body);
        let lines = take(&mut world, peer).lines;
        let subscribe = &lines[0]["push"]["subscribe"];
        assert_eq!(lines[0]["push"]["channel"], "chat:1");
        assert_eq!(
            (&subscribe["offset"], &subscribe["data"]),
            (&json!(1), &json!({ "a": 1 }))
        );
        publish(&mut world, back_end, "chat:1", 2);
        let lines = take(&mut world, peer).lines;
        assert_eq!(lines[0]["push"]["pub"], json!({ "data": 2, "offset": 2 }));
        assert_eq!(take(&mut world, other), Received::default());
        call(
            &mut world,
            "unsubscribe",
            json!({ "user": "ann", "channel": "chat:1" }),
        );
        let lines = take(&mut world, peer).lines;
        let ended = json!({ "code": 2000, "reason": "server unsubscribe" });
        assert_eq!(lines[0]["push"]["unsubscribe"], ended);
        publish(&mut world, back_end, "chat:1", 3);
        assert_eq!(take(&mut world, peer), Received::default());
        // Only the connection that the call names is closed.
        call(
            &mut world,
            "disconnect",
            json!({ "user": "ann", "client": client }),
        );
        assert_eq!(
            take(&mut world, peer).closed.map(|(code, _)| code),
            Some(3503)
        );
        assert_eq!(take(&mut world, other), Received::default());
    }
}

/// With `force_push_join_leave`, every client in the channel receives join events, whether it subscribed itself or was
/// subscribed by a back end or by its token, unless its token excludes join events.
#[test]
fn joins_are_sent_to_all_with_force_push() {
    let mut world = super::world(3);
    let subscribe = r#"{"id":2,"subscribe":{"channel":"told:1"}}"#;
    let asked = ann(&mut world, 0);
    ask(&mut world, asked, subscribe);
    let given = connect(&mut world, 1, "/centrifuge/named?user=eve", &json!({})).0;
    let caller = world.connect(1, INTERNAL);
    let body = json!({ "user": "eve", "channel": "told:1" }).to_string();
    assert_eq!(
        responses(&world.ask(caller, post("/api/subscribe", &body)))[0].status,
        200
    );
    let exp = in_seconds(&world, 600);
    let connect_with = |claims: Value| json!({ "token": token(&claims) });
    let by_token = connect_with(json!({ "sub": "dan", "exp": exp, "channels": ["told:1"] }));
    let by_token = connect(&mut world, 2, "/centrifuge/jwt", &by_token).0;
    let wanted = json!({ "force_push_join_leave": { "value": false } });
    let quiet = json!({ "sub": "kim", "exp": exp, "subs": { "told:1": { "override": wanted } } });
    let quiet = connect(&mut world, 2, "/centrifuge/jwt", &connect_with(quiet)).0;
    world.settle();
    for peer in [asked, given, by_token, quiet] {
        take(&mut world, peer);
    }
    let (bob, reply) = connect(&mut world, 0, "/centrifuge/named?user=bob", &json!({}));
    ask(&mut world, bob, subscribe);
    let client_info = json!({ "user": "bob", "client": reply["client"] });
    let join = json!({ "push": { "channel": "told:1", "join": { "info": client_info } } });
    for peer in [asked, given, by_token] {
        assert_eq!(take(&mut world, peer).lines, std::slice::from_ref(&join));
    }
    assert_eq!(take(&mut world, quiet), Received::default());
}
