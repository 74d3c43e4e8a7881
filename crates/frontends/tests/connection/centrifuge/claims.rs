//! Tests the token claims that Centrifugo defines: each is applied, or the token is refused.

use serde_json::{Value, json};
use veche_frontends::hooks::{HookDecision, HookGrant};

use super::tokens::pass;
use super::{Received, ask, connect, in_seconds, take, token};
use crate::world::{Peer, World};

/// Returns a token for ann that is valid for an hour, with these claims.
fn anns(world: &World, claims: Value) -> String {
    let mut all = json!({ "sub": "ann", "exp": in_seconds(world, 3600) });
    let all_of = all.as_object_mut().expect("an object");
    all_of.extend(claims.as_object().expect("an object").clone());
    token(&all)
}

fn connected(world: &mut World, claims: Value) -> (Peer, Value) {
    let token = anns(world, claims);
    connect(world, 0, "/centrifuge/jwt", &json!({ "token": token }))
}

fn connecting(world: &mut World, claims: Value) -> Received {
    let token = anns(world, claims);
    let peer = world.open(0, "/centrifuge/jwt");
    let command = json!({ "id": 1, "connect": { "token": token } });
    ask(world, peer, &command.to_string())
}

fn subscribe(world: &mut World, peer: Peer, channel: &str, mut claims: Value) -> Value {
    claims["channel"] = channel.into();
    let token = anns(world, claims);
    let command = json!({ "id": 2, "subscribe": { "channel": channel, "token": token } });
    let mut lines = ask(world, peer, &command.to_string()).lines;
    let place = lines.iter().position(|line| line["id"] == 2);
    lines.swap_remove(place.expect("a reply"))
}

fn presence(world: &mut World, peer: Peer, channel: &str) -> usize {
    let command = json!({ "id": 3, "presence": { "channel": channel } });
    let lines = ask(world, peer, &command.to_string()).lines;
    let found = lines.iter().find(|line| line["id"] == 3);
    let members = &found.expect("a reply")["presence"]["presence"];
    members.as_object().map_or(0, serde_json::Map::len)
}

fn seconds_closed(world: &mut World, peer: Peer, code: u16, seconds: u64) {
    assert!(pass(world, peer, seconds * 1000 - 1).is_empty());
    world.advance(1);
    let closed = take(world, peer).closed;
    assert_eq!(closed.map(|(code, _)| code), Some(code));
}

#[test]
fn expire_at_says_how_long_a_connection_lasts_and_exp_only_how_long_its_token_holds() {
    let mut world = super::world(1);
    let at = in_seconds(&world, 1);
    let (peer, reply) = connected(&mut world, json!({ "expire_at": at }));
    assert_eq!(
        (&reply["expires"], &reply["ttl"]),
        (&json!(true), &json!(1))
    );
    seconds_closed(&mut world, peer, 3005, 1 + 25);

    // `expire_at` may be later than the token's `exp`, or 0 for never.
    let at = in_seconds(&world, 5000);
    let (late, reply) = connected(&mut world, json!({ "expire_at": at }));
    assert_eq!(reply["ttl"], 5000);
    let (never, reply) = connected(&mut world, json!({ "expire_at": 0 }));
    assert_eq!(
        (&reply["expires"], &reply["ttl"]),
        (&Value::Null, &Value::Null)
    );
    let (plain, reply) = connected(&mut world, json!({ "expire_at": null }));
    assert_eq!(reply["ttl"], 3600);
    for _ in 0..366 {
        world.advance(10_000);
        for peer in [late, never, plain] {
            ask(&mut world, peer, "{}");
        }
    }
    assert!(ask(&mut world, plain, "{}").closed.is_none());
    for peer in [late, never] {
        let received = ask(&mut world, peer, r#"{"id":9,"ping":{}}"#);
        assert_eq!(received.closed, None, "{received:?}");
    }
    // A renewed token sets the expiry of the connection, even if the connection had none.
    let token = {
        let at = in_seconds(&world, 2);
        anns(&world, json!({ "expire_at": at }))
    };
    let command = json!({ "id": 2, "refresh": { "token": token } }).to_string();
    let refreshed = ask(&mut world, never, &command).lines;
    let reply = refreshed
        .iter()
        .find(|line| line["id"] == 2)
        .expect("a reply");
    assert_eq!(reply["refresh"]["ttl"], 2, "{reply}");
    seconds_closed(&mut world, never, 3005, 2 + 25);
}

#[test]
fn expire_at_that_is_over_or_no_time_opens_nothing() {
    let mut world = super::world(1);
    let before = in_seconds(&world, 0);
    let received = connecting(&mut world, json!({ "expire_at": before }));
    assert_eq!(received.lines[0]["error"]["code"], 110, "{received:?}");
    for wrong in [json!(-1), json!(1.5), json!("2030"), json!([]), json!(true)] {
        let received = connecting(&mut world, json!({ "expire_at": wrong }));
        let closed = received.closed.map(|(code, _)| code);
        assert_eq!(closed, Some(3500), "{wrong}");
    }
    let (peer, _) = connected(&mut world, json!({}));
    let command = json!({ "expire_at": before });
    let reply = subscribe(&mut world, peer, "token:1", command);
    assert_eq!(reply["error"]["code"], 110);
    let reply = subscribe(&mut world, peer, "token:1", json!({ "expire_at": -1 }));
    assert_eq!(reply["error"]["code"], 103);
}

#[test]
fn expire_at_says_how_long_a_subscription_lasts() {
    let mut world = super::world(1);
    let (peer, _) = connected(&mut world, json!({ "expire_at": 0 }));
    let at = in_seconds(&world, 2);
    let reply = subscribe(&mut world, peer, "token:1", json!({ "expire_at": at }));
    assert_eq!(reply["subscribe"], json!({ "expires": true, "ttl": 2 }));
    let reply = subscribe(&mut world, peer, "token:2", json!({ "expire_at": 0 }));
    assert_eq!(reply["subscribe"], json!({}));
    assert!(pass(&mut world, peer, 26_999).is_empty());
    let lines = pass(&mut world, peer, 1);
    let push = json!({ "push": { "channel": "token:1",
        "unsubscribe": { "code": 2501, "reason": "subscription expired" } } });
    assert_eq!(lines, [push]);
    // The subscription to `token:2` never expires.
    for _ in 0..400 {
        world.advance(10_000);
        assert!(ask(&mut world, peer, "{}").closed.is_none());
    }
    let again = subscribe(&mut world, peer, "token:2", json!({}));
    assert_eq!(again["error"]["code"], 105, "{again}");
}

#[test]
fn a_subscription_token_may_be_for_one_connection_and_bring_data() {
    let mut world = super::world(1);
    let (peer, reply) = connected(&mut world, json!({}));
    let client = reply["client"].clone();
    let other = json!({ "client": "another" });
    let refused = subscribe(&mut world, peer, "token:1", other);
    assert_eq!(refused["error"]["code"], 103, "{refused}");
    let wrong = subscribe(&mut world, peer, "token:1", json!({ "client": 7 }));
    assert_eq!(wrong["error"]["code"], 103, "{wrong}");
    let own = json!({ "client": client, "data": { "from": "the token" } });
    let reply = subscribe(&mut world, peer, "token:1", own);
    assert_eq!(reply["subscribe"]["data"], json!({ "from": "the token" }));
}

#[test]
fn an_override_hides_a_member_or_the_token_is_refused() {
    let mut world = super::world(1);
    let (bob, _) = connect(&mut world, 0, "/centrifuge/named?user=bob", &json!({}));
    let join = r#"{"id":2,"subscribe":{"channel":"chat:1","join_leave":true}}"#;
    ask(&mut world, bob, join);
    let (peer, _) = connected(&mut world, json!({}));
    let off = json!({ "value": false });
    for refused in [
        json!({ "presence": off }),
        json!({ "force_recovery": off }),
        json!({ "presence": false }),
        json!({ "allow_everything": { "value": true } }),
        json!([]),
    ] {
        let claims = json!({ "override": refused });
        let reply = subscribe(&mut world, peer, "chat:1", claims);
        assert_eq!(reply["error"]["code"], 103, "{refused}");
    }
    let hidden = json!({ "override": { "presence": off, "join_leave": off,
        "force_push_join_leave": { "value": true }, "force_recovery": { "value": true } } });
    let reply = subscribe(&mut world, peer, "chat:1", hidden.clone());
    assert_eq!(reply["subscribe"]["recoverable"], true, "{reply}");
    // Bob received the join event of his own client only, since the other client is hidden.
    assert_eq!(presence(&mut world, bob, "chat:1"), 1);
    world.advance(1);
    let received = take(&mut world, bob).lines;
    assert!(
        !received.iter().any(|line| line.to_string().contains("ann")),
        "{received:?}"
    );
    // The token of the hidden client makes it receive join events that it has not requested.
    let (eve, _) = connect(&mut world, 0, "/centrifuge/named?user=eve", &json!({}));
    ask(
        &mut world,
        eve,
        r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
    );
    let received = take(&mut world, peer).lines;
    assert_eq!(
        received[0]["push"]["join"]["info"]["user"], "eve",
        "{received:?}"
    );
    assert_eq!(presence(&mut world, bob, "chat:1"), 2);
    // A subscription granted by the `subs` claim of a connection token can be hidden.
    let (_, reply) = connected(&mut world, json!({ "subs": { "chat:1": hidden } }));
    assert!(reply["subs"]["chat:1"].is_object(), "{reply}");
    assert_eq!(presence(&mut world, bob, "chat:1"), 2);
    let (_, reply) = connected(&mut world, json!({ "subs": { "chat:1": {} } }));
    assert!(reply["subs"]["chat:1"].is_object(), "{reply}");
    assert_eq!(presence(&mut world, bob, "chat:1"), 3);
}

#[test]
fn connection_tokens_with_claims_that_can_t_be_honoured_are_refused() {
    let mut world = super::world(1);
    for wrong in [
        json!({ "caps": [{ "channels": ["news"], "allow": ["sub"] }] }),
        json!({ "b64info": "*" }),
        json!({ "channels": "news" }),
        json!({ "channels": ["news", 7] }),
        json!({ "subs": ["news"] }),
        json!({ "subs": { "news": { "override": { "presence": { "value": true } } } } }),
        json!({ "jti": 7 }),
        json!({ "jti": "" }),
        json!({ "jti": "x".repeat(256) }),
        json!({ "iat": "now" }),
    ] {
        let received = connecting(&mut world, wrong.clone());
        let closed = received.closed.map(|(code, _)| code);
        assert_eq!(closed, Some(3500), "{wrong}");
    }
    // Claims that Centrifugo does not define are ignored, and so are claims that are null.
    let claims = json!({ "jti": "t1", "iat": 1.5, "scope": 7, "expires_at": "x", "override": 1, "caps": null });
    connected(&mut world, claims);
}

#[test]
fn a_token_of_the_handshake_says_the_same_as_one_of_the_connect_command() {
    let mut world = super::world(1);
    let good = anns(
        &world,
        json!({ "channels": ["chat:7"], "info": { "name": "Ann" } }),
    );
    let target = format!("/centrifuge/jwt?token={good}");
    let (peer, reply) = connect(&mut world, 0, &target, &json!({}));
    let mut names: Vec<_> = reply["subs"].as_object().expect("subs").keys().collect();
    names.sort();
    assert_eq!(names, ["#ann", "chat:7"]);
    let command = json!({ "id": 3, "presence": { "channel": "chat:7" } });
    let received = ask(&mut world, peer, &command.to_string());
    assert!(format!("{received:?}").contains("Ann"), "{received:?}");
    let bad = anns(&world, json!({ "caps": [] }));
    let peer = world.open(0, &format!("/centrifuge/jwt?token={bad}"));
    let closed = ask(&mut world, peer, r#"{"id":1,"connect":{}}"#).closed;
    assert_eq!(closed.map(|(code, _)| code), Some(3500));
}

#[test]
fn a_new_token_brings_its_info_and_other_channels_take_a_new_connection() {
    let mut world = super::world(1);
    let refresh = |world: &mut World, peer: Peer, claims: &Value| {
        let token = anns(world, claims.clone());
        let command = json!({ "id": 4, "refresh": { "token": token } });
        ask(world, peer, &command.to_string())
    };
    let (peer, _) = connected(&mut world, json!({ "channels": ["chat:7"] }));
    let claims = json!({ "channels": ["chat:7"], "info": "later" });
    let received = refresh(&mut world, peer, &claims);
    assert_eq!(
        received.lines[0]["refresh"]["expires"], true,
        "{received:?}"
    );
    for claims in [
        json!({ "channels": ["chat:8"] }),
        json!({ "channels": ["chat:7", "chat:8"] }),
        json!({}),
    ] {
        let (peer, _) = connected(&mut world, json!({ "channels": ["chat:7"] }));
        let closed = refresh(&mut world, peer, &claims).closed;
        assert_eq!(closed.map(|(code, _)| code), Some(3010), "{claims}");
    }
}

#[test]
fn meta_of_a_token_is_included_in_hook_requests() {
    let mut world = super::world(1);
    let token = anns(&world, json!({ "meta": { "tier": 1 } }));
    let target = "/centrifuge/asked-jwt";
    let (peer, _) = connect(&mut world, 0, target, &json!({ "token": token }));
    ask(&mut world, peer, r#"{"id":2,"rpc":{"method":"m"}}"#);
    let hook_requests = world.hook_requests(0);
    let meta = hook_requests[0].caller.meta.as_ref().expect("meta");
    assert_eq!(&meta.bytes[..], br#"{"tier":1}"#);
    world.deliver_decision(
        0,
        &hook_requests[0],
        HookDecision::Granted(Box::<HookGrant>::default()),
    );
}
