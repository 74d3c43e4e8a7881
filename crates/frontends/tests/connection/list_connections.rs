//! Tests the lists of connections that back ends request.

use serde_json::{Value, json};

use crate::world::wire::{post, responses, text, texts};
use crate::world::{INTERNAL, Options, PUBLIC, Peer, World};

fn listed(world: &mut World, body: &Value) -> Value {
    let caller = world.connect(world.workers.len() - 1, INTERNAL);
    let call = post("/api/connections", &body.to_string());
    let early = world.ask(caller, call);
    let bytes = match early.is_empty() {
        true => {
            world.settle();
            world.take(caller)
        }
        false => early,
    };
    world.reset(caller);
    let answer = &responses(&bytes)[0];
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// Returns the id that back ends see for a connection whose protocol has none.
fn id(world: &World, worker: usize, peer: Peer) -> String {
    let id = world.id(peer);
    format!("{worker}.{}.{}", id.index, id.generation)
}

#[test]
fn connections_are_described_as_they_came() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let push = world.open(0, "/ws?user=ann&channel=news");
    let other = world.open(2, "/ws?user=bob&channel=news");
    let sdk = world.open(1, "/centrifuge/named?user=ann");
    let connect = json!({ "id": 1, "connect": { "name": "js", "version": "1.2" } });
    let bytes = world.ask(sdk, text(&connect.to_string()));
    let reply = texts(&bytes).remove(0);
    let reply: Value = serde_json::from_str(&reply).expect("JSON");
    let client = reply["connect"]["client"]
        .as_str()
        .expect("an id")
        .to_owned();
    let push_id = id(&world, 0, push);
    let other_id = id(&world, 2, other);
    let of_push = |user: &str| {
        json!({ "user": user, "handler": "push", "transport": "websocket", "protocol": "",
            "route": "/ws", "address": "127.0.0.1", "app_name": "", "app_version": "",
            "state": { "channels": { format!("#{user}"): {}, "news": {} } } })
    };
    let of_sdk = json!({ "user": "ann", "handler": "centrifuge", "transport": "websocket",
        "protocol": "json", "route": "/centrifuge/named", "address": "127.0.0.1",
        "app_name": "js", "app_version": "1.2", "state": { "channels": { "#ann": {} } } });
    for (body, expected) in [
        (
            json!({ "user": "ann" }),
            json!({ &push_id: of_push("ann"), &client: of_sdk }),
        ),
        (
            json!({ "channel": "news" }),
            json!({ &push_id: of_push("ann"), &other_id: of_push("bob") }),
        ),
        (
            json!({ "user": "ann", "name": "js" }),
            json!({ &client: of_sdk }),
        ),
        (json!({ "user": "ann", "name": "go" }), json!({})),
        (json!({ "user": "bob", "name": "js" }), json!({})),
        (json!({ "user": "cid" }), json!({})),
    ] {
        let answer = listed(&mut world, &body);
        assert_eq!(
            answer,
            json!({ "result": { "connections": expected } }),
            "{body}"
        );
    }
    world.reset(push);
    let answer = listed(&mut world, &json!({ "channel": "news" }));
    let expected = json!({ &other_id: of_push("bob") });
    assert_eq!(answer["result"]["connections"], expected);
}

#[test]
fn other_handlers_and_responses_are_distinguished() {
    let mut world = World::new(Options::default());
    let app = world.open(0, "/app-user?user=ann");
    let emulated = world.connect(0, PUBLIC);
    let body = r#"{"id":1,"connect":{}}"#;
    let target = "/centrifuge/all/http_stream";
    assert!(!world.ask(emulated, post(target, body)).is_empty());
    let answer = listed(&mut world, &json!({ "user": "ann" }));
    let all = answer["result"]["connections"]
        .as_object()
        .expect("an object");
    if let Some(one) = all.get(&id(&world, 0, app)) {
        assert_eq!(
            (&one["handler"], &one["route"]),
            (&json!("lua"), &json!("/app-user"))
        );
    }
    for body in [
        json!({}),
        json!({ "user": "ann", "channel": "news" }),
        json!({ "user": "" }),
        json!({ "user": "ann", "expression": "true" }),
        json!({ "channel": "" }),
    ] {
        let answer = listed(&mut world, &body);
        assert_eq!(answer["error"]["code"], 107, "{body}: {answer}");
    }
}

#[test]
fn an_oversized_list_is_an_error_not_a_partial_result() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let of_both = |world: &mut World| listed(world, &json!({ "channel": "news" }));
    for n in 0..1_000 {
        world.open(n % 2, "/ws?channel=news&user=ann");
    }
    let answer = of_both(&mut world);
    let all = answer["result"]["connections"].as_object();
    assert_eq!(all.map(|all| all.len()), Some(1_000));
    world.open(0, "/ws?channel=news&user=ann");
    let answer = of_both(&mut world);
    assert_eq!(answer["error"]["code"], 106, "{answer}");
    assert_eq!(answer["result"], Value::Null);
    // The connections of a single worker exceed the limit.
    for _ in 0..501 {
        world.open(1, "/ws?channel=news&user=ann");
    }
    assert_eq!(of_both(&mut world)["error"]["code"], 106);
}
