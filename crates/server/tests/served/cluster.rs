//! Two nodes on one Redis: calls about users, channels and connections cover both.

mod events;
mod foreign;
mod relay;
mod walk;
mod wildcard;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::backing::Backing;
use crate::support::{Http, Options, Server, Setup, Socket, call, now, setups, until};
use relay::{Fault, Relay};

const ROUTES: &str = "
[[route]]
path = \"/push\"
handler = \"push\"
identity = \"query:user\"
channels = [\"news\", \"room:*\"]

[[route]]
path = \"/all/*\"
handler = \"centrifuge\"

[[namespace]]
name = \"\"
subscribe = \"client\"
publish = \"client\"
history_size = 100
history_ttl = \"1m\"
presence = true
";

/// The longest time until the other nodes notice that a node is gone: its lease plus the interval of
/// lease checks.
const LEASE: Duration = Duration::from_secs(12);

fn setup() -> Setup {
    let mut all = setups();
    all.find(|setup| setup.io == "epoll" && setup.workers > 1)
        .expect("there is one")
}

fn node(port: u16, name: &str) -> Server {
    node_with(port, name, "")
}

fn node_with(port: u16, name: &str, more: &str) -> Server {
    let routes = format!(
        "{ROUTES}{more}\n[engine]\ntype = \"redis\"\nurl = \"redis://127.0.0.1:{port}\"\n\
         [node]\nname = \"{name}\"\n"
    );
    let options = Options {
        routes: &routes,
        ..Options::default()
    };
    Server::with(setup(), &options)
}

/// Starts two nodes, and waits until each lists both.
fn pair(redis: &Backing) -> [Server; 2] {
    let nodes = [node(redis.port, "a"), node(redis.port, "b")];
    for node in &nodes {
        knows(node, 2);
    }
    nodes
}

fn knows(node: &Server, nodes: usize) {
    until(&format!("{nodes} nodes"), || names(node).len() == nodes);
}

/// Returns the names of the nodes as a back end sees them.
fn names(node: &Server) -> Vec<String> {
    let info = call(node.internal, "info", &json!({}));
    let nodes = info["result"]["nodes"].as_array().expect("a list").iter();
    let mut names: Vec<String> = nodes
        .map(|node| node["name"].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

fn result(node: &Server, method: &str, body: Value) -> Value {
    let answer = call(node.internal, method, &body);
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

fn user(node: &Server, name: &str) -> Socket {
    Socket::open(node.public, &format!("/push?user={name}"))
}

#[test]
fn a_user_is_reached_on_every_node() {
    let redis = Backing::redis();
    let [a, b] = pair(&redis);
    let (mut here, mut there) = (user(&a, "ann"), user(&b, "ann"));
    let mut other = user(&b, "bob");
    until("both connections", || {
        result(&a, "user_status", json!({"user": "ann"}))["connections"] == 2
    });
    result(&a, "push", json!({"user": "ann", "data": "hello"}));
    assert!(here.text().contains("hello"));
    assert!(there.text().contains("hello"));
    let answer = result(&b, "connections", json!({"user": "ann"}));
    assert_eq!(
        answer["connections"].as_object().map(|all| all.len()),
        Some(2),
        "{answer}"
    );
    let channels = result(&b, "channels", json!({}));
    assert_eq!(channels["partial"], Value::Null, "{channels}");
    // A connection is found by its id on any node.
    let mut ids = answer["connections"].as_object().expect("an object").keys();
    let first = ids.next().expect("one");
    result(&a, "disconnect", json!({"user": "ann", "client": first}));
    until("one to be gone", || {
        result(&a, "user_status", json!({"user": "ann"}))["connections"] == 1
    });
    let mut again = user(&b, "ann");
    until("both again", || {
        result(&a, "user_status", json!({"user": "ann"}))["connections"] == 2
    });
    let answer = result(&b, "disconnect", json!({"user": "ann"}));
    assert_eq!(answer, json!({"disconnected": 2}));
    // The connections are closed by the time of the response.
    let status = result(&a, "user_status", json!({"user": "ann"}));
    assert_eq!(status["connections"], 0, "{status}");
    assert!(status["last_seen"].is_u64(), "{status}");
    here.closed();
    there.closed();
    again.closed();
    assert!(other.is_alive());
}

#[test]
fn a_ban_and_a_revocation_are_in_force_on_every_node_when_they_are_answered() {
    let redis = Backing::redis();
    let [a, b] = pair(&redis);
    let mut there = user(&b, "ann");
    let answer = result(&a, "block_user", json!({"user": "ann"}));
    assert_eq!(answer, json!({"disconnected": 1}));
    assert_eq!(there.closed(), 3507);
    let refused = |node: &Server| Socket::try_open(node.public, "/push?user=ann").is_err();
    assert!(refused(&a) && refused(&b));
    assert_eq!(result(&b, "revoke_token", json!({"uid": "t1"})), json!({}));
    // A node that starts after the ban applies it as well.
    let c = node(redis.port, "c");
    assert!(refused(&c));
    knows(&a, 3);
    result(&c, "unblock_user", json!({"user": "ann"}));
    assert!(!refused(&a) && !refused(&b) && !refused(&c));
}

#[test]
fn a_channel_is_one_on_all_nodes() {
    let redis = Backing::redis();
    let [a, b] = pair(&redis);
    let mut sockets = [centrifuge(&a), centrifuge(&b)];
    for socket in &mut sockets {
        subscribe(socket, "news");
    }
    let answer = result(&a, "publish", json!({"channel": "news", "data": {"n": 1}}));
    assert_eq!(answer["handed"], Value::Null, "{answer}");
    for socket in &mut sockets {
        assert!(socket.text().contains("\"n\":1"));
    }
    let channels = result(&b, "channels", json!({}));
    assert_eq!(channels["channels"]["news"]["num_clients"], 2, "{channels}");
    let stats = result(&b, "presence_stats", json!({"channel": "news"}));
    assert_eq!(stats["num_clients"], 2, "{stats}");
}

fn centrifuge(node: &Server) -> Socket {
    let mut socket = Socket::open(node.public, "/all/websocket");
    socket.say("{\"id\":1,\"connect\":{}}");
    assert!(socket.text().contains("\"connect\""));
    socket
}

fn subscribe(socket: &mut Socket, channel: &str) {
    let command = json!({"id": 2, "subscribe": {"channel": channel}});
    socket.say(&command.to_string());
    loop {
        let text = socket.text();
        if text.contains("\"subscribe\"") {
            return;
        }
    }
}

#[test]
fn a_node_that_stops_is_gone_at_once_and_one_that_is_killed_within_its_lease() {
    let redis = Backing::redis();
    let [a, mut b] = pair(&redis);
    let c = node(redis.port, "c");
    knows(&a, 3);
    b.stop();
    let began = now();
    until("the node to be gone", || names(&a) == ["a", "c"]);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    drop(c);
    // Until the lease of the dropped node ends, the result is partial, because that node's answer
    // is missing.
    let answer = result(&a, "user_status", json!({"user": "ann"}));
    if answer["partial"] != Value::Null {
        assert_eq!(answer["partial"], "1 of 2");
    }
    let began = now();
    while names(&a) != ["a"] {
        assert!(began.elapsed() < LEASE, "{:?}", names(&a));
        thread::sleep(Duration::from_millis(100));
    }
    let answer = result(&a, "user_status", json!({"user": "ann"}));
    assert_eq!(answer["partial"], Value::Null, "{answer}");
}

#[test]
fn a_cut_off_node_applies_missed_commands() {
    let redis = Backing::redis();
    let relay = Relay::to(redis.port);
    let (a, b) = (node(redis.port, "a"), node(relay.port, "b"));
    knows(&a, 2);
    knows(&b, 2);
    let (mut ann, mut bob) = (user(&b, "ann"), user(&b, "bob"));
    relay.set(Fault::Cut);
    let answer = result(&a, "block_user", json!({"user": "ann"}));
    assert_eq!(answer["partial"], "1 of 2", "{answer}");
    assert!(ann.is_alive(), "it can't know");
    // The cut-off node's answer covers only its own connections, and is marked as partial.
    let answer = result(&b, "user_status", json!({"user": "bob"}));
    assert_eq!(answer["partial"], "1 of 2", "{answer}");
    assert_eq!(answer["connections"], 1, "{answer}");
    let answer = result(&b, "block_user", json!({"user": "carl"}));
    assert_eq!(answer["partial"], "1 of 2", "{answer}");
    relay.set(Fault::None);
    assert_eq!(ann.closed(), 3507);
    assert!(bob.is_alive());
    until("both ways", || {
        Socket::try_open(a.public, "/push?user=carl").is_err()
    });
    assert!(Socket::try_open(b.public, "/push?user=ann").is_err());
    // Until the other node's feed is connected too, the result is partial.
    until("a complete result", || {
        let answer = result(&a, "user_status", json!({"user": "bob"}));
        answer["partial"].is_null() && answer["connections"] == 1
    });
}

#[test]
fn commands_by_http_reach_the_node_of_their_response() {
    let redis = Backing::redis();
    let [a, b] = pair(&redis);
    let mut stream = Http::connect(a.public);
    let connect = json!({"id": 1, "connect": {}}).to_string();
    let request = format!(
        "POST /all/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{connect}",
        connect.len()
    );
    stream.raw(request.as_bytes()).expect("sent");
    assert_eq!(stream.head().expect("an answer").status, 200);
    let first = stream.chunk().expect("read").expect("a reply");
    let first: Value = serde_json::from_slice(&first).expect("JSON");
    let reply = &first["connect"];
    let command = json!({
        "session": reply["session"],
        "node": reply["node"],
        "data": "{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}\n",
    });
    let mut http = Http::connect(b.public);
    let body = command.to_string();
    let answer = http.request("POST", "/all/emulation", "", body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 204);
    let second = stream.chunk().expect("read").expect("a reply");
    let second: Value = serde_json::from_slice(&second).expect("JSON");
    assert!(second["subscribe"].is_object(), "{second}");
    // A node id that no node has.
    let mut unknown = command.clone();
    unknown["node"] = "00000000000000aa".into();
    let body = unknown.to_string();
    let answer = http.request("POST", "/all/emulation", "", body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 404);
}

#[test]
fn nodes_that_disagree_say_so_once() {
    let redis = Backing::redis();
    let a = node(redis.port, "a");
    let b = node_with(
        redis.port,
        "b",
        "[[namespace]]\nname = \"chat\"\nhistory_size = 9\nhistory_ttl = \"1m\"\n",
    );
    knows(&a, 2);
    knows(&b, 2);
    let what = "another node has different values of settings";
    until("the log to say so", || {
        a.log().contains(what) && b.log().contains(what)
    });
    // In this time each node announces its settings several times, but logs the disagreement once.
    thread::sleep(Duration::from_secs(7));
    assert_eq!(a.log().matches(what).count(), 1, "{}", a.log());
    let shown = a
        .command(&["status", "--cluster"])
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("conflicting settings"), "{shown}");
    assert!(shown.contains("this node"), "{shown}");
}

#[test]
fn bans_reach_a_node_behind_a_bad_connection() {
    let redis = Backing::redis();
    let relay = Relay::to(redis.port);
    let (a, b) = (node(redis.port, "a"), node(relay.port, "b"));
    knows(&a, 2);
    for (name, fault, partial) in [
        ("ann", Fault::Delay(100), Value::Null),
        ("bob", Fault::Stall, json!("1 of 2")),
        ("eve", Fault::HalfOpen, json!("1 of 2")),
    ] {
        until("both nodes", || {
            let answer = result(&a, "user_status", json!({"user": name}));
            names(&a).len() == 2 && answer["partial"] == Value::Null
        });
        let (mut banned, mut other) = (user(&b, name), user(&b, "other"));
        relay.set(fault);
        let answer = result(&a, "block_user", json!({"user": name}));
        assert_eq!(answer["partial"], partial, "{fault:?}: {answer}");
        relay.set(Fault::None);
        assert_eq!(banned.closed(), 3507, "{fault:?}");
        assert!(other.is_alive(), "{fault:?}");
    }
}
