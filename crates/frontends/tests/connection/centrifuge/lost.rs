//! Tests the errors and closes that clients and back ends receive when the engine loses publications or
//! does not answer.

use serde_json::{Value, json};

use super::{ann, ask, connect, in_seconds, take};
use crate::world::wire::{ServerMessage, post, response, responses, server_messages, text};
use crate::world::{INTERNAL, PUBLIC, PUSH, World};

/// Returns a channel of this namespace whose home is on this worker.
fn channel_at(world: &World, worker: usize, namespace: &str) -> String {
    (0..)
        .map(|n| format!("{namespace}:{n}"))
        .find(|channel| world.home_of(channel) == worker)
        .expect("endless")
}

fn subscribe(id: u32, channel: &str) -> String {
    json!({ "id": id, "subscribe": { "channel": channel } }).to_string()
}

fn call(world: &mut World, path: &str, body: &Value) -> Value {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(path, &body.to_string()));
    serde_json::from_str(&responses(&answer)[0].body).expect("JSON")
}

/// A client that subscribed with a subscribe command is unsubscribed, and can subscribe again.
#[test]
fn a_subscription_of_the_client_ends_and_can_be_made_again() {
    for home in 0..2 {
        let mut world = super::world(2);
        let channel = channel_at(&world, home, "chat");
        let peers = [ann(&mut world, 0), ann(&mut world, 1)];
        for peer in peers {
            ask(&mut world, peer, &subscribe(2, &channel));
        }
        let bystander = ann(&mut world, 0);
        world.lose(&channel);
        let push = json!({ "push": { "channel": channel,
            "unsubscribe": { "code": 2500, "reason": "insufficient state" } } });
        for peer in peers {
            let received = take(&mut world, peer);
            assert_eq!(
                (received.lines, received.closed),
                (vec![push.clone()], None)
            );
        }
        assert_eq!(take(&mut world, bystander), super::Received::default());
        let publication = json!({ "channel": channel, "data": 1 });
        call(&mut world, "/api/publish", &publication);
        for peer in peers {
            assert_eq!(take(&mut world, peer), super::Received::default());
            let received = ask(&mut world, peer, &subscribe(3, &channel));
            assert_eq!(received.lines[0]["subscribe"]["offset"], 1, "{received:?}");
        }
    }
}

/// If publications are lost, a client with a server-side subscription is disconnected, since it can't subscribe
/// again itself.
#[test]
fn a_subscription_of_the_server_ends_with_the_connection() {
    let mut world = super::world(2);
    let peers = [ann(&mut world, 0), ann(&mut world, 1)];
    let wanted = json!({ "user": "ann", "channel": "chat:1" });
    call(&mut world, "/api/subscribe", &wanted);
    for peer in peers {
        take(&mut world, peer);
    }
    world.lose("chat:1");
    for peer in peers {
        let received = take(&mut world, peer);
        assert_eq!(
            received.closed,
            Some((3010, "insufficient state".to_owned()))
        );
    }
}

/// Clients whose protocol has no subscribe command are closed with a code after which they reconnect.
#[test]
fn push_users_and_application_sessions_reconnect() {
    for target in ["/ws?user=ann", "/app-user?user=ann"] {
        let mut world = super::world(2);
        let peers = [world.open(0, target), world.open(1, target)];
        world.lose("#ann");
        for peer in peers {
            let messages = server_messages(&world.take(peer));
            let expected = ServerMessage::Close(Some(3010), "insufficient state".to_owned());
            assert_eq!(messages.last(), Some(&expected), "{target}");
        }
    }
}

/// An event stream ends; the browser reconnects with the id of the last event.
#[test]
fn a_response_of_events_ends() {
    let mut world = super::world(2);
    let exp = in_seconds(&world, 600);
    let pass = super::token(&json!({ "sub": "ann", "exp": exp }));
    let target = format!("/centrifuge/tokens/uni_sse?token={pass}");
    let (peer, first) = super::streams::open(&mut world, 1, &crate::world::wire::get(&target));
    assert!(!first.is_empty());
    world.lose("#ann");
    assert!(!world.is_open(peer));
}

/// A publish command fails if the home worker reports that the engine has not answered.
#[test]
fn a_publication_that_is_not_answered_fails() {
    let mut world = super::world(2);
    let channel = channel_at(&world, 1, "chat");
    let peer = ann(&mut world, 0);
    ask(&mut world, peer, &subscribe(2, &channel));
    world.is_engine_down = true;
    let command = json!({ "id": 3, "publish": { "channel": channel, "data": 1 } });
    let received = ask(&mut world, peer, &command.to_string());
    let error = json!({ "id": 3, "error": { "code": 100, "message": "internal server error", "temporary": true } });
    assert_eq!((received.lines, received.closed), (vec![error], None));
    // The next command succeeds, since the engine answers again.
    world.is_engine_down = false;
    let received = ask(&mut world, peer, &command.to_string());
    assert!(
        received
            .lines
            .iter()
            .any(|line| line["publish"].is_object())
    );
}

/// The back end gets an error that means that the outcome is unknown: one per target if it
/// requested results per target, otherwise a single error.
#[test]
fn a_push_that_is_not_answered_fails() {
    let mut world = super::world(2);
    let (near, far) = (channel_at(&world, 0, "chat"), channel_at(&world, 1, "chat"));
    world.is_engine_down = true;
    let publication = json!({ "channel": far, "data": 1 });
    let answer = call(&mut world, "/api/publish", &publication);
    assert_eq!(answer["error"]["code"], 100, "{answer}");
    let broadcast = json!({ "channels": [near, far], "data": 1 });
    let answer = call(&mut world, "/api/broadcast", &broadcast);
    let each = &answer["result"]["responses"];
    assert_eq!(each[0]["result"]["handed"], 0, "{answer}");
    assert_eq!(each[1]["error"]["code"], 100, "{answer}");
    let back_end = world.connect(0, PUSH);
    let line = json!({ "id": 7, "channel": far, "data": 1 });
    let answer = world.ask(back_end, format!("{line}\n"));
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer["error"]["code"], 100, "{answer}");
    assert_eq!(answer["id"], 7);
}

/// A subscription to which the engine does not answer fails, and can be requested again later.
#[test]
fn a_subscription_that_can_not_be_made_fails() {
    let mut world = super::world(2);
    let channel = channel_at(&world, 1, "open");
    let peer = ann(&mut world, 0);
    world.is_engine_down = true;
    let received = ask(&mut world, peer, &subscribe(2, &channel));
    assert_eq!(received.lines[0]["error"]["code"], 100, "{received:?}");
    assert_eq!(received.lines[0]["error"]["temporary"], true);
    world.is_engine_down = false;
    let received = ask(&mut world, peer, &subscribe(3, &channel));
    assert!(received.lines[0]["subscribe"].is_object(), "{received:?}");
    world.reset_all();
    world.settle();
    world.check_empty();
}

/// A session whose server-side channels are unavailable is closed, and its client reconnects.
#[test]
fn a_session_whose_channels_are_not_available_is_closed() {
    let mut world = super::world(2);
    let user = world.user_at(1);
    world.is_engine_down = true;
    let target = format!("/centrifuge/named?user={user}");
    let peer = world.open(0, &target);
    world.send(peer, &text(super::CONNECT));
    let received = take(&mut world, peer);
    assert_eq!(
        received.closed,
        Some((3004, "internal server error".to_owned()))
    );
    let peer = world.connect(0, PUBLIC);
    let handshake = crate::world::wire::handshake(&format!("/ws?user={user}"), "");
    let answer = world.ask(peer, handshake);
    let (head, rest) = response(&answer, true);
    assert_eq!(head.status, 101);
    let closed = server_messages(rest);
    assert!(
        matches!(&closed[..], [ServerMessage::Close(Some(1013), _)]),
        "{closed:?}"
    );
    // As soon as the engine answers, clients of both protocols can connect.
    world.is_engine_down = false;
    connect(&mut world, 0, &target, &json!({}));
    world.open(0, &format!("/ws?user={user}"));
    world.reset_all();
    world.settle();
    world.check_empty();
}
