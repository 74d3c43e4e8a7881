//! A script decides on commands while publications of scripts wait for a failing disk.

use std::time::Duration;

use serde_json::json;

use super::Client;
use crate::support::metrics::Metrics;
use crate::support::{Options, Seen, Server, USUAL_ONE, process, until};

const APP: &str = r#"
local veche = require "veche"
local app = { centrifuge = { rpc = {} } }

function app.centrifuge.connect(client) return { user = "ann" } end

function app.centrifuge.rpc.fill(client)
  for _ = 1, 200 do veche.publish("kept:1", ("x"):rep(60000)) end
  return { data = "filled" }
end

function app.centrifuge.rpc.echo(client, data)
  veche.publish("passing", tostring(data))
  return { data = data }
end

return app
"#;

const ROUTES: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\napp = \"decides\"\n\
    [[namespace]]\nname = \"kept\"\nhistory_size = 1000\n\
    [[app]]\nname = \"decides\"\nscript = \"app.lua\"\ncpu_budget = \"5s\"\n\
    [history]\npath = \"history\"\n";

/// A decision waits for the publications of its own handler, so that the client that causes them is slowed down. It
/// does not wait for earlier publications of other clients.
#[test]
fn decisions_wait_for_no_publication_of_another_client() {
    let options = Options {
        routes: ROUTES,
        // The shell ignores SIGXFSZ, which would otherwise kill the process when a file reaches its size limit.
        shell: "trap '' XFSZ",
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    let server = Server::with(USUAL_ONE, &options);
    process::limit_files(server.pid(), Some(96 << 10));
    let (mut fills, _) = Client::connect(&server, "");
    fills.say(&json!({ "id": 2, "rpc": { "method": "fill" } }));
    until("writing to fail", || {
        Metrics::scrape(server.internal).sum("veche_history_disk_failing", &[]) == 1.0
    });
    let (mut asks, _) = Client::connect(&server, "");
    for id in 2..10 {
        let reply = asks.ask(json!({ "id": id, "rpc": { "method": "echo", "data": id } }));
        assert_eq!(reply, json!({ "id": id, "rpc": { "data": id } }));
    }
    let early = fills.socket.within(Duration::from_millis(100));
    assert_eq!(early, Seen::Nothing, "its own publications wait");
    process::limit_files(server.pid(), None);
    let reply = fills.next();
    assert_eq!(reply, json!({ "id": 2, "rpc": { "data": "filled" } }));
}
