//! Tests a subscriber of a wildcard channel whose node is temporarily cut off from Redis.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::relay::{Fault, Relay};
use super::{centrifuge, knows, node_with, result, subscribe};
use crate::support::backing::Backing;

const NEWS: &str = "[[namespace]]\nname = \"news\"\nwildcard = true\nsubscribe = \"client\"\n\
                    history_size = 100\nhistory_ttl = \"1m\"\n";

#[test]
fn publications_to_unknown_channels_during_a_cut_are_not_missed_unnoticed() {
    let redis = Backing::redis();
    let relay = Relay::to(redis.port);
    let a = node_with(redis.port, "a", NEWS);
    let b = node_with(relay.port, "b", NEWS);
    knows(&a, 2);
    knows(&b, 2);
    let mut whole = centrifuge(&b);
    subscribe(&mut whole, "news:*");
    let mut one = centrifuge(&b);
    subscribe(&mut one, "news:1");
    let publish = |channel: &str, number: u32| {
        let body = json!({"channel": channel, "data": {"n": number}});
        result(&a, "publish", body);
    };
    publish("news:1", 1);
    for socket in [&mut whole, &mut one] {
        assert!(socket.text().contains("\"n\":1"));
    }
    relay.set(Fault::Cut);
    publish("news:1", 2);
    publish("news:2", 3);
    thread::sleep(Duration::from_millis(500));
    relay.set(Fault::None);
    // The subscriber of one channel gets the missed publications; the wildcard subscriber is unsubscribed, so that it
    // knows of the loss.
    assert!(one.text().contains("\"n\":2"));
    let text = whole.text();
    assert!(text.contains("\"unsubscribe\":{\"code\":2500"), "{text}");
    subscribe(&mut whole, "news:*");
    publish("news:3", 4);
    assert!(whole.text().contains("\"n\":4"));
}
