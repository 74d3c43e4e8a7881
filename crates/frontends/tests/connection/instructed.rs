//! Tests API calls that query channels or execute commands for a user's connections.

use serde_json::{Value, json};

use crate::world::wire::{handshake, post, response, responses, server_messages, text, texts};
use crate::world::{INTERNAL, Options, PUBLIC, Peer, World};

fn world() -> World {
    World::new(Options {
        workers: 3,
        ..Options::default()
    })
}

fn call(world: &mut World, path: &str, body: &Value) -> Value {
    let caller = world.connect(1, INTERNAL);
    let answer = world.ask(caller, post(path, &body.to_string()));
    let answer = &responses(&answer)[0];
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

fn take_output(world: &mut World, peer: Peer) -> Vec<String> {
    world.settle();
    texts(&world.take(peer))
}

#[test]
fn a_back_end_subscribes_and_unsubscribes_connected_users() {
    let mut world = world();
    let anns: Vec<_> = (0..3)
        .map(|worker| world.open(worker, "/ws?user=ann"))
        .collect();
    let bob = world.open(0, "/ws?user=bob");
    let room = json!({ "user": "ann", "channel": "room:1" });
    assert_eq!(
        call(&mut world, "/api/subscribe", &room),
        json!({ "result": {} })
    );
    // A second subscription to the same channel succeeds and changes nothing.
    assert_eq!(
        call(&mut world, "/api/subscribe", &room),
        json!({ "result": {} })
    );
    let publication = json!({ "channel": "room:1", "data": "hello" });
    let answer = call(&mut world, "/api/publish", &publication);
    assert_eq!(answer["result"]["handed"], 3);
    for ann in &anns {
        assert_eq!(take_output(&mut world, *ann), ["hello"]);
    }
    assert!(take_output(&mut world, bob).is_empty());
    let listed = call(&mut world, "/api/channels", &json!({ "pattern": "room:*" }));
    let expected = json!({ "result": { "channels": { "room:1": { "num_clients": 3 } } } });
    assert_eq!(listed, expected);
    let listed = call(&mut world, "/api/channels", &json!({}));
    let channels = &listed["result"]["channels"];
    assert_eq!(channels["#ann"]["num_clients"], 3);
    assert_eq!(channels.as_object().expect("an object").len(), 3);

    assert_eq!(
        call(&mut world, "/api/unsubscribe", &room),
        json!({ "result": {} })
    );
    let answer = call(&mut world, "/api/publish", &publication);
    assert_eq!(answer["result"]["handed"], 0);
    // Subscriptions of clients on a push route can't expire, so a subscription with an expiry is refused.
    let expiring = json!({ "user": "ann", "channel": "room:1", "expire_at": 1_900_000_000 });
    call(&mut world, "/api/subscribe", &expiring);
    let answer = call(&mut world, "/api/publish", &publication);
    assert_eq!(answer["result"]["handed"], 0);
}

#[test]
fn server_side_subscriptions_report_positions() {
    for worker in 0..3 {
        let mut world = world();
        let back = json!({ "channel": "chat:1", "data": 1 });
        let answer = call(&mut world, "/api/publish", &back);
        let epoch = answer["result"]["epoch"]
            .as_str()
            .expect("an epoch")
            .to_owned();
        let peer = world.connect(worker, PUBLIC);
        let bytes = world.ask(peer, handshake("/positions?user=ann", ""));
        assert_eq!(response(&bytes, true).0.status, 101);
        let wanted = json!({ "user": "ann", "channel": "chat:1", "recover_since": { "offset": 0, "epoch": epoch } });
        call(&mut world, "/api/subscribe", &wanted);
        call(
            &mut world,
            "/api/publish",
            &json!({ "channel": "chat:1", "data": 2 }),
        );
        let position = |offset: u32| format!("{epoch}:{offset}");
        let values = take_output(&mut world, peer);
        let values: Vec<Value> = values
            .iter()
            .map(|text| serde_json::from_str(text).expect("JSON"))
            .collect();
        let joined = json!({ "subscribed": "chat:1", "position": position(0), "recovered": true });
        let publication =
            |offset| json!({ "channel": "chat:1", "position": position(offset), "data": offset });
        assert_eq!(values, [joined, publication(1), publication(2)]);
        call(
            &mut world,
            "/api/unsubscribe",
            &json!({ "user": "ann", "channel": "chat:1" }),
        );
        assert_eq!(
            take_output(&mut world, peer),
            [r#"{"unsubscribed":"chat:1"}"#]
        );
    }
}

#[test]
fn subscribed_clients_are_members_unless_hidden() {
    for worker in 0..3 {
        let mut world = world();
        // This client subscribes with its handshake.
        let peer = world.connect(worker, PUBLIC);
        let target = "/positions?user=ann&channel=chat:1";
        let answer = world.ask(peer, handshake(target, ""));
        assert_eq!(response(&answer, true).0.status, 101);
        // A back end subscribes these clients, which use two different protocols.
        for user in ["bob", "eve"] {
            world.open(worker, &format!("/ws?user={user}"));
        }
        let peer = world.open(worker, "/centrifuge/named?user=cid");
        world.ask(peer, text(r#"{"id":1,"connect":{}}"#));
        let off = json!({ "value": false });
        for (user, more) in [
            ("bob", json!({})),
            ("cid", json!({ "info": { "role": "guest" } })),
            (
                "eve",
                json!({ "override": { "presence": off, "join_leave": off } }),
            ),
        ] {
            let mut body = json!({ "user": user, "channel": "chat:1" });
            let fields = body.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("an object").clone());
            let answer = call(&mut world, "/api/subscribe", &body);
            assert_eq!(answer, json!({ "result": {} }));
        }
        let answer = call(&mut world, "/api/presence", &json!({ "channel": "chat:1" }));
        let members = answer["result"]["presence"].as_object().expect("members");
        let mut users = Vec::new();
        for (client, member) in members {
            assert_eq!(&member["client"], client);
            users.push(member["user"].as_str().expect("a user"));
            let info = match member["user"] == "cid" {
                true => json!({ "role": "guest" }),
                false => Value::Null,
            };
            assert_eq!(member["chan_info"], info, "{member}");
        }
        users.sort_unstable();
        assert_eq!(users, ["ann", "bob", "cid"]);
    }
}

#[test]
fn users_are_known_to_be_there_and_when_they_went() {
    let mut world = world();
    let status = |world: &mut World| call(world, "/api/user_status", &json!({ "user": "ann" }));
    let away = json!({ "result": { "online": false, "connections": 0 } });
    assert_eq!(status(&mut world), away);
    let peers = [world.open(0, "/ws?user=ann"), world.open(2, "/ws?user=ann")];
    let there = json!({ "result": { "online": true, "connections": 2 } });
    assert_eq!(status(&mut world), there);
    world.advance(90_000);
    for peer in peers {
        world.reset(peer);
    }
    world.settle();
    let gone = status(&mut world);
    world.advance(1_000);
    assert!(
        gone["result"]["last_seen"].as_u64() >= Some(90_000),
        "{gone}"
    );
    assert_eq!(status(&mut world), gone);
}

#[test]
fn a_connection_is_closed_with_the_code_that_is_wanted() {
    let mut world = world();
    let peer = world.open(2, "/ws?user=ann");
    let wanted = json!({ "user": "ann", "disconnect": { "code": 4321, "reason": "enough" } });
    let answer = call(&mut world, "/api/disconnect", &wanted);
    assert_eq!(answer, json!({ "result": { "disconnected": 1 } }));
    let got = server_messages(&world.take(peer));
    assert_eq!(got.len(), 1);
    assert!(format!("{got:?}").contains("4321") && format!("{got:?}").contains("enough"));
    // Clients of a push route have no client id, so a call that names a client id closes none of
    // them.
    let peer = world.open(1, "/ws?user=bob");
    let another = json!({ "user": "bob", "client": "somebody" });
    assert_eq!(
        call(&mut world, "/api/disconnect", &another),
        json!({ "result": {} })
    );
    assert!(take_output(&mut world, peer).is_empty());
    let refreshed = json!({ "user": "bob", "expired": true });
    call(&mut world, "/api/refresh", &refreshed);
    assert!(format!("{:?}", server_messages(&world.take(peer))).contains("3005"));
}

#[test]
fn a_batch_is_answered_in_order_whatever_becomes_of_each() {
    let mut world = world();
    world.open(0, "/ws?user=ann&channel=room:1");
    let commands = json!({ "parallel": true, "commands": [
        { "publish": { "channel": "chat:1", "data": 1 } },
        { "publish": { "channel": "room:1", "data": 1 } },
        { "presence_stats": { "channel": "chat:1" } },
        { "presence_stats": { "channel": "room:1" } },
        { "push": { "user": "ann", "data": 1 } },
        { "nonsense": {} },
        { "publish": { "channel": "" } },
        { "history": { "channel": "chat:1", "limit": -1 } },
        { "info": {} },
        { "batch": { "commands": [] } },
    ] });
    let answer = call(&mut world, "/api/batch", &commands);
    let replies = answer["replies"].as_array().expect("replies");
    assert_eq!(replies.len(), 10, "{answer}");
    assert_eq!(replies[0]["publish"]["offset"], 1);
    assert_eq!(replies[1]["publish"], json!({ "handed": 1 }));
    let nobody = json!({ "num_clients": 0, "num_users": 0 });
    assert_eq!(replies[2], json!({ "presence_stats": nobody }));
    assert_eq!(replies[3]["error"]["code"], 108);
    assert_eq!(replies[4], json!({ "push": { "handed": 1 } }));
    assert_eq!(replies[5]["error"]["code"], 104);
    assert_eq!(replies[6]["error"]["code"], 107);
    assert_eq!(replies[7]["history"]["publications"][0]["data"], 1);
    assert!(replies[8]["info"]["nodes"].is_array());
    assert_eq!(replies[9]["error"]["code"], 104);
    let none = json!({ "commands": [] });
    let answer = call(&mut world, "/api/batch", &none);
    assert_eq!(answer, json!({ "replies": [] }));
    for bad in [
        json!({ "commands": [{}] }),
        json!({ "commands": [{ "info": {}, "publish": {} }] }),
        json!({ "commands": vec![json!({ "info": {} }); 1001] }),
        json!({ "commands": vec![json!({ "channels": {} }); 2] }),
        json!({ "commands": vec![json!({ "history": { "channel": "chat:1" } }); 33] }),
        json!({}),
    ] {
        assert_eq!(call(&mut world, "/api/batch", &bad)["error"]["code"], 107);
    }
}

#[test]
fn tags_stay_with_a_publication() {
    let mut world = world();
    let tagged = json!({ "channel": "chat:1", "data": 1, "tags": { "lang": "en", "a": "" } });
    call(&mut world, "/api/publish", &tagged);
    let read = json!({ "channel": "chat:1", "limit": 1 });
    let page = call(&mut world, "/api/history", &read);
    let tags = &page["result"]["publications"][0]["tags"];
    assert_eq!(tags, &json!({ "lang": "en", "a": "" }), "{page}");
    let large = json!({ "channel": "chat:1", "data": 1, "tags": { "a": "x".repeat(5_000) } });
    assert_eq!(
        call(&mut world, "/api/publish", &large)["error"]["code"],
        107
    );
}
