//! Tests channel names: wildcard subscriptions and patterns.

use serde_json::{Value, json};

use super::Client;
use crate::support::{Lines, Options, Server, Setup, Socket, call, on_all};

const CONFIG: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[route]]\npath = \"/push\"\nhandler = \"push\"\nchannels = [\"news:*\", \"order:*\"]\n\
    [[namespace]]\nname = \"order\"\nwildcard = true\nsubscribe = \"token\"\n\
    [[namespace]]\nname = \"\"\nwildcard = true\nsubscribe = \"client\"\n\
    [[namespace]]\nname = \"news\"\nwildcard = true\nhistory_size = 10\nsubscribe = \"client\"\npublish = \"client\"\n\
    [[namespace]]\nname = \"/users/:user/orders\"\nsubscribe = \"client\"\npublish = \"subscriber\"\nhistory_size = 10\n\
    [[namespace]]\nname = \"/rooms/:room\"\nsubscribe = \"client\"\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: CONFIG,
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn subscribe(id: u32, channel: &str) -> Value {
    json!({ "id": id, "subscribe": { "channel": channel } })
}

#[test]
fn a_wildcard_subscription_covers_its_namespace() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        // Enough clients for every worker to have some.
        let mut all: Vec<Client> = (0..24).map(|_| Client::connect(&server, "ann").0).collect();
        for client in &mut all {
            let joined = client.ask(subscribe(2, "news:*"));
            assert_eq!(joined["subscribe"], json!({}), "it has no positions");
        }
        let (mut bob, _) = Client::connect(&server, "bob");
        let joined = bob.ask(subscribe(2, "news:sport"));
        assert_eq!(joined["subscribe"]["recoverable"], true);
        for (channel, data) in [
            ("news:sport", 1),
            ("news:$secret", 2),
            ("news:7#bob", 3),
            ("other:1", 4),
            ("news:art", 5),
        ] {
            let ack = lines.ask(&json!({ "channel": channel, "data": data, "ack": true }));
            let received = match channel {
                "news:sport" => 25,
                "news:art" => 24,
                _ => 0,
            };
            assert_eq!(ack["result"]["handed"], received, "{channel}: {ack}");
        }
        for client in &mut all {
            for (channel, data) in [("news:sport", 1), ("news:art", 5)] {
                let push = client.next();
                assert_eq!(push["push"]["channel"], "news:*");
                let received =
                    json!({ "data": data, "channel": channel, "tags": { "channel": channel } });
                assert_eq!(push["push"]["pub"], received);
            }
        }
        assert_eq!(bob.publication(), json!({ "data": 1, "offset": 1 }));

        // Clients receive publications through a wildcard subscription, and can't publish to it.
        let refused = bob.ask(json!({ "id": 3, "publish": { "channel": "news:*", "data": 1 } }));
        assert_eq!(refused["error"]["code"], 103, "{refused}");
        bob.ask(json!({ "id": 4, "publish": { "channel": "news:x", "data": 6 } }));
        let received = all[0].publication();
        assert_eq!(
            (&received["data"], &received["channel"]),
            (&json!(6), &json!("news:x"))
        );
    });
}

#[test]
fn routes_without_the_protocol_hear_it_too() {
    on_all(|setup| {
        let server = start(setup);
        let mut socket = Socket::open(server.public, "/push?channel=news:*");
        let mut lines = Lines::connect(server.push);
        lines.ask(&json!({ "channel": "news:1", "data": "hi", "ack": true }));
        assert_eq!(socket.text(), "hi");
        // A single channel whose name is hard to guess is admitted; the whole namespace is not.
        Socket::open(server.public, "/push?channel=order:5d7f");
        let all = Socket::try_open(server.public, "/push?channel=order:*");
        let why = all.err().map(|error| error.to_string());
        assert!(why.is_some_and(|why| why.contains("403")));
    });
}

#[test]
fn a_pattern_has_its_options_and_its_user() {
    on_all(|setup| {
        let server = start(setup);
        let (mut ann, _) = Client::connect(&server, "ann");
        let joined = ann.ask(subscribe(2, "/users/ann/orders"));
        assert_eq!(joined["subscribe"]["recoverable"], true, "{joined}");
        let refused = ann.ask(subscribe(3, "/users/bob/orders"));
        assert_eq!(refused["error"]["code"], 103, "{refused}");
        // A channel with one more level does not match the pattern, so it has none of the pattern's options.
        let joined = ann.ask(subscribe(6, "/users/ann/orders/7"));
        assert_eq!(joined["subscribe"], json!({}));
        // A wildcard subscription to channels without a namespace does not receive publications of `/rooms/lobby`.
        let (mut eve, _) = Client::connect(&server, "eve");
        eve.ask(subscribe(2, "*"));
        let joined = ann.ask(subscribe(4, "/rooms/lobby"));
        assert_eq!(joined["subscribe"], json!({}));
        let refused =
            ann.ask(json!({ "id": 5, "publish": { "channel": "/rooms/lobby", "data": 1 } }));
        assert_eq!(refused["error"]["code"], 103);
        let request = json!({ "channel": "/users/ann/orders", "data": { "order": 7 } });
        let answer = call(server.internal, "publish", &request);
        assert_eq!(answer["result"]["offset"], 1, "{answer}");
        assert_eq!(
            ann.publication(),
            json!({ "data": { "order": 7 }, "offset": 1 })
        );
        call(
            server.internal,
            "publish",
            &json!({ "channel": "lobby", "data": 1 }),
        );
        assert_eq!(eve.publication()["channel"], "lobby");
    });
}

/// Push routes that permit channels by pattern and by name, for named and for anonymous clients.
const ROUTES: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[route]]\npath = \"/push\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
    channels = [\"dialog:*\", \"/users/*\", \"vault:$1\"]\n\
    [[route]]\npath = \"/all\"\nhandler = \"push\"\nchannels = [\"*\"]\n\
    [[namespace]]\nname = \"dialog\"\nwildcard = true\npresence = true\nsubscribe = \"client\"\npublish = \"client\"\n\
    [[namespace]]\nname = \"quiet\"\npresence = true\nsubscribe = \"client\"\npublish = \"none\"\n\
    [[namespace]]\nname = \"/users/:user/orders\"\nsubscribe = \"client\"\n";

#[test]
fn route_patterns_do_not_grant_private_channels() {
    on_all(|setup| {
        let options = Options {
            routes: ROUTES,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let opens = |target: &str| match Socket::try_open(server.public, target) {
            Ok(socket) => Some(socket),
            Err(error) => {
                assert!(error.to_string().contains("403"), "{target}: {error}");
                None
            }
        };
        for (user, channel, is_let_in) in [
            ("eve", "dialog:7", true),
            ("eve", "dialog:7%23ann,bob", false),
            ("ann", "dialog:7%23ann,bob", true),
            ("bob", "dialog:7%23ann,bob", true),
            ("ann,bob", "dialog:7%23ann,bob", false),
            ("eve", "dialog:$9", false),
            ("ann", "dialog:$9%23ann", false),
            ("eve", "vault:$1", true),
            ("eve", "vault:$2", false),
            ("ann", "/users/ann/orders", true),
            ("bob", "/users/ann/orders", false),
            ("ann", "%23ann", false),
        ] {
            let target = format!("/push?user={user}&channel={channel}");
            assert_eq!(opens(&target).is_some(), is_let_in, "{target}");
        }
        for (channel, is_let_in) in [
            ("dialog:7", true),
            ("dialog:7%23ann,bob", false),
            ("dialog:7%23", false),
            ("dialog:$9", false),
            ("$9", false),
            ("/users/ann/orders", false),
            ("/users//orders", true),
        ] {
            let target = format!("/all?channel={channel}");
            assert_eq!(opens(&target).is_some(), is_let_in, "{target}");
        }

        // ann receives the publications of her two channels. eve's subscription to the whole namespace does not cover
        // these channels.
        let channels = "channel=dialog:7%23ann,bob&channel=/users/ann/orders";
        let mut ann = Socket::open(server.public, &format!("/push?user=ann&{channels}"));
        let mut eve = Socket::open(server.public, "/push?user=eve&channel=dialog:*");
        let mut lines = Lines::connect(server.push);
        for (channel, received) in [
            ("dialog:7#ann,bob", 1),
            ("dialog:$9", 0),
            ("/users/ann/orders", 1),
            ("dialog:7", 1),
        ] {
            let ack = lines.ask(&json!({ "channel": channel, "data": channel, "ack": true }));
            assert_eq!(ack["result"]["handed"], received, "{channel}: {ack}");
        }
        // The two channels may have different home workers, so their publications arrive in any order.
        let mut received = [ann.text(), ann.text()];
        received.sort();
        assert_eq!(received, ["/users/ann/orders", "dialog:7#ann,bob"]);
        assert_eq!(eve.text(), "dialog:7");
    });
}

#[test]
fn identified_clients_have_exactly_the_namespace_permissions() {
    on_all(|setup| {
        let options = Options {
            routes: ROUTES,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let error = |reply: &Value| reply["error"]["code"].clone();
        for (channel, user, subscribes, publishes) in [
            ("quiet:7#ann,bob", "ann", true, false),
            ("quiet:7#ann,bob", "eve", false, false),
            ("dialog:7#ann,bob", "ann", true, true),
            ("dialog:7#ann,bob", "eve", false, false),
            // This channel belongs to the namespace "", which is not configured.
            ("x#ann,bob", "ann", false, false),
        ] {
            let (mut client, _) = Client::connect(&server, user);
            let expected = |may| if may { Value::Null } else { json!(103) };
            let place = json!({ "channel": channel });
            let publish = json!({ "channel": channel, "data": 1 });
            let early = client.ask(json!({ "id": 2, "publish": publish }));
            assert_eq!(error(&early), expected(publishes), "{channel} {user}");
            // None of these channels has a history. Channels of a namespace have presence, which only subscribers may
            // read.
            let presence = if channel.contains(':') { 103 } else { 108 };
            for (look, code) in [("history", 108), ("presence", presence)] {
                let looked = client.ask(json!({ "id": 3, look: place }));
                assert_eq!(error(&looked), code, "{channel} {user} {look}");
            }
            let joined = client.ask(subscribe(4, channel));
            assert_eq!(error(&joined), expected(subscribes), "{channel} {user}");
            if !publishes {
                let late = client.ask(json!({ "id": 5, "publish": publish }));
                assert_eq!(error(&late), 103, "{channel} {user}");
            }
        }
    });
}

const SCRIPT: &str = r##"
local app = {}
function app.message(conn, channel)
  local ok, why = pcall(conn.subscribe, conn, channel)
  conn:send(ok and "in" or tostring(why))
end
return app
"##;

#[test]
fn a_script_decides_itself_but_for_users_own_channels() {
    on_all(|setup| {
        let routes = "[[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\nidentity = \"query:user\"\n";
        let options = Options {
            routes,
            files: &[("app.lua", SCRIPT)],
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let mut eve = Socket::open(server.public, "/lua?user=eve");
        for channel in ["dialog:7#ann,bob", "dialog:$9"] {
            eve.say(channel);
            assert_eq!(eve.text(), "in", "{channel}");
        }
        eve.say("#bob");
        let why = eve.text();
        assert!(why.contains("marks personal channels"), "{why}");
        // eve could not subscribe to bob's personal channel, so she is not mistaken for bob.
        let request = json!({ "user": "bob" });
        let answer = call(server.internal, "user_status", &request);
        assert_eq!(answer["result"]["connections"], 0, "{answer}");
    });
}
