//! Tests a client that publishes more bytes than the histories of all channels together may contain.

use serde_json::{Value, json};

use crate::history_on_disk::kill;
use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Socket, USUAL, call};

const ROUTES: &str = "
[[route]]
path = \"/c\"
handler = \"centrifuge\"
identity = \"query:user\"

[[namespace]]
name = \"dialog\"
publish = \"client\"
history_size = 1000

[[namespace]]
name = \"orders\"
publish = \"client\"
history_size = 1000
history_bytes = \"4MiB\"

[history]
path = \"kept\"
";

/// A user that publishes by Centrifugo's protocol.
struct Client {
    socket: Socket,
    sent: u64,
}

impl Client {
    fn connect(server: &Server, user: &str) -> Self {
        let socket = Socket::open(server.public, &format!("/c?user={user}"));
        let mut client = Self { socket, sent: 0 };
        client.ask(&json!({ "connect": {} }));
        client
    }

    fn ask(&mut self, command: &Value) {
        self.sent += 1;
        let mut command = command.clone();
        command["id"] = json!(self.sent);
        self.socket.say(&command.to_string());
        loop {
            for line in self.socket.text().lines() {
                let reply: Value = serde_json::from_str(line).expect("JSON");
                assert!(reply.get("error").is_none(), "{reply}");
                if reply["id"] == self.sent {
                    return;
                }
            }
        }
    }

    fn publish(&mut self, channel: &str, bytes: usize) {
        let data = "x".repeat(bytes);
        self.ask(&json!({ "publish": { "channel": channel, "data": data } }));
    }

    /// Publishes twice as many bytes as the history limit allows, in many channels.
    fn flood(&mut self, namespace: &str) {
        for number in 0..1_100 {
            self.publish(&format!("{namespace}:junk{}", number % 100), 15_000);
        }
    }
}

fn kept(server: &Server, channel: &str) -> usize {
    let body = json!({ "channel": channel, "limit": -1 });
    let answer = call(server.internal, "history", &body);
    let publications = answer["result"]["publications"].as_array();
    publications.map_or(0, Vec::len)
}

#[test]
fn a_flood_evicts_only_its_own_namespace() {
    let options = Options {
        routes: ROUTES,
        limits: "history_bytes = \"8MiB\"",
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let mut ann = Client::connect(&server, "ann");
    for _ in 0..20 {
        ann.publish("dialog:#ann,bob", 100);
        ann.publish("orders:7", 15_000);
        let body = json!({ "channel": "dialog:news", "data": "x".repeat(1_000) });
        call(server.internal, "publish", &body);
    }
    let left = || ["dialog:#ann,bob", "dialog:news", "orders:7"].map(|name| kept(&server, name));
    assert_eq!(left(), [20; 3]);
    let mut mallory = Client::connect(&server, "mallory");
    mallory.flood("dialog");
    assert_eq!(left(), [20; 3]);
    let evicted = Metrics::scrape(server.internal).sum("veche_history_evicted_total", &[]);
    assert!(evicted > 500.0, "{evicted}");
    // A restart preserves how many bytes of the history belong to each publisher.
    kill(&server);
    assert_eq!(left(), [20; 3]);
    let mut mallory = Client::connect(&server, "mallory");
    mallory.flood("dialog");
    assert_eq!(left(), [20; 3]);
    // If the flood is in a namespace with its own budget, it evicts nothing of other namespaces.
    mallory.flood("orders");
    assert_eq!(left(), [20; 3]);
    let metrics = Metrics::scrape(server.internal);
    let bytes = metrics.sum("veche_history_bytes", &[]);
    assert!(bytes <= f64::from(8 << 20), "{bytes}");
}
