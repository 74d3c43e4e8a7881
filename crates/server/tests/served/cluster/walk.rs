//! Tests all API calls on one node for a user whose connection is on another node. Back ends and
//! applications make the calls.

use serde_json::{Value, json};

use super::{ROUTES, knows, setup};
use crate::support::backing::Backing;
use crate::support::{Http, Options, Seen, Server, Socket, call, until};

/// An application that makes the API call in the body of each request.
const APP: &str = r#"
local veche = require "veche"
local app = {}

function app.request(req)
  local ok, result = pcall(veche.api[req.json.method], req.json.params)
  return ok and { result = result } or { error = tostring(result) }
end

return app
"#;

const MORE: &str = "
[[route]]
path = \"/lua\"
handler = \"lua\"
script = \"app.lua\"

[[route]]
path = \"/of/*\"
handler = \"centrifuge\"
identity = \"query:user\"
";

fn node(port: u16, name: &str) -> Server {
    let routes = format!(
        "{ROUTES}{MORE}[engine]\ntype = \"redis\"\nurl = \"redis://127.0.0.1:{port}\"\n[node]\nname = \"{name}\"\n"
    );
    let options = Options {
        routes: &routes,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup(), &options)
}

/// A client on the other node of the cluster.
struct Client(Socket);

impl Client {
    fn open(node: &Server, user: &str) -> Self {
        let mut socket = Socket::open(node.public, &format!("/of/websocket?user={user}"));
        socket.say("{\"id\":1,\"connect\":{}}");
        assert!(socket.text().contains("\"connect\""));
        Self(socket)
    }

    /// Returns the next message that contains these words.
    fn expect_message(&mut self, words: &str) -> String {
        loop {
            let text = self.0.text();
            if text.contains(words) {
                return text;
            }
            // Other messages are pings, or pushes about another subject.
            assert!(text == "{}" || text.contains("push"), "{words}: {text}");
        }
    }
}

fn over_http(node: &Server, method: &str, params: &Value) -> Value {
    let answer = call(node.internal, method, params);
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

fn in_lua(node: &Server, method: &str, params: &Value) -> Value {
    let body = json!({ "method": method, "params": params }).to_string();
    let mut http = Http::connect(node.public);
    let answer = http.request(
        "POST",
        "/lua",
        "Content-Type: application/json\r\n",
        body.as_bytes(),
    );
    let answer = answer.expect("an answer");
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

fn walk(api: impl Fn(&str, Value) -> Value, there: &Server, user: &str) {
    let mut client = Client::open(there, user);
    let channel = format!("of-{user}");
    let (of_user, of_channel) = (json!({ "user": user }), json!({ "channel": channel }));
    until("the connection", || {
        api("user_status", of_user.clone())["connections"] == 1
    });
    let connections = api("connections", of_user.clone());
    let all = connections["connections"].as_object().expect("an object");
    let ids: Vec<_> = all.keys().cloned().collect();
    assert_eq!(ids.len(), 1, "{connections}");
    let id = &ids[0];

    api("push", json!({ "user": user, "data": { "n": 1 } }));
    client.expect_message("\"n\":1");
    let one = json!({ "user": user, "client": id, "channel": channel });
    api("subscribe", one.clone());
    client.expect_message("\"subscribe\"");
    let published = api("publish", json!({ "channel": channel, "data": { "n": 2 } }));
    assert_eq!(published["offset"], 1, "{published}");
    client.expect_message("\"n\":2");
    let all = json!({ "channels": [channel], "data": { "n": 3 } });
    api("broadcast", all);
    client.expect_message("\"n\":3");

    let presence = api("presence", of_channel.clone());
    assert_eq!(presence["presence"][id]["user"], user, "{presence}");
    let stats = api("presence_stats", of_channel.clone());
    assert_eq!(stats["num_clients"], 1, "{stats}");
    let channels = api("channels", json!({ "pattern": "of-*" }));
    assert_eq!(
        channels["channels"][&*channel]["num_clients"], 1,
        "{channels}"
    );
    let history = api("history", json!({ "channel": channel, "limit": -1 }));
    let stored = history["publications"].as_array().expect("a list");
    assert_eq!(stored.len(), 2, "{history}");
    api("history_remove", of_channel.clone());
    let history = api("history", json!({ "channel": channel, "limit": -1 }));
    assert!(
        history["publications"].as_array().is_none_or(Vec::is_empty),
        "{history}"
    );

    let expiry = json!({ "user": user, "client": id, "expire_at": 4_000_000_000_u64 });
    api("refresh", expiry);
    api("unsubscribe", one);
    client.expect_message("\"unsubscribe\"");
    // The channel has no subscribers any more, so it is not listed.
    let channels = api("channels", json!({ "pattern": "of-*" }));
    assert!(channels["channels"][&*channel].is_null(), "{channels}");

    api("disconnect", json!({ "user": user, "client": id }));
    assert_eq!(client.0.closed(), 3503);
    assert_eq!(api("user_status", of_user.clone())["connections"], 0);

    let mut client = Client::open(there, user);
    until("the connection", || {
        api("user_status", of_user.clone())["connections"] == 1
    });
    let blocked = api("block_user", of_user.clone());
    assert_eq!(blocked["disconnected"], 1, "{blocked}");
    assert_eq!(client.0.closed(), 3507);
    let target = format!("/of/websocket?user={user}");
    let is_refused = || {
        let mut socket = Socket::open(there.public, &target);
        socket.say("{\"id\":1,\"connect\":{}}");
        socket.next() == Seen::Close(Some(3507), "permission denied".to_owned())
    };
    assert!(is_refused());
    api("unblock_user", of_user.clone());
    assert!(!is_refused());
    api("revoke_token", json!({ "uid": format!("token-{user}") }));
    api("invalidate_user_tokens", json!({ "user": user }));
    let info = api("info", json!({}));
    assert_eq!(info["nodes"].as_array().map(Vec::len), Some(2), "{info}");
}

#[test]
fn every_call_reaches_the_node_of_the_user() {
    let redis = Backing::redis();
    let (a, b) = (node(redis.port, "a"), node(redis.port, "b"));
    knows(&a, 2);
    knows(&b, 2);
    walk(|method, params| over_http(&a, method, &params), &b, "ann");
    walk(|method, params| in_lua(&a, method, &params), &b, "ben");
}
