//! Connection tokens and subscription tokens: what they permit, and for how long.

use serde_json::{Value, json};

use super::{ask, connect, in_seconds, take, token};
use crate::world::wire::{get, handshake, response, responses};
use crate::world::{PUBLIC, Peer, World};

/// Advances the time by `ms`. The client sends a pong every second. Returns all output except pings.
pub(super) fn pass(world: &mut World, peer: Peer, mut ms: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    while ms > 0 {
        let step = ms.min(1_000);
        world.advance(step);
        ms -= step;
        lines.extend(ask(world, peer, "{}").lines);
    }
    lines.retain(|line| *line != json!({}));
    lines
}

#[test]
fn tokens_end_and_are_renewed() {
    let mut world = super::world(3);
    let claims = |world: &World, seconds: u64, user: &str| {
        token(&json!({ "sub": user, "exp": in_seconds(world, seconds), "info": { "a": 1 } }))
    };
    let good = claims(&world, 60, "ann");
    let (peer, reply) = connect(&mut world, 1, "/centrifuge/jwt", &json!({ "token": good }));
    assert_eq!(
        (&reply["expires"], &reply["ttl"]),
        (&json!(true), &json!(60))
    );
    assert!(pass(&mut world, peer, 50_000).is_empty());
    let next = claims(&world, 60, "ann");
    let command = json!({ "id": 2, "refresh": { "token": next } }).to_string();
    let refreshed = ask(&mut world, peer, &command).lines;
    assert_eq!(
        (
            &refreshed[0]["refresh"]["expires"],
            &refreshed[0]["refresh"]["ttl"]
        ),
        (&json!(true), &json!(60))
    );
    // Subscription tokens. The accepted one expires before the connection token.
    let sub = |world: &World, seconds: u64, channel: &str, user: &str| {
        let exp = in_seconds(world, seconds);
        token(&json!({ "sub": user, "exp": exp, "channel": channel, "info": "guest" }))
    };
    let asks = |world: &mut World, id: u64, channel: &str, token: String| {
        let request = json!({ "channel": channel, "token": token });
        let command = json!({ "id": id, "subscribe": request }).to_string();
        ask(world, peer, &command).lines[0].clone()
    };
    for (channel, of, user, code) in [
        ("token:1", "token:2", "ann", 103),
        ("token:1", "token:1", "bob", 103),
        ("open:$1", "open:1", "ann", 103),
    ] {
        let token = sub(&world, 60, of, user);
        assert_eq!(asks(&mut world, 3, channel, token)["error"]["code"], code);
    }
    let late = sub(&world, 0, "token:1", "ann");
    assert_eq!(asks(&mut world, 3, "token:1", late)["error"]["code"], 109);
    let good = sub(&world, 20, "token:1", "ann");
    let joined = asks(&mut world, 4, "token:1", good);
    assert_eq!(joined["subscribe"], json!({ "expires": true, "ttl": 20 }));
    pass(&mut world, peer, 19_000);
    let renewed = sub(&world, 20, "token:1", "ann");
    let request = json!({ "channel": "token:1", "token": renewed });
    let command = json!({ "id": 5, "sub_refresh": request }).to_string();
    let received = ask(&mut world, peer, &command);
    assert_eq!(
        received.lines.last(),
        Some(&json!({ "id": 5, "sub_refresh": { "expires": true, "ttl": 20 } }))
    );
    // The subscription ends when its token and the grace period have expired.
    assert!(pass(&mut world, peer, 44_999).is_empty());
    let lines = pass(&mut world, peer, 1);
    let push = json!({ "push": { "channel": "token:1",
        "unsubscribe": { "code": 2501, "reason": "subscription expired" } } });
    assert_eq!(lines, [push]);
    // The connection ends when its token and the grace period have expired.
    let short = claims(&world, 3, "ann");
    let command = json!({ "id": 6, "refresh": { "token": short } }).to_string();
    assert_eq!(ask(&mut world, peer, &command).closed, None);
    assert!(pass(&mut world, peer, 3_000 + 25_000 - 1).is_empty());
    world.advance(1);
    assert_eq!(
        take(&mut world, peer).closed,
        Some((3005, "connection expired".to_owned()))
    );
}

#[test]
fn tokens_that_do_not_hold_open_nothing() {
    let mut world = super::world(1);
    let exp = in_seconds(&world, 60);
    let good = token(&json!({ "sub": "ann", "exp": exp }));
    for (pass, code, closed) in [
        (String::new(), Some(101), None),
        ("x.y.z".to_owned(), None, Some(3500)),
        (format!("{good}x"), None, Some(3500)),
        (
            token(&json!({ "sub": "ann", "exp": exp, "channel": "a" })),
            None,
            Some(3500),
        ),
        (token(&json!({ "sub": "ann" })), None, Some(3500)),
        (token(&json!({ "exp": exp })), None, Some(3500)),
        (
            token(&json!({ "sub": "ann", "exp": exp - 60 })),
            Some(109),
            None,
        ),
        (
            token(&json!({ "sub": "ann", "exp": exp, "channels": ["a\u{1}"] })),
            None,
            Some(3500),
        ),
    ] {
        let peer = world.open(0, "/centrifuge/jwt");
        let command = json!({ "id": 1, "connect": { "token": pass } }).to_string();
        let received = ask(&mut world, peer, &command);
        let error = received
            .lines
            .first()
            .and_then(|line| line["error"]["code"].as_u64());
        assert_eq!(error, code, "{pass}");
        assert_eq!(received.closed.map(|(code, _)| code), closed, "{pass}");
        if closed.is_none() {
            // The client may send the connect command again, with another token.
            let command = json!({ "id": 2, "connect": { "token": good } }).to_string();
            let received = ask(&mut world, peer, &command);
            assert_eq!(received.lines[0]["connect"]["ttl"], 60);
        }
        world.reset(peer);
        world.settle();
    }
    // A subscription token is refused wherever a connection token is expected.
    let of_channel = token(&json!({ "sub": "ann", "exp": exp, "channel": "chat:1" }));
    for path in [
        "jwt",
        "tokens/websocket",
        "tokens/uni_websocket",
        "tokens/uni_sse",
    ] {
        let target = format!("/centrifuge/{path}?token={of_channel}");
        let request = match path {
            "tokens/uni_sse" => get(&target),
            _ => handshake(&target, ""),
        };
        let peer = world.connect(0, PUBLIC);
        let answer = &responses(&world.ask(peer, request))[0];
        assert_eq!(answer.status, 401, "{path}");
        let challenge = answer.header("WWW-Authenticate");
        assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
    }
    // A handshake may have a token. The connect command then accepts only a token of the same user.
    let target = format!("/centrifuge/jwt?token={good}");
    let (_, reply) = connect(&mut world, 0, &target, &json!({}));
    assert_eq!(
        (&reply["ttl"], &reply["subs"]),
        (&json!(60), &json!({ "#ann": {} }))
    );
    let peer = world.open(0, &target);
    let bob = token(&json!({ "sub": "bob", "exp": exp }));
    let command = json!({ "id": 1, "connect": { "token": bob } }).to_string();
    assert_eq!(
        ask(&mut world, peer, &command).closed.map(|(code, _)| code),
        Some(3500)
    );
}

/// The route decides whether clients without a token, or whose token has no user, may connect.
#[test]
fn anonymous_clients_come_where_the_route_lets_them() {
    let mut world = super::world(1);
    let exp = in_seconds(&world, 60);
    let none = Value::Null;
    let missing = json!(token(&json!({ "exp": exp, "info": { "guest": 1 } })));
    let empty = json!(token(&json!({ "sub": "", "exp": exp })));
    let forged = json!(format!("{}x", token(&json!({ "exp": exp }))));
    let (refused, unauthorized) = (Err(3500), Err(101));
    for (path, none_is, token_is) in [
        ("jwt", unauthorized, refused),
        ("anonymous-token", unauthorized, Ok(Some(60))),
        ("anonymous", Ok(None), Ok(Some(60))),
    ] {
        for (shown, expected) in [
            (&none, none_is),
            (&missing, token_is),
            (&empty, token_is),
            (&forged, refused),
        ] {
            let peer = world.open(0, &format!("/centrifuge/{path}"));
            let connect = match shown {
                Value::Null => json!({}),
                shown => json!({ "token": shown }),
            };
            let command = json!({ "id": 1, "connect": connect }).to_string();
            let received = ask(&mut world, peer, &command);
            let reply = received.lines.first().unwrap_or(&none);
            let found = match (received.closed, reply["error"]["code"].as_u64()) {
                (Some((code, _)), _) => Err(u64::from(code)),
                (None, Some(code)) => Err(code),
                (None, None) => Ok(reply["connect"]["ttl"].as_u64()),
            };
            assert_eq!(found, expected, "{path} {shown}");
            // An anonymous client has no personal channel.
            assert_eq!(reply["connect"]["subs"], Value::Null);
        }
    }
    // A token in the handshake is verified, not only one in the connect command, since other protocols
    // have no connect command.
    let missing = missing.as_str().expect("a token");
    for (path, token, expected) in [
        ("anonymous", "", 101),
        ("anonymous-token", missing, 101),
        ("jwt", missing, 401),
        ("anonymous", "nonsense", 401),
    ] {
        let target = format!("/centrifuge/{path}?token={token}");
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, handshake(&target, ""));
        let status = response(&answer, true).0.status;
        assert_eq!(status, expected, "{path} {token}");
    }
}

#[test]
fn an_anonymous_client_renews_its_token_and_subscribes_with_one() {
    let mut world = super::world(1);
    let exp = in_seconds(&world, 60);
    let own = json!({ "token": token(&json!({ "exp": exp })) });
    let (peer, reply) = connect(&mut world, 0, "/centrifuge/anonymous-token", &own);
    assert_eq!(reply["ttl"], 60);
    let mut say = |command: Value| ask(&mut world, peer, &command.to_string());
    let room = token(&json!({ "channel": "token:1", "exp": exp }));
    let subscribe = json!({ "channel": "token:1", "token": room });
    let joined = say(json!({ "id": 2, "subscribe": subscribe }));
    assert_eq!(joined.lines[0]["subscribe"]["ttl"], 60);
    let longer = token(&json!({ "sub": "", "exp": exp + 60 }));
    let renewed = say(json!({ "id": 3, "refresh": { "token": longer } }));
    assert_eq!(renewed.lines[0]["refresh"]["ttl"], 120);
    let other = token(&json!({ "sub": "ann", "exp": exp }));
    let refused = say(json!({ "id": 4, "refresh": { "token": other } }));
    assert_eq!(refused.closed.map(|(code, _)| code), Some(3500));
}

/// The close code of a failed refresh tells whether the new token has expired or is invalid.
#[test]
fn a_refresh_ends_with_the_reason_that_its_token_is_refused() {
    let mut world = super::world(1);
    let exp = in_seconds(&world, 60);
    let good = token(&json!({ "sub": "ann", "exp": exp }));
    let connecting = json!({ "token": good });
    for (refused, code) in [
        (token(&json!({ "sub": "ann", "exp": exp - 60 })), 3005),
        (token(&json!({ "sub": "bob", "exp": exp })), 3500),
        (format!("{good}x"), 3500),
    ] {
        let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &connecting);
        let command = json!({ "id": 2, "refresh": { "token": refused } });
        let closed = ask(&mut world, peer, &command.to_string()).closed;
        assert_eq!(closed.map(|(code, _)| code), Some(code), "{refused}");
    }
}
