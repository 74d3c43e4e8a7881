//! Tests the limits on the number of a client's channels and on the length of channel names.

use serde_json::{Value, json};
use veche_frontends::ConnectionLimits;

use super::{ann, ask, connect, in_seconds, token};
use crate::world::{Options, World, limits};

fn world() -> World {
    World::new(Options {
        limits: ConnectionLimits {
            channels_per_client: 3,
            channel_name_bytes_max: 8,
            ..limits()
        },
        ..Options::default()
    })
}

#[test]
fn channels_are_counted_and_names_measured_when_a_client_subscribes() {
    let mut world = world();
    // The user's personal channel counts as one of the channels.
    let peer = ann(&mut world, 0);
    let mut ask = |command: Value| ask(&mut world, peer, &command.to_string()).lines[0].clone();
    for (channel, code) in [
        ("open:123", Value::Null),
        ("open:1234", json!(107)),
        ("open:2", Value::Null),
        ("open:3", json!(106)),
    ] {
        let reply = ask(json!({ "id": 2, "subscribe": { "channel": channel } }));
        assert_eq!(reply["error"]["code"], code, "{channel}: {reply}");
    }
    ask(json!({ "id": 3, "unsubscribe": { "channel": "open:2" } }));
    let reply = ask(json!({ "id": 4, "subscribe": { "channel": "open:3" } }));
    assert_eq!(reply["subscribe"], json!({}));
    // The limits apply to subscriptions, not to a channel to which a client only publishes.
    let reply = ask(json!({ "id": 5, "publish": { "channel": "open:1234", "data": 1 } }));
    assert_eq!(reply["publish"], json!({}));
}

#[test]
fn a_token_that_gives_more_channels_closes_the_connection() {
    let mut world = world();
    for (channels, closed) in [
        (json!(["open:1", "open:2"]), None),
        (json!(["open:1", "open:2", "open:3"]), Some(3505)),
    ] {
        let exp = in_seconds(&world, 60);
        let token = token(&json!({ "sub": "ann", "exp": exp, "channels": channels }));
        let connect_with = json!({ "token": token });
        if closed.is_none() {
            connect(&mut world, 0, "/centrifuge/jwt", &connect_with);
            continue;
        }
        let peer = world.open(0, "/centrifuge/jwt");
        let command = json!({ "id": 1, "connect": connect_with }).to_string();
        let received = ask(&mut world, peer, &command);
        assert_eq!(received.closed.map(|(code, _)| code), closed);
    }
}
