//! Tests the presence of all subscribers of a channel, on any route.

use serde_json::{Value, json};

use crate::support::{Options, Server, Setup, Socket, call, on_all, until};

const ROUTES: &str = "[[route]]\npath = \"/push\"\nhandler = \"push\"\nidentity = \"query:user\"\nchannels = [\"room:*\"]\n\
    [[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\nidentity = \"query:user\"\n\
    [[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"room\"\npresence = true\njoin_leave = true\nleave_delay = \"off\"\nsubscribe = \"client\"\n";

const APP: &str = r#"
local app = {}
function app.open(conn)
  conn:subscribe("room:1")
  conn:send(conn.id)
end
return app
"#;

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Returns users and ids of the members.
fn present(server: &Server) -> Vec<(String, String)> {
    let answer = call(server.internal, "presence", &json!({ "channel": "room:1" }));
    let members = answer["result"]["presence"].as_object().expect("members");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = members
        .iter()
        .map(|(id, one)| (text(&one["user"]), id.clone()));
    let mut each: Vec<_> = each.collect();
    each.sort();
    each
}

#[test]
fn presence_lists_every_subscriber() {
    on_all(|setup| {
        let server = start(setup);
        let mut watcher = Socket::open(server.public, "/c?user=eve");
        let subscribe =
            json!({ "id": 2, "subscribe": { "channel": "room:1", "join_leave": true } });
        watcher.say(&format!(
            "{}\n{subscribe}",
            json!({ "id": 1, "connect": {} })
        ));
        let mut printed = String::new();
        while !printed.contains("\"id\":2") {
            printed = watcher.text();
        }
        let push = Socket::open(server.public, "/push?user=ann&channel=room:1");
        // The watcher's own join may come first.
        let mut joined = watcher.text();
        if joined.contains("\"eve\"") {
            joined = watcher.text();
        }
        assert!(
            joined.contains("\"join\"") && joined.contains("\"ann\""),
            "{joined}"
        );
        let mut lua = Socket::open(server.public, "/lua?user=bob");
        lua.text();
        until("all to be there", || {
            let users: Vec<String> = present(&server).into_iter().map(|one| one.0).collect();
            users == ["ann", "bob", "eve"]
        });
        // A member's id is the one listed by `connections`.
        let listed = call(server.internal, "connections", &json!({ "user": "ann" }));
        let listed = listed["result"]["connections"].as_object().expect("a list");
        let id = listed.keys().next().expect("one");
        assert!(present(&server).contains(&("ann".to_owned(), id.clone())));
        drop(push);
        drop(lua);
        until("the others to have left", || present(&server).len() == 1);
    });
}
