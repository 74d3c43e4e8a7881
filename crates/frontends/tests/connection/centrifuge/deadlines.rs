//! Tests that everything that expires ends at its exact time, whatever the ping interval is.

use serde_json::{Value, json};

use super::{Received, ask, connect, in_seconds, take, token};
use crate::world::wire::{post, responses};
use crate::world::{INTERNAL, Options, Peer, World, limits};

/// Time in milliseconds after an expiry within which clients may renew a token.
const GRACE_MS: u64 = 25_000;

/// Returns a world without pings, so that only expiries set deadlines.
fn world() -> World {
    let mut limits = limits();
    limits.ping_interval_ms = 0;
    World::new(Options {
        limits,
        ..Options::default()
    })
}

fn of_connection(world: &World, seconds: u64) -> String {
    token(&json!({ "sub": "ann", "exp": in_seconds(world, seconds) }))
}

fn of_channel(world: &World, seconds: u64) -> String {
    let exp = in_seconds(world, seconds);
    token(&json!({ "sub": "ann", "exp": exp, "channel": "token:1" }))
}

fn call(world: &mut World, method: &str, body: &Value) {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
    let answer = &responses(&answer)[0];
    assert_eq!(answer.body, r#"{"result":{}}"#);
    world.reset(caller);
}

/// Checks that the next deadline is in exactly `ms` milliseconds, and that nothing is received before; returns the
/// output at that time.
fn at_last(world: &mut World, peer: Peer, ms: u64) -> Received {
    assert_eq!(world.due_ms(peer), Some(world.now_ms + ms));
    world.advance(ms - 1);
    assert_eq!(take(world, peer), Received::default());
    world.advance(1);
    take(world, peer)
}

fn expired(channel: &str) -> Value {
    json!({ "push": { "channel": channel,
        "unsubscribe": { "code": 2501, "reason": "subscription expired" } } })
}

#[test]
fn a_connection_ends_with_its_token_and_with_the_one_that_renewed_it() {
    for renewed in [None, Some(7)] {
        let mut world = world();
        let first = if renewed.is_some() { 600 } else { 7 };
        let pass = of_connection(&world, first);
        let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
        if let Some(seconds) = renewed {
            assert_eq!(world.due_ms(peer), Some(world.now_ms + 600_000 + GRACE_MS));
            let pass = of_connection(&world, seconds);
            let command = json!({ "id": 2, "refresh": { "token": pass } });
            let received = ask(&mut world, peer, &command.to_string());
            assert_eq!(received.lines[0]["refresh"]["ttl"], 7);
        }
        let received = at_last(&mut world, peer, 7_000 + GRACE_MS);
        assert_eq!(
            received.closed,
            Some((3005, "connection expired".to_owned()))
        );
        assert_eq!(world.stats(0).tokens_expired.read(), 1);
    }
}

#[test]
fn a_subscription_ends_with_its_token_and_with_the_one_that_renewed_it() {
    for renewed in [None, Some(9)] {
        let mut world = world();
        let pass = of_connection(&world, 3_000);
        let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
        let first = if renewed.is_some() { 600 } else { 9 };
        let pass = of_channel(&world, first);
        let command = json!({ "id": 2, "subscribe": { "channel": "token:1", "token": pass } });
        let received = ask(&mut world, peer, &command.to_string());
        assert_eq!(received.lines[0]["subscribe"]["ttl"], first);
        if let Some(seconds) = renewed {
            assert_eq!(world.due_ms(peer), Some(world.now_ms + 600_000 + GRACE_MS));
            let pass = of_channel(&world, seconds);
            let command =
                json!({ "id": 3, "sub_refresh": { "channel": "token:1", "token": pass } });
            let received = ask(&mut world, peer, &command.to_string());
            assert_eq!(received.lines[0]["sub_refresh"]["ttl"], 9);
        }
        let received = at_last(&mut world, peer, 9_000 + GRACE_MS);
        assert_eq!(
            (received.lines, received.closed),
            (vec![expired("token:1")], None)
        );
        // The next deadline is the expiry of the connection itself.
        assert!(
            world
                .due_ms(peer)
                .is_some_and(|due_ms| due_ms > world.now_ms + 60_000)
        );
    }
}

#[test]
fn what_a_back_end_limits_ends_at_its_time() {
    let mut world = world();
    let pass = of_connection(&world, 3_000);
    let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
    let at = in_seconds(&world, 5);
    let body = json!({ "user": "ann", "channel": "open:1", "expire_at": at });
    call(&mut world, "subscribe", &body);
    let received = take(&mut world, peer);
    assert_eq!(
        received.lines,
        [json!({ "push": { "channel": "open:1", "subscribe": {} } })]
    );
    let due_ms = world.due_ms(peer).expect("a deadline") - world.now_ms;
    assert!((5_000..=5_000 + GRACE_MS).contains(&due_ms), "{due_ms}");
    let received = at_last(&mut world, peer, due_ms);
    assert_eq!(
        received.closed,
        Some((3006, "subscription expired".to_owned()))
    );
    let pass = of_connection(&world, 3_000);
    let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
    let at = in_seconds(&world, 11);
    call(
        &mut world,
        "refresh",
        &json!({ "user": "ann", "expire_at": at }),
    );
    let received = take(&mut world, peer);
    let refresh = &received.lines[0]["push"]["refresh"];
    assert_eq!(
        (&refresh["expires"], &refresh["ttl"]),
        (&json!(true), &json!(11))
    );
    let received = at_last(&mut world, peer, 11_000 + GRACE_MS);
    assert_eq!(
        received.closed,
        Some((3005, "connection expired".to_owned()))
    );
}

#[test]
fn a_client_that_says_nothing_is_closed_in_time() {
    let mut world = world();
    let peer = world.open(0, "/centrifuge");
    let due_ms = world.due_ms(peer).expect("a deadline") - world.now_ms;
    assert!((1_000..60_000).contains(&due_ms), "{due_ms}");
    let received = at_last(&mut world, peer, due_ms);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3502));
}
