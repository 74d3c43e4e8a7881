//! Several servers on one Redis: the effects of calls to one are seen on the others.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::Follower;
use crate::support::backing::Backing;
use crate::support::{Options, Server, Setup, Socket, USUAL, USUAL_ONE, call, until};

/// The channels whose names begin with `chat:` store a long history.
const CONFIG: &str = "[[route]]\npath = \"/follow\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
    channels = [\"chat:*\", \"live:*\", \"room:*\"]\npositions = true\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 1000\n\
    [[namespace]]\nname = \"live\"\n";

fn node(setup: Setup, redis: &Backing) -> Server {
    let engine = format!(
        "{CONFIG}[engine]\ntype = \"redis\"\nurl = \"redis://127.0.0.1:{}\"\n",
        redis.port
    );
    let options = Options {
        routes: &engine,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// A client's WebSocket that is subscribed to a channel.
struct Client(Socket);

impl Client {
    fn open(server: &Server, user: &str, channel: &str) -> Self {
        Self::on("/follow", server, user, channel)
    }

    fn on(path: &str, server: &Server, user: &str, channel: &str) -> Self {
        let target = format!("{path}?user={user}&channel={channel}");
        let client = Self(Socket::open(server.public, &target));
        // On some routes a client gets no message when its subscription is complete, so the API is queried.
        until("the subscription", || {
            let all = call(server.internal, "channels", &json!({}));
            !all["result"]["channels"][channel].is_null()
        });
        client
    }

    fn next_message(&mut self) -> Value {
        let text = self.0.text();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    /// Returns the next message that is not about a subscription.
    fn next(&mut self) -> Value {
        loop {
            let mut message = self.next_message();
            if message["subscribed"].is_null() {
                return match message["data"].is_null() {
                    true => message,
                    false => message["data"].take(),
                };
            }
        }
    }
}

fn publish(server: &Server, channel: &str, data: &Value) -> Value {
    let body = json!({ "channel": channel, "data": data });
    call(server.internal, "publish", &body)["result"].take()
}

#[test]
fn publications_reach_subscribers_of_all_nodes() {
    let redis = Backing::redis();
    let nodes = [node(USUAL, &redis), node(USUAL_ONE, &redis)];
    let mut clients: Vec<Client> = Vec::new();
    for (number, server) in nodes.iter().enumerate() {
        for channel in ["chat:1", "live:1"] {
            let user = format!("user-{number}");
            clients.push(Client::open(server, &user, channel));
        }
    }
    for (number, server) in nodes.iter().enumerate() {
        let published = publish(server, "chat:1", &json!({ "from": number }));
        assert_eq!(published["offset"], number + 1, "{published}");
        assert_eq!(published["handed"], Value::Null, "other nodes have some");
        publish(server, "live:1", &json!({ "live": number }));
        for client in &mut clients.chunks_exact_mut(2) {
            assert_eq!(client[0].next(), json!({ "from": number }));
            assert_eq!(client[1].next(), json!({ "live": number }));
        }
    }
    // The push reaches the user's connections on other nodes. Node 0 has no connection of the user.
    let body = json!({ "user": "user-1", "data": "hello" });
    call(nodes[0].internal, "push", &body);
    assert_eq!(clients[2].next(), "hello");
    assert_eq!(clients[3].next(), "hello");
}

#[test]
fn a_client_that_reconnects_to_another_node_recovers() {
    let redis = Backing::redis();
    let nodes = [node(USUAL, &redis), node(USUAL, &redis)];
    let client = Follower::open(&nodes[0], "ann", "chat:1", None);
    let mut since = client.position.clone();
    drop(client);
    for round in 0..20_usize {
        for (number, server) in nodes.iter().enumerate() {
            publish(server, "chat:1", &json!([round, number]));
        }
        let server = &nodes[(round + 1) % 2];
        let mut client = Follower::open(server, "ann", "chat:1", Some(&since));
        assert_eq!(client.recovered, true, "round {round}");
        for number in 0..2 {
            assert_eq!(client.next(), json!([round, number]));
        }
        since = client.position;
    }
    let body = json!({ "channel": "chat:1", "limit": -1 });
    for server in &nodes {
        let page = call(server.internal, "history", &body);
        let publications = page["result"]["publications"].as_array().expect("a list");
        assert_eq!(publications.len(), 40);
        assert_eq!(publications[39]["data"], json!([19, 1]));
    }
}

#[test]
fn a_redis_that_is_gone_for_a_while_costs_no_connection() {
    let mut redis = Backing::redis();
    let nodes = [node(USUAL_ONE, &redis), node(USUAL_ONE, &redis)];
    let mut clients: Vec<_> = nodes
        .iter()
        .map(|server| Client::open(server, "ann", "live:1"))
        .collect();
    redis.crash();
    let body = json!({ "channel": "live:1", "data": "lost" });
    let answer = call(nodes[0].internal, "publish", &body);
    assert!(answer["error"]["code"].is_number(), "{answer}");
    redis.start();
    until("publishing again", || {
        let body = json!({ "channel": "live:1", "data": "found" });
        call(nodes[0].internal, "publish", &body)["error"].is_null()
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..400 {
                if is_over.load(Relaxed) {
                    return;
                }
                let probe = json!({ "channel": "live:1", "data": "probe" });
                call(nodes[1].internal, "publish", &probe);
                thread::sleep(Duration::from_millis(50));
            }
        });
        for client in &mut clients {
            until("the feed", || client.next() == "probe");
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn a_server_without_its_redis_does_not_start() {
    let redis = Backing::redis();
    let port = redis.port;
    drop(redis);
    let folder = std::env::temp_dir().join(format!("veche-no-redis-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = folder.join("veche.toml");
    let text = format!(
        "[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [engine]\ntype = \"redis\"\nurl = \"redis://:secret@127.0.0.1:{port}\"\n"
    );
    std::fs::write(&config, text).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_veche"))
        .args(["serve", "--config"])
        .arg(&config)
        .output()
        .expect("it runs");
    let _ = std::fs::remove_dir_all(&folder);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains("[engine] url: redis: not connected"),
        "{message}"
    );
    assert!(!message.contains("secret"), "{message}");
}

/// All channels of a namespace with `wildcard = true` share one topic. Each publication arrives once.
#[test]
fn a_whole_namespace_is_followed_on_another_node() {
    const NEWS: &str = "[[route]]\npath = \"/news\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
        channels = [\"news:*\"]\npositions = true\n\
        [[namespace]]\nname = \"news\"\nwildcard = true\nhistory_size = 100\nsubscribe = \"client\"\n";
    let redis = Backing::redis();
    let engine = format!(
        "{NEWS}[engine]\ntype = \"redis\"\nurl = \"redis://127.0.0.1:{}\"\nprefix = \"other\"\n",
        redis.port
    );
    let options = Options {
        routes: &engine,
        ..Options::default()
    };
    let nodes = [
        Server::with(USUAL, &options),
        Server::with(USUAL_ONE, &options),
    ];
    let mut whole = Client::on("/news", &nodes[1], "ann", "news:*");
    let mut one = Client::on("/news", &nodes[1], "ann", "news:1");
    for number in 0..20 {
        let channel = format!("news:{}", number % 3);
        publish(&nodes[0], &channel, &json!(number));
    }
    let data = |client: &mut Client| client.next().as_u64().expect("a number");
    let received: Vec<u64> = (0..20).map(|_| data(&mut whole)).collect();
    assert_eq!(received, (0..20).collect::<Vec<_>>());
    let received: Vec<u64> = (0..7).map(|_| data(&mut one)).collect();
    assert_eq!(received, [1, 4, 7, 10, 13, 16, 19]);
}
