//! Lua applications on the real server: they run beside other connections, are isolated, and are
//! replaced while they run.

use rustix::process::Signal;
use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::{Http, Lines, Options, Server, Setup, Socket, get, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/lua/*\"
handler = \"lua\"
identity = \"query:user\"
script = \"app.lua\"
[[route]]
path = \"/open/:room\"
handler = \"lua\"
script = \"app.lua\"";

const APP: &str = r#"
local veche = require "veche"
local app = {}

function app.handshake(req)
  if req.query.key == "wrong" then return 401, "who are you?\n" end
  if req.query.slow then veche.sleep(0.05) end
end

function app.open(conn)
  conn:subscribe("room:" .. (conn.params.room or conn.query.room or "all"))
  conn.attributes.count = 0
  conn:send("open")
end

function app.message(conn, data, kind)
  conn.attributes.count = conn.attributes.count + 1
  local word, rest = data:match("^(%w+) ?(.*)$")
  if word == "say" then veche.publish("room:" .. (conn.params.room or conn.query.room or "all"), rest)
  elseif word == "wait" then veche.sleep(tonumber(rest)) conn:send("waited " .. rest)
  elseif word == "loop" then while true do end
  elseif word == "fail" then error("as asked")
  elseif word == "count" then conn:send("count " .. conn.attributes.count)
  elseif word == "leave" then conn:close(4000, "as you wish") conn:send("never")
  elseif word == "hit" then conn:send("hit " .. veche.counter("hits"):add() .. " " .. veche.dict("hits"):incr("n"))
  elseif word == "push" then veche.push(rest, "pushed")
  else conn:send(data, kind) end
end

function app.close(conn, code, reason) print("closed", conn.user, code, reason) end

function app.request(req)
  if req.params.room then return 404 end
  if req.query.wait then veche.sleep(tonumber(req.query.wait)) end
  if req.query.host then return { found = veche.resolve(req.query.host) } end
  if req.query.fail then error("request as asked") end
  if req.method == "POST" then return 201, { ["x-length"] = tostring(#req.body) }, req.json or "no json" end
  return "hello " .. req.path
end

return app
"#;

fn serve(setup: Setup) -> Server {
    Server::serving(setup, ROUTES, &[("app.lua", APP)])
}

fn open(server: &Server, target: &str) -> Socket {
    let mut socket = Socket::open(server.public, target);
    assert_eq!(socket.text(), "open");
    socket
}

#[test]
fn rooms_reach_over_all_workers() {
    on_all(|setup| {
        let server = serve(setup);
        let mut all: Vec<Socket> = (0..6)
            .map(|i| open(&server, &format!("/lua/x?user=u{i}&room=7")))
            .collect();
        let mut other = open(&server, "/open/8");
        for round in 0..20 {
            let speaker = round % all.len();
            all[speaker].say(&format!("say {round}"));
            for socket in &mut all {
                assert_eq!(socket.text(), round.to_string());
            }
        }
        other.say("echo");
        assert_eq!(other.text(), "echo");
    });
}

#[test]
fn dicts_and_counters_are_shared_by_all_workers() {
    on_all(|setup| {
        let server = serve(setup);
        for hit in 1..=20 {
            let mut socket = open(&server, &format!("/lua/x?user=u{hit}"));
            socket.say("hit");
            assert_eq!(socket.text(), format!("hit {hit} {hit}"));
        }
    });
}

#[test]
fn a_user_is_pushed_to_by_scripts_and_by_the_back_end() {
    on_all(|setup| {
        let server = serve(setup);
        let mut ann = open(&server, "/lua/x?user=ann");
        let mut bob = open(&server, "/lua/x?user=bob");
        bob.say("push ann");
        assert_eq!(ann.text(), "pushed");
        Lines::connect(server.push).send(&json!({"user": "ann", "data": "from behind"}));
        assert_eq!(ann.text(), "from behind");
    });
}

#[test]
fn one_that_waits_holds_back_only_itself_and_keeps_its_order() {
    on_all(|setup| {
        let server = serve(setup);
        let mut slow = open(&server, "/open/1");
        let mut quick = open(&server, "/open/1");
        slow.say("wait 0.3");
        for i in 0..40 {
            slow.say(&format!("behind {i}"));
        }
        quick.say("at once");
        assert_eq!(quick.text(), "at once");
        assert_eq!(slow.text(), "waited 0.3");
        for i in 0..40 {
            assert_eq!(slow.text(), format!("behind {i}"));
        }
    });
}

#[test]
fn a_runaway_and_an_error_end_their_own_connection_only() {
    on_all(|setup| {
        let server = serve(setup);
        let pid = server.pid();
        let mut neighbours: Vec<Socket> = (0..4).map(|_| open(&server, "/open/1")).collect();
        for (what, words) in [("loop", "ran too long"), ("fail", "app.lua:22: as asked")] {
            let mut bad = open(&server, "/lua/x?user=bad");
            bad.say(what);
            assert_eq!(bad.closed(), 1011, "{what}");
            for socket in &mut neighbours {
                socket.say("alive?");
                assert_eq!(socket.text(), "alive?");
            }
            until("the traceback", || server.log().contains(words));
            until("app.close", || server.log().contains("closed  bad  1011"));
        }
        assert_eq!(server.pid(), pid);
        let metrics = Metrics::scrape(server.internal);
        assert_eq!(metrics.sum("veche_app_errors_total", &[]), 2.0);
        assert!(metrics.sum("veche_app_memory_bytes", &[]) > 100_000.0);
    });
}

#[test]
fn ends_have_their_codes() {
    on_all(|setup| {
        let server = serve(setup);
        let mut leaving = open(&server, "/lua/x?user=leaving");
        leaving.say("leave");
        assert_eq!(leaving.closed(), 4000);
        let mut going = open(&server, "/lua/x?user=going");
        going.close(3001);
        drop(open(&server, "/lua/x?user=gone"));
        for words in [
            "closed  leaving  4000  as you wish",
            "closed  going  3001",
            "closed  gone  1006",
        ] {
            until(words, || server.log().contains(words));
        }
        let refused = Socket::try_open(server.public, "/open/1?key=wrong").unwrap_err();
        assert!(refused.to_string().contains("401"), "{refused}");
        open(&server, "/open/1?slow=1").leave();
    });
}

#[test]
fn requests_are_answered_at_once_or_later() {
    on_all(|setup| {
        let server = serve(setup);
        assert_eq!(
            get(server.public, "/lua/a/b?user=u").text(),
            "hello /lua/a/b"
        );
        let mut http = Http::connect(server.public);
        http.raw(
            b"GET /lua/1?user=u&wait=0.05 HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /lua/2?user=u HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /lua/3?user=u&fail=1 HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /open/3 HTTP/1.1\r\nHost: a\r\n\r\n\
              POST /lua/4?user=u HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
        )
        .expect("sent");
        assert_eq!(http.response().expect("one").text(), "hello /lua/1");
        assert_eq!(http.response().expect("two").text(), "hello /lua/2");
        assert_eq!(http.response().expect("three").status, 500);
        assert_eq!(http.response().expect("four").status, 404);
        let posted = http.response().expect("five");
        assert_eq!((posted.status, posted.json()), (201, json!({"a": 1})));
        assert_eq!(posted.header("x-length"), Some("7"));
    });
}

/// Subscribing waits for other workers; a client that leaves in the meantime is closed and removed.
#[test]
fn clients_that_leave_while_subscribing_are_closed() {
    const APP: &str = r#"
    local app = {}
    function app.open(conn)
      print("opened")
      for i = 1, 3 do conn:subscribe("room:" .. conn.id .. i) end
    end
    function app.close(conn) print("closed") end
    return app"#;
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                routes: ROUTES,
                files: &[("app.lua", APP)],
                ..Options::default()
            },
        );
        for _ in 0..300 {
            drop(Socket::open(server.public, "/open/1"));
        }
        let count = |what: &str| server.log().matches(what).count();
        until("all are closed", || count("veche::app: closed") == 300);
        assert_eq!(count("veche::app: opened"), 300);
        assert!(!server.log().contains("ERROR"), "{}", server.log());
        until("nothing waits", || {
            Metrics::scrape(server.internal).sum("veche_app_coroutines", &[]) == 0.0
        });
    });
}

#[test]
fn a_plain_request_to_a_websocket_app_gets_426() {
    let server = Server::with(
        Setup {
            io: "epoll",
            workers: 1,
        },
        &Options {
            routes: ROUTES,
            files: &[("app.lua", "return { message = function() end }")],
            ..Options::default()
        },
    );
    assert_eq!(get(server.public, "/open/1").status, 426);
}

#[test]
fn new_code_finds_the_connections() {
    on_all(|setup| {
        let server = serve(setup);
        let mut sockets: Vec<Socket> = (0..6).map(|_| open(&server, "/open/5")).collect();
        for socket in &mut sockets {
            socket.say("count");
            assert_eq!(socket.text(), "count 1");
        }
        sockets[0].say("wait 0.3");
        sockets[0].say("count");
        let newer = APP.replace("\"count \" ..", "\"new count \" ..");
        let options = |app| [("app.lua", app)];
        server.configure(&Options {
            routes: ROUTES,
            files: &options(newer.as_str()),
            ..Options::default()
        });
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("the new code", || {
            sockets[1].say("count");
            sockets[1].text().starts_with("new")
        });
        // Suspended handlers end in the old code; later messages go to the new code.
        assert_eq!(sockets[0].text(), "waited 0.3");
        assert_eq!(sockets[0].text(), "new count 3");
        sockets[2].say("say all subscribed?");
        for socket in &mut sockets {
            assert_eq!(socket.text(), "all subscribed?");
        }
        // Code that does not load is rejected, and nothing changes.
        server.configure(&Options {
            routes: ROUTES,
            files: &options("local = 5"),
            ..Options::default()
        });
        let answer = server.ask("reload").expect("an answer");
        assert_eq!(answer["ok"], false, "{answer}");
        assert!(answer.to_string().contains("app.lua:1"), "{answer}");
        sockets[3].say("still here");
        assert_eq!(sockets[3].text(), "still here");
        server.signal(Signal::HUP);
        until("the refusal", || server.log().contains("config refused"));
    });
}

#[test]
fn scripts_ask_for_the_addresses_of_hosts() {
    on_all(|setup| {
        let server = serve(setup);
        let ask = |host| get(server.public, &format!("/lua/x?user=u&host={host}"));
        assert_eq!(ask("127.0.0.1").json(), json!({"found": ["127.0.0.1"]}));
        let here = ask("localhost");
        let here = here.text();
        assert!(here.contains("127.0.0.1") || here.contains("::1"), "{here}");
        assert_eq!(ask("no.such.name.invalid").status, 500);
        let expected = "no address for \"no.such.name.invalid\"";
        until("the error is logged", || server.log().contains(expected));
    });
}
