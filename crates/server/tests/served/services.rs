//! Tests services, and how applications end when they are removed from the configuration or when
//! the server stops.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Socket, get, on_all, until};

const CHAT: &str = r#"
[[app]]
name = "chat"
script = "chat.lua"
[[route]]
path = "/chat"
handler = "lua"
app = "chat"
"#;

const CHAT_SCRIPT: &str = r#"
local veche = require "veche"
local app = {}
function app.start()
  veche.timer.every(0.02, function() veche.counter("beats"):add() end)
end
function app.open(conn) conn:subscribe("all") conn:send("open") end
function app.message(conn, data)
  if data == "wait" then veche.sleep(0.3) conn:send("waited") end
end
function app.close(conn, code, reason) print("closed", code, reason) end
function app.request() return tostring(veche.counter("beats"):get()) end
function app.stop()
  veche.publish("all", "bye")
  veche.sleep(0.2)
  print("stopped")
end
return app
"#;

const FEED: &str = r#"
[[service]]
name = "feed"
script = "feed.lua"
instances = 4
options = { word = "one" }
"#;

const FEED_SCRIPT: &str = r#"
local veche, service = require "veche", {}
function service.run(instance, instances)
  print("begins", veche.config.word, instance, instances)
  veche.dict("places"):set(tostring(instance), veche.worker)
  while not veche.stopping(0.02) do
    veche.publish("news", veche.config.word)
  end
  veche.sleep(0.1)
  print("ends", veche.config.word)
end
function service.stop() print("is told", veche.config.word) end
return service
"#;

const PLACES: &str = r#"
[[route]]
path = "/places"
handler = "lua"
script = "places.lua"
"#;

const PLACES_SCRIPT: &str = r#"
local veche = require "veche"
return { request = function()
  local places = {}
  for i = 1, 4 do places[i] = veche.dict("places"):get(tostring(i)) or veche.json.null end
  return places
end }
"#;

fn reload(server: &Server, routes: &str, files: &[(&str, &str)]) {
    server.configure(&Options {
        routes,
        files,
        ..Options::default()
    });
    let answer = server.ask("reload").expect("an answer");
    assert_eq!(answer["ok"], true, "{answer}");
}

fn count(server: &Server, words: &str) -> usize {
    server.log().matches(words).count()
}

#[test]
fn instances_are_spread_and_restart_with_new_code() {
    on_all(|setup| {
        let files = [("feed.lua", FEED_SCRIPT), ("places.lua", PLACES_SCRIPT)];
        let routes = format!("{FEED}{PLACES}");
        let server = Server::serving(setup, &routes, &files);
        let mut ann = Socket::open(server.public, "/ws?user=ann&channel=news");
        for _ in 0..8 {
            assert_eq!(ann.text(), "one");
        }
        until("all instances", || count(&server, "begins  one") == 4);
        let places = get(server.public, "/places").json();
        let expected: Vec<usize> = (0..4).map(|i| i % setup.workers).collect();
        assert_eq!(places, serde_json::json!(expected));
        let running = || Metrics::scrape(server.internal).sum("veche_services_running", &[]);
        assert_eq!(running(), 4.0);
        assert_eq!(
            server.status().expect("a status")["report"]["services_running"],
            4
        );
        // A service whose configuration is unchanged keeps running.
        reload(&server, &routes, &files);
        // If its options change, the service is stopped and a new one is started.
        reload(&server, &routes.replace("one", "two"), &files);
        until("the new ones", || ann.text() == "two");
        until("all of them", || count(&server, "begins  two") == 4);
        assert_eq!(count(&server, "is told  one"), 4);
        assert_eq!(count(&server, "ends  one"), 4);
        assert_eq!(count(&server, "begins  one"), 4);
        let log = server.log();
        assert!(log.contains("app=\"feed/4\""), "{log}");
        // A service that was removed from the configuration stops.
        reload(&server, PLACES, &files);
        until("the end", || count(&server, "ends  two") == 4);
        until("none", || running() == 0.0);
        assert_eq!(
            Metrics::scrape(server.internal).sum("veche_service_restarts_total", &[]),
            0.0
        );
    });
}

#[test]
fn one_that_fails_begins_again_later_and_later() {
    let script = r#"
    local veche, service = require "veche", {}
    function service.run()
      local n = veche.counter("runs"):add()
      print("run", n)
      veche.timer.every(0.01, function() veche.counter("left"):add() end)
      if n < 4 then error("failure " .. n) end
      veche.sleep(0.1)
      print("left", veche.counter("left"):get() < 40)
      veche.sleep(1000)
    end
    return service"#;
    let once = "return { run = function() print('once') end }";
    let always = "return { run = function() require('veche').counter('always'):add() end }";
    let never = "return { run = function() error('for good') end }";
    let routes = "[[service]]\nname = \"poor\"\nscript = \"poor.lua\"\n\
        [[service]]\nname = \"once\"\nscript = \"once.lua\"\n\
        [[service]]\nname = \"again\"\nscript = \"again.lua\"\nrestart = \"always\"\n\
        [[service]]\nname = \"never\"\nscript = \"never.lua\"\nrestart = \"never\"\n";
    let files = [
        ("poor.lua", script),
        ("once.lua", once),
        ("again.lua", always),
        ("never.lua", never),
    ];
    let setup = crate::support::USUAL_ONE;
    let server = Server::serving(setup, routes, &files);
    until("the last run", || server.log().contains("run  4"));
    let log = server.log();
    for words in [
        "failure 1",
        "failed: restarting in 200 ms",
        "failed: restarting in 400 ms",
        "failed: restarting in 800 ms",
        "has finished: restarting in 200 ms",
        "once",
        "the service has finished",
        "for good",
        "the service failed",
        "poor.lua:7: failure 3",
        "stack traceback:",
    ] {
        assert!(log.contains(words), "{words}\n{log}");
    }
    until("timers of failed runs to be gone", || {
        server.log().contains("left  true")
    });
    assert_eq!(count(&server, "veche::app: once"), 1);
    assert_eq!(count(&server, "for good"), 1);
    let restarts = Metrics::scrape(server.internal).sum("veche_service_restarts_total", &[]);
    assert!(restarts >= 5.0, "{restarts}");
}

#[test]
fn an_app_that_is_taken_out_ends() {
    on_all(|setup| {
        let files = [("chat.lua", CHAT_SCRIPT), ("beats.lua", CHAT_SCRIPT)];
        let beats = "[[route]]\npath = \"/beats\"\nhandler = \"lua\"\nscript = \"beats.lua\"\n";
        let beats_script = "return { request = function() return tostring(require('veche').counter('beats'):get()) end }";
        let files = [files[0], ("beats.lua", beats_script)];
        let server = Server::serving(setup, &format!("{CHAT}{beats}"), &files);
        let mut clients: Vec<Socket> = (0..6)
            .map(|_| Socket::open(server.public, "/chat"))
            .collect();
        for client in &mut clients {
            assert_eq!(client.text(), "open");
        }
        clients[0].say("wait");
        reload(&server, beats, &files);
        let workers = setup.workers;
        for client in &mut clients {
            for _ in 0..workers {
                assert_eq!(client.text(), "bye");
            }
            assert_eq!(client.closed(), 1001);
        }
        until("app.stop everywhere", || {
            count(&server, "stopped") == workers
        });
        until("app.close of all", || {
            count(&server, "closed  1001  the application is gone") == 6
        });
        assert_eq!(get(server.public, "/chat").status, 404);
        let beats = || get(server.public, "/beats").text().to_owned();
        until("its timers to end", || {
            let before = beats();
            thread::sleep(Duration::from_millis(60));
            before == beats()
        });
        until("its coroutines to be gone", || {
            Metrics::scrape(server.internal).sum("veche_app_coroutines", &[]) == 0.0
        });
        // An app that was removed may be added again.
        reload(&server, CHAT, &[("chat.lua", CHAT_SCRIPT)]);
        let mut client = Socket::open(server.public, "/chat");
        assert_eq!(client.text(), "open");
    });
}

#[test]
fn services_are_asked_to_stop_at_a_shutdown() {
    on_all(|setup| {
        let files = [("chat.lua", CHAT_SCRIPT), ("feed.lua", FEED_SCRIPT)];
        let mut server = Server::serving(setup, &format!("{CHAT}{FEED}"), &files);
        let mut client = Socket::open(server.public, "/chat");
        assert_eq!(client.text(), "open");
        until("the services", || count(&server, "begins") == 4);
        server.signal(Signal::TERM);
        // The client receives the output of `app.stop`, and then the close.
        assert_eq!(client.text(), "bye");
        let closed = loop {
            match client.next() {
                crate::support::Seen::Text(_) => {}
                crate::support::Seen::Close(code, _) => break code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(closed, Some(1001));
        client.close(1001);
        assert_eq!(server.exit_code(), Some(0));
        // `app.stop` has run on every worker: the server waited for it.
        assert_eq!(count(&server, "stopped"), setup.workers);
        assert_eq!(count(&server, "ends  one"), 4);
    });
}

#[test]
fn a_service_ends_after_the_connections_that_it_serves() {
    let app = r#"
    local veche, app = require "veche", {}
    function app.open(conn) conn:send("open") end
    function app.close(conn)
      veche.queue("jobs"):push("at once")
      veche.sleep(0.2)
      veche.queue("jobs"):push("later")
    end
    return app"#;
    let worker = r#"
    local veche, service = require "veche", {}
    function service.run()
      print("begins")
      local jobs = veche.queue("jobs")
      repeat
        local job = jobs:pop(0.02)
        if job then print("handled", job) end
      until not job and veche.stopping()
      print("ends")
    end
    return service"#;
    let routes = "[[service]]\nname = \"worker\"\nscript = \"worker.lua\"\n\
        [[route]]\npath = \"/jobs\"\nhandler = \"lua\"\nscript = \"jobs.lua\"\n";
    on_all(|setup| {
        let mut server = Server::with(
            setup,
            &Options {
                routes,
                files: &[("jobs.lua", app), ("worker.lua", worker)],
                limits: "drain_time = \"10s\"",
                ..Options::default()
            },
        );
        let mut clients: Vec<Socket> = (0..2)
            .map(|_| Socket::open(server.public, "/jobs"))
            .collect();
        for client in &mut clients {
            assert_eq!(client.text(), "open");
        }
        until("the service", || count(&server, "begins") == 1);
        clients[1].close(1000);
        until("the first job", || count(&server, "handled  later") == 1);
        server.signal(Signal::TERM);
        assert_eq!(clients[0].closed(), 1001);
        clients[0].close(1001);
        assert_eq!(server.exit_code(), Some(0));
        let log = server.log();
        let places: Vec<_> = ["handled  at once", "handled  later", "ends"]
            .into_iter()
            .map(|words| log.rfind(words).unwrap_or_else(|| panic!("{words}\n{log}")))
            .collect();
        assert!(places.is_sorted(), "{log}");
        assert_eq!(count(&server, "handled  at once"), 2, "{log}");
        assert_eq!(count(&server, "handled  later"), 2, "{log}");
    });
}

#[test]
fn a_service_that_does_not_stop_is_ended() {
    let script = r#"
    local veche, service = require "veche", {}
    function service.run()
      print("begins")
      while true do veche.sleep(0.01) end
    end
    return service"#;
    let routes = "[[service]]\nname = \"deaf\"\nscript = \"deaf.lua\"\n";
    on_all(|setup| {
        let mut server = Server::serving(setup, routes, &[("deaf.lua", script)]);
        until("the service", || count(&server, "begins") == 1);
        server.signal(Signal::TERM);
        // The process ended by itself within `drain_time`: a killed process has another exit code.
        assert_eq!(server.exit_code(), Some(0));
        assert_eq!(
            count(&server, "the service did not stop in time: ending it"),
            1
        );
    });
}

#[test]
fn bad_ones_are_refused_before_they_run() {
    let setup = crate::support::USUAL_ONE;
    let server = Server::serving(setup, "", &[("bare.lua", "return {}")]);
    let bare = "[[service]]\nname = \"bare\"\nscript = \"bare.lua\"\n";
    server.configure(&Options {
        routes: bare,
        ..Options::default()
    });
    let words = "bare.lua: a service must return a table with a function named 'run'";
    let answer = server.ask("reload").expect("an answer");
    assert!(answer["error"].to_string().contains(words), "{answer}");
    let check = server.command(&["check"]).output().expect("it runs");
    assert!(!check.status.success());
    let output = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(output.contains(words), "{output}");
}
