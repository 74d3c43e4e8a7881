//! Tests on the real server that the API responds to a call only after every worker has completed it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::asked::{Asked, answer};
use crate::support::http::Http;
use crate::support::server::KEY_HEADER;
use crate::support::{Options, Seen, Server, Setup, Socket, USUAL, call, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/push\"
handler = \"push\"
identity = \"query:user\"
channels = [\"*\"]

[[route]]
path = \"/c\"
handler = \"centrifuge\"
identity = \"query:user\"

[[namespace]]
name = \"kept\"
history_size = 10

[history]
path = \"kept\"
";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: ROUTES,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Makes a call over a persistent connection, which stays with one worker.
fn ask(http: &mut Http, method: &str, body: &Value) -> Value {
    let path = format!("/api/{method}");
    let body = body.to_string();
    let response = http.request("POST", &path, KEY_HEADER, body.as_bytes());
    response.expect("an answer").json()
}

/// Sends the commands as one `batch` call; returns the reply to each.
fn batch(server: &Server, commands: Value) -> Value {
    let mut answer = call(server.internal, "batch", &json!({ "commands": commands }));
    answer["replies"].take()
}

#[test]
fn commands_of_a_batch_see_what_those_before_have_done() {
    on_all(|setup| {
        let server = start(setup);
        for n in 0..20 {
            let (user, channel) = (format!("ann{n}"), format!("room:{n}"));
            let mut ann = Socket::open(server.public, &format!("/push?user={user}"));
            let say = |data: &str| json!({ "publish": { "channel": channel, "data": data } });
            let one = json!({ "user": user, "channel": channel });
            // The publication is still in flight to the subscriber when the batch is answered; it
            // arrives before the publications of the next batch.
            let answer = batch(&server, json!([{ "subscribe": one }, say("one")]));
            assert_eq!(answer[1]["publish"]["handed"], 1, "{answer}");
            assert_eq!(ann.text(), "one");
            let commands =
                json!([{ "unsubscribe": one }, say("secret"), { "subscribe": one }, say("two")]);
            let answer = batch(&server, commands);
            assert_eq!(answer[1]["publish"]["handed"], 0, "{answer}");
            assert_eq!(answer[3]["publish"]["handed"], 1, "{answer}");
            assert_eq!(ann.text(), "two");
            let user = json!({ "user": user });
            let commands = json!([{ "block_user": user }, say("secret"), { "user_status": user }]);
            let answer = batch(&server, commands);
            assert_eq!(answer[0]["block_user"]["disconnected"], 1, "{answer}");
            assert_eq!(answer[1]["publish"]["handed"], 0, "{answer}");
            assert_eq!(answer[2]["user_status"]["online"], false, "{answer}");
            assert_eq!(ann.closed(), 3507);
        }
    });
}

#[test]
fn removed_subscribers_miss_publications_after_the_response() {
    on_all(|setup| {
        let server = start(setup);
        // Each caller keeps its worker, so most pairs of caller and subscriber involve two workers.
        let mut callers: Vec<_> = (0..4).map(|_| Http::connect(server.internal)).collect();
        for n in 0..60 {
            let (user, channel) = (format!("ann{n}"), format!("room:{n}"));
            let target = format!("/push?user={user}&channel={channel}");
            let mut ann = Socket::open(server.public, &target);
            let method = ["unsubscribe", "disconnect"][n % 2];
            let mut body = json!({ "user": user });
            if method == "unsubscribe" {
                body["channel"] = json!(channel);
            }
            ask(&mut callers[n % 4], method, &body);
            let secret = json!({ "channel": channel, "data": "secret" });
            let answer = ask(&mut callers[(n + 1 + n / 4 % 3) % 4], "publish", &secret);
            assert_eq!(answer["result"]["handed"], 0, "{n}: {method}: {answer}");
            match method {
                "unsubscribe" => {
                    call(
                        server.internal,
                        "push",
                        &json!({ "user": user, "data": "last" }),
                    );
                    assert_eq!(ann.text(), "last");
                }
                _ => assert!(matches!(ann.next(), Seen::Close(Some(3503), _))),
            }
        }
    });
}

#[test]
fn history_that_waits_for_the_disk_is_there_for_the_next_command() {
    on_all(|setup| {
        let server = start(setup);
        for n in 0..10 {
            let channel = format!("kept:{n}");
            let commands = json!({ "commands": [
                { "publish": { "channel": channel, "data": n } },
                { "history": { "channel": channel, "limit": 1 } },
                { "history_remove": { "channel": channel } },
                { "history": { "channel": channel, "limit": 1 } },
            ] });
            let answer = call(server.internal, "batch", &commands);
            let replies = &answer["replies"];
            assert_eq!(replies[0]["publish"]["offset"], 1, "{answer}");
            assert_eq!(
                replies[1]["history"]["publications"][0]["data"], n,
                "{answer}"
            );
            assert_eq!(replies[3]["history"]["publications"], json!([]), "{answer}");
        }
    });
}

#[test]
fn a_whitelist_names_clients_of_any_kind() {
    on_all(|setup| {
        let server = start(setup);
        let mut both = [(); 2].map(|()| Socket::open(server.public, "/push?user=ann"));
        let listed = |server: &Server| {
            let answer = call(server.internal, "connections", &json!({ "user": "ann" }));
            let all = answer["result"]["connections"]
                .as_object()
                .expect("connections");
            all.keys().cloned().collect::<Vec<_>>()
        };
        let ids = listed(&server);
        assert_eq!(ids.len(), 2);
        let body = json!({ "user": "ann", "whitelist": [ids[0]] });
        call(server.internal, "disconnect", &body);
        assert_eq!(listed(&server), [ids[0].clone()]);
        let alive = both
            .iter_mut()
            .filter_map(|one| one.is_alive().then_some(()));
        assert_eq!(alive.count(), 1);
        // With `client`, only the connection with this id is closed.
        let body = json!({ "user": "ann", "client": ids[0] });
        call(server.internal, "disconnect", &body);
        assert!(listed(&server).is_empty());
    });
}

/// During the hook for a subscription, the back end unsubscribes the client, and then grants the subscription.
#[test]
fn a_back_end_can_call_the_api_during_its_own_hook() {
    on_all(|setup| {
        let api = Arc::new(Mutex::new(None));
        let known = Arc::clone(&api);
        let back_end = Asked::new(move |request| {
            let (_, body) = request.split_once("\r\n\r\n").expect("a whole request");
            let body: Value = serde_json::from_str(body).expect("JSON");
            let at = known.lock().expect("the server is there");
            let one = json!({ "user": body["user"], "channel": body["channel"] });
            assert_eq!(call(at, "unsubscribe", &one), json!({ "result": {} }));
            answer(200, "", r#"{"result":{}}"#)
        });
        let routes = format!(
            "{ROUTES}\n[[namespace]]\nname = \"asked\"\nsubscribe = \"hook\"\n\
             [hooks]\nsubscribe = \"http://{}/subscribe\"\n",
            back_end.address
        );
        let options = Options {
            routes: &routes,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        *api.lock() = Some(server.internal);
        for n in 0..10 {
            let mut eve = Socket::open(server.public, &format!("/c?user=eve{n}"));
            eve.say(r#"{"id":1,"connect":{}}"#);
            eve.text();
            eve.say(&json!({ "id": 2, "subscribe": { "channel": "asked:1" } }).to_string());
            let reply: Value = serde_json::from_str(&eve.text()).expect("JSON");
            assert_eq!(reply["error"]["code"], 103, "{reply}");
            let answer = call(
                server.internal,
                "publish",
                &json!({ "channel": "asked:1", "data": 1 }),
            );
            assert_eq!(answer["result"]["handed"], 0);
        }
    });
}

#[test]
fn a_briefly_empty_room_sends_no_vacated_event() {
    let seen = Asked::new(|_| answer(204, "", ""));
    let routes = format!(
        "{ROUTES}\n[[namespace]]\nname = \"room\"\npresence = true\njoin_leave = true\n\
         events = \"members\"\nleave_delay = \"1s\"\n[events]\nurl = \"http://{}/\"\n",
        seen.address
    );
    let options = Options {
        routes: &routes,
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let room = json!({ "channel": "room:1" });
    let stats = || call(server.internal, "presence_stats", &room)["result"].take();
    let event_types = || {
        let heads = seen.heads();
        let bodies = heads.iter().filter_map(|head| head.split_once("\r\n\r\n"));
        let events = bodies.flat_map(|(_, body)| {
            let body: Value = serde_json::from_str(body).expect("JSON");
            body["events"].as_array().cloned().unwrap_or_default()
        });
        let kinds = events.map(|event| event["type"].as_str().unwrap_or_default().to_owned());
        kinds.collect::<Vec<_>>()
    };
    let both = || {
        ["ann", "bob"]
            .map(|user| Socket::open(server.public, &format!("/push?user={user}&channel=room:1")))
    };
    let there = json!({ "num_clients": 2, "num_users": 2 });
    let here = both();
    until("both are there", || stats() == there);
    drop(here);
    until("the last one has gone", || {
        let channels = call(server.internal, "channels", &json!({ "pattern": "room:*" }));
        channels["result"]["channels"] == json!({})
    });
    assert_eq!(stats(), there, "they may come back");
    let here = both();
    until("both are back", || stats() == there);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(stats(), there);
    drop(here);
    let nobody = json!({ "num_clients": 0, "num_users": 0 });
    until("they are given up", || stats() == nobody);
    until("the event is sent", || {
        event_types().contains(&"vacated".to_owned())
    });
    assert_eq!(
        event_types(),
        ["occupied", "joined", "joined", "left", "left", "vacated"]
    );
}
