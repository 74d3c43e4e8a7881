//! Tests that `veche status --slow` lists slow operations by kind.

use serde_json::Value;

use crate::support::{Server, Socket, USUAL, get, until};

const APP: &str = r#"
local veche = require "veche"

local app = {}

local function work(seconds)
  local finish = os.clock() + seconds
  while os.clock() < finish do end
end

function app.message(connection, data)
  work(0.03)
  connection:send(data)
end

function app.request(request)
  veche.sleep(0.15)
  return "late"
end

return app
"#;

#[test]
fn what_took_long_is_in_the_status() {
    let routes = "[[app]]\nname = \"tardy\"\nscript = \"app.lua\"\ncpu_budget = \"1s\"\n\
                  [[route]]\npath = \"/tardy\"\nhandler = \"lua\"\napp = \"tardy\"\n";
    let server = Server::serving(USUAL, routes, &[("app.lua", APP)]);
    let mut socket = Socket::open(server.public, "/tardy");
    for _ in 0..3 {
        socket.say("a");
        assert_eq!(socket.text(), "a");
    }
    assert_eq!(get(server.public, "/tardy?token=secret").text(), "late");

    // The handler is recorded after the turn that sent the response.
    let mut slow = Value::Null;
    until("it to be noted", || {
        let mut status = server.status().expect("an answer");
        slow = status["report"]["slow"].take();
        slow["request"][0] != Value::Null
    });
    let longest = |kind: &str| slow[kind][0].clone();
    assert_eq!(longest("handler")["what"], "tardy: message", "{slow}");
    assert!(longest("turn")["ms"].as_u64() >= Some(5), "{slow}");
    assert_eq!(longest("request")["what"], "GET /tardy", "{slow}");
    assert!(longest("request")["ms"].as_u64() >= Some(100), "{slow}");

    let output = server
        .command(&["status", "--slow"])
        .output()
        .expect("it runs");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(
        shown.contains("tardy: message") && shown.contains("GET /tardy"),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
}
