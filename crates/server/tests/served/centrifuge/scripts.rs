//! `app.centrifuge` on the real server: scripts decide on commands at once or later, fail, and are replaced before they
//! have decided.

use serde_json::{Value, json};
use veche_proto::websocket::{MessageKind, encode_message};

use super::Client;
use crate::asked::{Asked, answer};
use crate::support::{Options, Seen, Server, Setup, Socket, USUAL, call, on_all, until};

const APP: &str = r#"
local veche = require "veche"
local app = { centrifuge = {} }
local on = app.centrifuge

function on.connect(client, data)
  local user = client.cookies.sid
  if not user then error { error = { code = 1001, message = "who are you?" } } end
  if user == "eve" then return { disconnect = { code = 4501, reason = "not you" } } end
  return {
    user = user, info = { name = user }, meta = { seen = data or veche.null }, data = { asked = data },
    channels = { "open:1" }, subs = { ["open:2"] = { data = "two" } },
  }
end

function on.subscribe(client, channel, data)
  if channel == "asked:closed" then
    return { error = { code = 1003, message = "closed", temporary = true } }
  end
  veche.sleep(0.01)
  return { info = "guest", data = data }
end

function on.publish(client, channel, data)
  if data == "darn" then return { data = "****" } end
  if data == "passing" then return { skip_history = true } end
  if data == "spam" then return { disconnect = { code = 4000, reason = "spam" } } end
  return {}
end

local waiting = veche.dict("waiting")

on.rpc = {
  echo = function(client, data) return { data = { echo = data, user = client.user, meta = client.meta } } end,
  wait = function(client, data)
    waiting:incr("count", 1, 0)
    while not waiting:get("go") do veche.sleep(0.01) end
    waiting:incr("count", -1)
    return { data = "waited" }
  end,
  sleep = function(client, data) veche.sleep(data) return { data = data } end,
  bad = function() local t = nil return t.x end,
  nothing = function() end,
  busy = function() while true do end end,
  publish = function(client, data)
    veche.publish("open:1", data)
    return { data = #veche.history("asked:1", { limit = 10 }) }
  end,
  who = function() return { data = "old" } end,
}

function on.message(client, data)
  if data == "out" then return { disconnect = { code = 4002 } } end
  if data == "slow" then veche.sleep(0.05) end
  if data == "bad" then error "no such message" end
  veche.publish("open:1", { said = data, by = client.user })
end

function on.disconnect(client, code, reason)
  veche.publish("open:gone", { gone = client.user, code = code, reason = reason })
end

function app.request(req)
  if req.query.go then waiting:set("go", req.query.go == "1") end
  return tostring(waiting:get("count") or 0)
end

return app
"#;

const ROUTES: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\napp = \"decides\"\n\
    [[route]]\npath = \"/how\"\nhandler = \"lua\"\napp = \"decides\"\n\
    [[namespace]]\nname = \"asked\"\nhistory_size = 100\npresence = true\n\
    subscribe = \"hook\"\npublish = \"hook\"\n\
    [[namespace]]\nname = \"open\"\nsubscribe = \"client\"\n\
    [[app]]\nname = \"decides\"\nscript = \"app.lua\"\n";

fn start(setup: Setup, more: &str) -> Server {
    Server::serving(setup, &format!("{ROUTES}{more}"), &[("app.lua", APP)])
}

fn open(server: &Server, headers: &[(&str, &str)]) -> Client {
    let socket = std::net::TcpStream::connect(server.public).expect("a connection");
    let socket = Socket::upgrade(socket, "/c", headers).expect("it opens");
    let lines = std::collections::VecDeque::new();
    Client { socket, lines }
}

fn connect(server: &Server, user: &str) -> Client {
    let mut client = open(server, &[("Cookie", &format!("sid={user}"))]);
    let reply = client.ask(json!({"id": 1, "connect": {}}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    client
}

fn rpc(id: u32, method: &str) -> Value {
    json!({"id": id, "rpc": {"method": method, "data": {"n": id}}})
}

/// Returns the number of handlers that wait for `go`.
fn waiting(server: &Server) -> String {
    crate::support::get(server.public, "/how").text().to_owned()
}

fn go(server: &Server, go: u8) {
    crate::support::get(server.public, &format!("/how?go={go}"));
}

fn internal() -> Value {
    json!({"code": 100, "message": "internal server error", "temporary": true})
}

#[test]
fn a_script_decides_on_each_kind() {
    on_all(|setup| {
        let server = start(setup, "");
        let mut ann = open(&server, &[("Cookie", "sid=ann")]);
        let reply = ann.ask(json!({"id": 1, "connect": {"data": {"k": 1}}}));
        let connected = &reply["connect"];
        assert_eq!(connected["data"], json!({"asked": {"k": 1}}), "{reply}");
        let subs = connected["subs"].as_object().expect("channels");
        let names: Vec<&String> = subs.keys().collect();
        assert_eq!(names, ["#ann", "open:1", "open:2"]);
        assert_eq!(subs["open:2"]["data"], "two");
        let mut eve = open(&server, &[("Cookie", "sid=eve")]);
        eve.say(&json!({"id": 1, "connect": {}}));
        assert_eq!(eve.socket.closed(), 4501);
        let refused = open(&server, &[]).ask(json!({"id": 1, "connect": {}}));
        let expected = json!({"code": 1001, "message": "who are you?"});
        assert_eq!(refused["error"], expected);
        // The subscribe handler.
        let mut bob = connect(&server, "bob");
        let request = json!({"channel": "asked:1", "data": {"as": "guest"}});
        let joined = bob.ask(json!({"id": 2, "subscribe": request}));
        let data = &joined["subscribe"]["data"];
        assert_eq!(*data, json!({"as": "guest"}), "{joined}");
        let presence = bob.ask(json!({"id": 3, "presence": {"channel": "asked:1"}}));
        let there = presence["presence"]["presence"].as_object();
        let there: Vec<&Value> = there.expect("clients").values().collect();
        assert_eq!(
            (&there[0]["conn_info"], &there[0]["chan_info"]),
            (&json!({"name": "bob"}), &json!("guest"))
        );
        let closed = bob.ask(json!({"id": 4, "subscribe": {"channel": "asked:closed"}}));
        let expected = json!({"code": 1003, "message": "closed", "temporary": true});
        assert_eq!(closed["error"], expected);
        // The publish handler.
        for (data, published) in [("hi", "hi"), ("darn", "****"), ("passing", "passing")] {
            let reply = ann.ask(json!({"id": 5, "publish": {"channel": "asked:1", "data": data}}));
            assert_eq!(reply["publish"], json!({}), "{reply}");
            assert_eq!(bob.publication()["data"], published);
        }
        // The RPC handler responds, and its side effects are executed.
        let reply = ann.ask(rpc(6, "echo"));
        let expected = json!({"echo": {"n": 6}, "user": "ann", "meta": {"seen": {"k": 1}}});
        assert_eq!(reply["rpc"]["data"], expected);
        let unknown = ann.ask(rpc(7, "unknown"));
        let expected = json!({"code": 104, "message": "method not found"});
        assert_eq!(unknown["error"], expected);
        bob.say(&rpc(8, "publish"));
        // The publisher receives its own publications too.
        let (mut replies, mut pushes) = (Vec::new(), Vec::new());
        while replies.is_empty() || pushes.is_empty() {
            let line = bob.next();
            match line["id"].is_null() {
                true => pushes.push(line),
                false => replies.push(line),
            }
        }
        assert_eq!(replies[0]["rpc"]["data"], 2, "{replies:?}");
        assert_eq!(pushes[0]["push"]["pub"]["data"], json!({"n": 8}));
        assert_eq!(ann.publication()["data"], json!({"n": 8}));
        ann.say(&json!({"id": 9, "publish": {"channel": "asked:1", "data": "spam"}}));
        assert_eq!(ann.socket.closed(), 4000);
    });
}

#[test]
fn messages_are_taken_one_by_one_and_in_order() {
    on_all(|setup| {
        let server = start(setup, "");
        let mut bob = connect(&server, "bob");
        let send = |data: &str| json!({"send": {"data": data}}).to_string();
        let commands = ["slow", "bad", "last"].map(send);
        bob.socket.say(&commands.join("\n"));
        for data in ["slow", "last"] {
            let expected = json!({"said": data, "by": "bob"});
            assert_eq!(bob.publication()["data"], expected);
        }
        // A failure is logged and not reported to other clients.
        until("the log to say it", || {
            server.log().contains("no such message")
        });
        bob.say(&json!({"send": {"data": "out"}}));
        assert_eq!(bob.socket.closed(), 4002);
    });
}

#[test]
fn a_handler_error_is_logged_and_affects_nothing_else() {
    on_all(|setup| {
        let server = start(setup, "request_timeout = \"200ms\"\n");
        let mut ann = connect(&server, "ann");
        let slow = json!({"id": 9, "rpc": {"method": "sleep", "data": 60}});
        let commands: Vec<Value> = ["bad", "nothing", "busy"]
            .into_iter()
            .map(|method| rpc(2, method))
            .chain([slow])
            .collect();
        for command in commands {
            assert_eq!(ann.ask(command.clone())["error"], internal(), "{command}");
        }
        let whys = [
            "attempt to index local 't' (a nil value)",
            "stack traceback:",
            "centrifuge.rpc returned nothing: a table expected",
            "the code ran too long without waiting and was stopped",
            "longer than request_timeout",
        ];
        for why in whys {
            until(why, || server.log().contains(why));
        }
        let reply = ann.ask(rpc(10, "echo"));
        assert_eq!(reply["rpc"]["data"]["user"], "ann");
    });
}

#[test]
fn a_handler_that_waits_holds_up_one_client_and_his_order_is_kept() {
    on_all(|setup| {
        let server = start(setup, "");
        let (mut ann, mut bob) = (connect(&server, "ann"), connect(&server, "bob"));
        let ping = json!({"id": 3, "ping": {}});
        ann.socket.say(&format!("{}\n{ping}", rpc(2, "wait")));
        ann.say(&rpc(4, "echo"));
        until("it to be asked", || waiting(&server) == "1");
        for id in 2..20 {
            assert_eq!(bob.ask(rpc(id, "echo"))["rpc"]["data"]["user"], "bob");
        }
        go(&server, 1);
        let replies: Vec<Value> = (0..3).map(|_| ann.next()["id"].take()).collect();
        assert_eq!(replies, [json!(2), json!(3), json!(4)]);
    });
}

#[test]
fn a_client_that_leaves_while_a_handler_waits_leaves_no_state() {
    on_all(|setup| {
        let server = start(setup, "");
        let (mut ann, mut bob) = (connect(&server, "ann"), connect(&server, "bob"));
        ann.say(&rpc(2, "wait"));
        bob.say(&rpc(2, "wait"));
        until("both to wait", || waiting(&server) == "2");
        call(server.internal, "disconnect", &json!({"user": "bob"}));
        assert_eq!(bob.socket.closed(), 3503);
        drop(ann);
        // The server notices that a half-closed client is gone when it sends the response. The
        // handlers end in any case.
        go(&server, 1);
        until("the handlers to end", || waiting(&server) == "0");
        server.await_connections(0);
        let mut dan = connect(&server, "dan");
        assert_eq!(dan.ask(rpc(2, "echo"))["rpc"]["data"]["user"], "dan");
    });
}

#[test]
fn close_handlers_get_the_code_and_reason() {
    on_all(|setup| {
        let server = start(setup, "");
        let mut dan = connect(&server, "dan");
        dan.ask(json!({"id": 2, "subscribe": {"channel": "open:gone"}}));
        let mut ann = connect(&server, "ann");
        // The application is not notified of a client that leaves before its connect command.
        drop(open(&server, &[]));
        ann.socket.close(4123);
        let gone = json!({"gone": "ann", "code": 4123, "reason": ""});
        assert_eq!(dan.publication()["data"], gone);
        drop(connect(&server, "bob"));
        let gone = json!({"gone": "bob", "code": 1006, "reason": ""});
        assert_eq!(dan.publication()["data"], gone);
        let mut carl = connect(&server, "carl");
        call(server.internal, "disconnect", &json!({"user": "carl"}));
        let gone = dan.publication()["data"].take();
        assert_eq!(
            (&gone["gone"], &gone["code"]),
            (&json!("carl"), &json!(3503))
        );
        assert_eq!(carl.socket.closed(), 3503);
    });
}

fn reload(server: &Server, routes: &str, app: &str) {
    server.configure(&Options {
        routes,
        files: &[("app.lua", app)],
        ..Options::default()
    });
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
}

#[test]
fn newer_code_decides_for_clients_that_are_there() {
    on_all(|setup| {
        let server = start(setup, "");
        let (mut ann, mut bob) = (connect(&server, "ann"), connect(&server, "bob"));
        ann.say(&rpc(2, "wait"));
        until("it to wait", || waiting(&server) == "1");
        let newer = APP
            .replace("\"old\"", "\"new\"")
            .replace("\"waited\"", "\"new\"");
        let newer = newer.replace("function on.message", "local function unused");
        reload(&server, ROUTES, &newer);
        until("the new code", || {
            bob.ask(rpc(2, "who"))["rpc"]["data"] == "new"
        });
        // After the reload, the suspended handler continues in the old code.
        go(&server, 1);
        assert_eq!(ann.next()["rpc"]["data"], "waited");
        assert_eq!(ann.ask(rpc(3, "who"))["rpc"]["data"], "new");
        // The new code has no handler for this command, so the command is rejected.
        bob.say(&json!({"send": {"data": 1}}));
        assert_eq!(bob.socket.closed(), 3508);
    });
}

#[test]
fn pending_handlers_end_with_the_application() {
    let server = start(USUAL, "");
    let mut clients: Vec<Client> = (0..3).map(|_| connect(&server, "ann")).collect();
    for client in &mut clients {
        client.say(&rpc(2, "wait"));
    }
    until("them to wait", || waiting(&server) == "3");
    let routes = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n";
    reload(&server, routes, APP);
    for client in &mut clients {
        assert_eq!(client.next()["error"], internal());
        // If the connect handler is missing, no client is admitted.
        assert_eq!(client.ask(rpc(3, "echo"))["error"], internal());
    }
}

#[test]
fn the_server_stops_without_waiting_for_a_handler() {
    let mut server = start(USUAL, "");
    let mut ann = connect(&server, "ann");
    ann.say(&rpc(2, "wait"));
    until("it to wait", || waiting(&server) == "1");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(ann.socket.closed(), 3001);
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn the_back_end_decides_on_what_the_script_has_no_handler_for() {
    const SMALL: &str = "return { centrifuge = { rpc = function(client, method, data)
        return { data = { by = 'script', token = client.headers['x-token'], cookie = client.headers.cookie } }
    end } }";
    on_all(|setup| {
        let back_end = Asked::new(|request| {
            let response = match request.starts_with("POST /connect ") {
                true => json!({"result": {"user": "ann"}}),
                false => json!({"result": {"data": "back end"}}),
            };
            answer(200, "", &response.to_string())
        });
        let at = back_end.address;
        let routes = format!(
            "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nscript = \"app.lua\"\n\
             [[route]]\npath = \"/d\"\nhandler = \"centrifuge\"\n\
             [hooks]\nconnect = \"http://{at}/connect\"\nrpc = \"http://{at}/rpc\"\n\
             client_headers = [\"x-token\"]\n"
        );
        let server = Server::serving(setup, &routes, &[("app.lua", SMALL)]);
        let mut ann = open(&server, &[("Cookie", "a=b")]);
        let hello = json!({"headers": {"X-Token": "t", "Cookie": "forged=1"}});
        let reply = ann.ask(json!({"id": 1, "connect": hello}));
        assert!(reply["connect"]["subs"]["#ann"].is_object(), "{reply}");
        let by_script = json!({"by": "script", "token": "t", "cookie": "a=b"});
        assert_eq!(ann.ask(rpc(2, "m"))["rpc"]["data"], by_script);
        let socket = Socket::open(server.public, "/d");
        let lines = std::collections::VecDeque::new();
        let mut bob = Client { socket, lines };
        bob.ask(json!({"id": 1, "connect": {}}));
        assert_eq!(bob.ask(rpc(2, "m"))["rpc"]["data"], "back end");
    });
}

#[test]
fn what_speaks_protobuf_gets_bytes_for_bytes() {
    const ECHO: &str = "return { centrifuge = { rpc = function(client, method, data)
        assert(client.encoding == 'binary' and client.protocol == 'protobuf')
        return { data = data }
    end } }";
    on_all(|setup| {
        let routes = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nscript = \"app.lua\"\n";
        let server = Server::serving(setup, routes, &[("app.lua", ECHO)]);
        let mut socket = Socket::open(server.public, "/c?cf_protocol=protobuf");
        let mut ask = |bytes: &[u8]| {
            let mut out = Vec::new();
            encode_message(&mut out, MessageKind::Binary, bytes, Some([1, 2, 3, 4]));
            socket.raw(&out);
            match socket.next() {
                Seen::Binary(reply) => reply,
                other => panic!("{other:?}"),
            }
        };
        // Two Protobuf commands, each preceded by its length: connect {} with id 1; rpc { data: 00 ff, method: "m" }
        // with id 2.
        let connected = ask(&[0x04, 0x08, 0x01, 0x22, 0x00]);
        assert_eq!(&connected[1..4], &[0x08, 0x01, 0x2a], "{connected:x?}");
        let rpc = [
            0x0b, 0x08, 0x02, 0x6a, 0x07, 0x0a, 0x02, 0x00, 0xff, 0x12, 0x01, b'm',
        ];
        let expected = [0x08, 0x08, 0x02, 0x6a, 0x04, 0x0a, 0x02, 0x00, 0xff];
        assert_eq!(ask(&rpc), expected);
    });
}

#[test]
fn connections_and_subscriptions_last_as_long_as_the_script_says() {
    const TIMED: &str = "local veche = require 'veche'
        local on = {}
        local function soon(seconds) return math.floor(veche.time.now()) + seconds end
        function on.connect() return { user = 'ann', expire_at = soon(2) } end
        function on.subscribe() return { expire_at = soon(2) } end
        function on.refresh(client)
          if client.user == 'ann' then return { expire_at = soon(3600) } end
        end
        function on.sub_refresh(client, channel)
          if channel == 'asked:1' then return { expired = true } end
          error { disconnect = { code = 4009, reason = 'what?' } }
        end
        return { centrifuge = on }";
    on_all(|setup| {
        let server = Server::serving(setup, ROUTES, &[("app.lua", TIMED)]);
        let mut ann = open(&server, &[]);
        let reply = ann.ask(json!({"id": 1, "connect": {}}));
        assert_eq!(reply["connect"]["expires"], Value::Null, "{reply}");
        let joined = ann.ask(json!({"id": 2, "subscribe": {"channel": "asked:1"}}));
        assert_eq!(joined["subscribe"]["expires"], Value::Null, "{joined}");
        let push = ann.next();
        assert_eq!(push["push"]["unsubscribe"]["code"], 2501, "{push}");
        assert_eq!(ann.ask(json!({"id": 3, "ping": {}}))["ping"], json!({}));
        // For this channel, the refresh of the subscription disconnects the client.
        ann.ask(json!({"id": 4, "subscribe": {"channel": "asked:2"}}));
        assert_eq!(ann.socket.closed(), 4009);
    });
}
