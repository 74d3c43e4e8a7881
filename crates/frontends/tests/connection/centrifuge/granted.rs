//! Tests what decisions of hooks and calls of back ends add to publications and subscriptions.

use serde_json::{Value, json};
use veche_frontends::hooks::{HookGrant, HookSubscription};

use super::decided::{PATH, decide, granted, let_in};
use super::{CONNECT, ann, ask, publish, take};
use crate::world::PUSH;

/// A decision has two lists of channels, and a channel may be in both. Twice the limit of channels is therefore
/// permitted.
#[test]
fn a_decision_names_at_most_twice_the_channels_of_a_client() {
    for (count, is_refused) in [(256, false), (257, true)] {
        let mut world = super::world(3);
        let peer = world.open(1, PATH);
        let channel = |number: usize| HookSubscription {
            channel: format!("chat:{}", number % 128).into(),
            ..HookSubscription::default()
        };
        let grant = HookGrant {
            channels: (0..count).map(channel).collect(),
            ..HookGrant::default()
        };
        let (_, heard) = decide(&mut world, peer, CONNECT, granted(grant));
        let closed = heard.closed.map(|(code, _)| code);
        assert_eq!(closed, is_refused.then_some(3505), "{count}");
        let subs = heard.lines.first().map(|line| &line["connect"]["subs"]);
        let names = subs.and_then(Value::as_object).map(serde_json::Map::len);
        assert_eq!(names, (!is_refused).then_some(128), "{count}");
    }
}

#[test]
fn a_decision_may_keep_a_publication_out_of_the_history() {
    let mut world = super::world(3);
    let (ann, bob) = (let_in(&mut world, "ann"), let_in(&mut world, "bob"));
    let subscribe = r#"{"id":2,"subscribe":{"channel":"filtered:1"}}"#;
    assert_eq!(ask(&mut world, bob, subscribe).closed, None);
    take(&mut world, bob);
    let publish = r#"{"id":2,"publish":{"channel":"filtered:1","data":7}}"#;
    for (skips_history, offset) in [(false, json!(1)), (true, Value::Null), (false, json!(2))] {
        let grant = HookGrant {
            skips_history,
            ..HookGrant::default()
        };
        let (_, heard) = decide(&mut world, ann, publish, granted(grant));
        assert_eq!(heard.lines, [json!({ "id": 2, "publish": {} })]);
        let heard = take(&mut world, bob);
        let push = &heard.lines[0]["push"]["pub"];
        assert_eq!((&push["data"], &push["offset"]), (&json!(7), &offset));
    }
}

#[test]
fn wildcard_subscribers_learn_the_channel_of_a_publication() {
    for worker in 0..3 {
        let mut world = super::world(3);
        let peer = ann(&mut world, worker);
        let subscribe = r#"{"id":2,"subscribe":{"channel":"wide:*"}}"#;
        assert!(ask(&mut world, peer, subscribe).lines[0]["subscribe"].is_object());
        let back_end = world.connect(0, PUSH);
        publish(&mut world, back_end, "wide:7", 1);
        let push = json!({ "channel": "wide:*",
            "pub": { "data": 1, "channel": "wide:7", "tags": { "channel": "wide:7" } } });
        let heard = take(&mut world, peer);
        assert_eq!(heard.lines, [json!({ "push": push })]);
    }
}
