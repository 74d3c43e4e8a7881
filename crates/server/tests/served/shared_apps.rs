//! State shared by workers and applications on the real server: queues and custom metrics.

use std::time::Duration;

use crate::support::metrics::Metrics;
use crate::support::{Http, Options, Seen, Server, Setup, Socket, get, now, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/give/*\"
handler = \"lua\"
script = \"give.lua\"
[[route]]
path = \"/take/*\"
handler = \"lua\"
script = \"take.lua\"";

const GIVE: &str = r#"
local veche = require "veche"
local app = {}
local orders = veche.metrics.counter("orders_total", "Orders taken", { "kind" })
local sizes = veche.metrics.histogram("order_size", "How large orders are", { 1, 10 })
local level = veche.metrics.gauge("level", "How it stands")

function app.message(conn, data)
  local jobs = veche.queue("jobs", { capacity = 10 })
  local from, to = data:match("^(%d+) (%d+)$")
  for i = from, to do jobs:push { number = i } end
  conn:send("given")
end

function app.request(req)
  orders:add(tonumber(req.query.by or 1), req.query.kind)
  sizes:observe(tonumber(req.query.by or 1))
  level:set(-0.5)
  return "counted"
end

return app
"#;

const TAKE: &str = r#"
local veche = require "veche"
local app = {}
local jobs = veche.queue("jobs", { capacity = 10 })

function app.open(conn)
  while conn.is_open do
    local job = jobs:pop(0.2)
    if job then conn:send(tostring(job.number)) end
  end
end

function app.request(req)
  local job, why = jobs:pop(tonumber(req.query.wait))
  return job and tostring(job.number) or why
end

return app
"#;

fn serve(setup: Setup) -> Server {
    Server::serving(setup, ROUTES, &[("give.lua", GIVE), ("take.lua", TAKE)])
}

#[test]
fn a_queue_leads_from_one_application_to_another_over_all_workers() {
    on_all(|setup| {
        let server = serve(setup);
        let mut takers: Vec<Socket> = (0..6)
            .map(|_| Socket::open(server.public, "/take/x"))
            .collect();
        let mut givers: Vec<Socket> = (0..4)
            .map(|_| Socket::open(server.public, "/give/x"))
            .collect();
        for (index, giver) in givers.iter_mut().enumerate() {
            giver.say(&format!("{} {}", index * 100 + 1, index * 100 + 100));
        }
        // Each value arrives once, although the queue holds only ten values at a time.
        for giver in &mut givers {
            assert_eq!(giver.text(), "given");
        }
        let mut seen: Vec<u32> = Vec::new();
        until("all of them", || {
            for taker in &mut takers {
                while let Seen::Text(text) = taker.within(Duration::from_millis(1)) {
                    seen.push(text.parse().expect("a number"));
                }
            }
            seen.len() >= 400
        });
        seen.sort_unstable();
        assert_eq!(seen, (1..=400).collect::<Vec<u32>>());
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn queue_waiters_are_woken_on_any_worker() {
    on_all(|setup| {
        let server = serve(setup);
        assert_eq!(get(server.public, "/take/x?wait=0.05").text(), "timeout");
        for round in 0..10 {
            let mut taker = Http::connect(server.public);
            taker
                .raw(b"GET /take/x?wait=20 HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("sent");
            std::thread::sleep(Duration::from_millis(20));
            let mut giver = Socket::open(server.public, "/give/x");
            let began = now();
            giver.say(&format!("{round} {round}"));
            assert_eq!(
                taker.response().expect("an answer").text(),
                round.to_string()
            );
            assert!(began.elapsed() < Duration::from_secs(5));
        }
    });
}

#[test]
fn applications_have_metrics_of_their_own() {
    on_all(|setup| {
        let server = serve(setup);
        for _ in 0..10 {
            assert_eq!(
                get(server.public, "/give/x?kind=book&by=2").text(),
                "counted"
            );
        }
        let strange = get(server.public, "/give/x?kind=%22%0A%5C&by=100");
        assert_eq!(strange.text(), "counted");
        let page = get(server.internal, "/metrics");
        for line in [
            "# HELP orders_total Orders taken",
            "# TYPE orders_total counter",
            "orders_total{kind=\"book\"} 20.0",
            "orders_total{kind=\"\\\"\\n\\\\\"} 100.0",
            "order_size_bucket{le=\"1.0\"} 0",
            "order_size_bucket{le=\"10.0\"} 10",
            "order_size_bucket{le=\"+Inf\"} 11",
            "order_size_sum 120.0",
            "order_size_count 11",
            "level -0.5",
        ] {
            let found = page.text().lines().any(|one| one == line);
            assert!(found, "{line}\nin\n{}", page.text());
        }
        // Custom counters survive a reload.
        std::fs::write(
            server.folder.join("give.lua"),
            GIVE.replace("counted", "again"),
        )
        .expect("written");
        let received = server.ask("reload").expect("an answer");
        assert_eq!(received["ok"], true, "{received}");
        until("the new code", || {
            get(server.public, "/give/x?kind=book&by=0").text() == "again"
        });
        let page = get(server.internal, "/metrics");
        assert!(page.text().contains("orders_total{kind=\"book\"} 20.0\n"));
        Metrics::scrape(server.internal);
    });
}

const REACH: &str = r#"
local veche = require "veche"
local app = {}

function app.open(conn) conn:send(conn.id) end

function app.message(conn, data)
  local word, id, text = data:match("^(%w+) (%S+) ?(.*)$")
  local other = veche.connection(id)
  if not other then return conn:send("nobody") end
  if word == "send" then conn:send(tostring(other:send(text))) end
  if word == "close" then other:close(4001, text) end
  if word == "own" then conn:send(tostring(other == conn) .. " " .. tostring(other.is_open)) end
  if word == "flood" then
    local sent, full = 0, 0
    for i = 1, 3000 do
      local ok, why = other:send(("x"):rep(10000))
      sent = sent + 1
      if ok == false then
        full = full + 1
        other:drain()
      end
    end
    other:send("sent " .. sent .. " " .. tostring(full > 0))
  end
end

return app
"#;

fn reach(setup: Setup) -> Server {
    Server::with(
        setup,
        &Options {
            routes: "
[[route]]
path = \"/reach\"
handler = \"lua\"
script = \"reach.lua\"",
            files: &[("reach.lua", REACH)],
            ..Options::default()
        },
    )
}

#[test]
fn connections_are_reached_by_their_ids_from_every_worker() {
    on_all(|setup| {
        let server = reach(setup);
        let mut all: Vec<Socket> = (0..8)
            .map(|_| Socket::open(server.public, "/reach"))
            .collect();
        let ids: Vec<String> = all.iter_mut().map(Socket::text).collect();
        for from in 0..8 {
            for to in (0..8).filter(|to| *to != from) {
                for number in 0..10 {
                    all[from].say(&format!("send {} {number}", ids[to]));
                }
                for _ in 0..10 {
                    assert_eq!(all[from].text(), "true");
                }
                for number in 0..10 {
                    assert_eq!(all[to].text(), number.to_string());
                }
            }
        }
        let own = ids[0].clone();
        all[0].say(&format!("own {own}"));
        assert_eq!(all[0].text(), "true true");
        // Sending to a closed connection, or to a connection that never existed, fails or has no effect.
        all[0].say(&format!("close {} bye", ids[7]));
        assert_eq!(all[7].closed(), 4001);
        for id in ["0.1000.5", "60000.0.0", &ids[7]] {
            all[0].say(&format!("send {id} x"));
            let message = all[0].text();
            assert!(
                ["true", "nobody", "nil"].contains(&message.as_str()),
                "{message}"
            );
        }
        for id in ["x", "0.0", "0.0.0.0", "00.0.0", "-1.0.0", "0.0.99999999999"] {
            all[0].say(&format!("send {id} x"));
            assert_eq!(all[0].text(), "nobody", "{id}");
        }
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

/// An application whose clients choose their user names.
const USERS: &str = r#"
local veche = require "veche"
local app = {}

function app.handshake(req) return { user = req.query.user } end

function app.open(conn) conn:send(conn.id) end

function app.message(conn, data)
  local word, user, limit = data:match("^(%w+) ?(%S*) ?(%S*)$")
  if word == "ids" then
    local ids = {}
    for _, other in ipairs(veche.connections { user = user, limit = tonumber(limit) }) do ids[#ids + 1] = other.id end
    conn:send(table.concat(ids, " "))
  elseif word == "say" then
    for _, other in ipairs(veche.connections { user = user }) do other:send("to " .. user) end
  elseif word == "end" then
    for _, other in ipairs(veche.connections { user = user }) do other:close(4001, "bye") end
    conn:send("ended")
  elseif word == "stop" then
    local task = veche.spawn(function() return veche.connections { user = user } end)
    veche.sleep(0)
    task:cancel()
    conn:send("stopped")
  elseif word == "bad" then
    for _, options in ipairs { {}, { user = 1 }, { user = "" }, { user = "\255" }, { user = "a", limit = 0 },
      { user = "a", limit = 1.5 }, { user = "a", of = 1 }, { "a" } } do
      local ok, why = pcall(veche.connections, options)
      conn:send(tostring(ok) .. " " .. tostring(why))
    end
    local ok, why = pcall(veche.connections)
    conn:send(tostring(ok) .. " " .. tostring(why))
    ok, why = pcall(table.sort, { 1, 2 }, function() return veche.connections { user = "ann" } end)
    conn:send(tostring(why))
  end
end

return app
"#;

#[test]
fn the_connections_of_a_user_are_found_on_all_workers() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                routes: "
[[route]]
path = \"/users\"
handler = \"lua\"
script = \"users.lua\"

[[route]]
path = \"/others\"
handler = \"lua\"
app = \"others\"

[[app]]
name = \"others\"
script = \"users.lua\"",
                files: &[("users.lua", USERS)],
                ..Options::default()
            },
        );
        let open = |path: &str, count: usize| -> Vec<(Socket, String)> {
            let sockets = (0..count).map(|_| Socket::open(server.public, path));
            let with_ids = sockets.map(|mut socket| {
                let id = socket.text();
                (socket, id)
            });
            with_ids.collect()
        };
        let mut anns = open("/users?user=ann", 6);
        let mut bobs = open("/users?user=bob", 2);
        let mut others = open("/others?user=ann", 3);
        let ask = |socket: &mut Socket, what: &str| -> Vec<String> {
            socket.say(what);
            let mut ids: Vec<String> = socket
                .text()
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            ids.sort();
            ids
        };
        let ids_of = |all: &[(Socket, String)]| {
            let mut ids: Vec<String> = all.iter().map(|(_, id)| id.clone()).collect();
            ids.sort();
            ids
        };
        let all_of_ann = ids_of(&anns);
        for (socket, _) in anns.iter_mut().chain(&mut bobs) {
            assert_eq!(ask(socket, "ids ann"), all_of_ann, "from every worker");
            assert_eq!(ask(socket, "ids nobody"), Vec::<String>::new());
            assert_eq!(ask(socket, "ids ann 2").len(), 2);
        }
        let of_others = ids_of(&others);
        assert_eq!(
            ask(&mut others[0].0, "ids ann"),
            of_others,
            "of this application alone"
        );
        // The script can send to the connections that it found by their user.
        bobs[0].0.say("say ann");
        for (socket, _) in &mut anns {
            assert_eq!(socket.text(), "to ann");
        }
        // Connections that are closed are not found.
        let (mut gone, id) = anns.remove(0);
        gone.close(1000);
        assert_eq!(gone.closed(), 1000);
        until("she is gone", || {
            !ask(&mut bobs[0].0, "ids ann").contains(&id)
        });
        assert_eq!(ask(&mut bobs[0].0, "ids ann"), ids_of(&anns));
        bobs[0].0.say("stop ann");
        assert_eq!(bobs[0].0.text(), "stopped");
        bobs[0].0.say("bad");
        for words in [
            "bad option user",
            "bad option user",
            "bad option user",
            "bad option user",
            "bad option limit",
            "bad option limit",
            "there is no option 'of'",
            "there is no option '1'",
            "bad argument #1 to 'connections': a table expected",
            "can't wait here",
        ] {
            let message = bobs[0].0.text();
            assert!(message.contains(words), "{message}: {words}");
        }
        bobs[0].0.say("end ann");
        assert_eq!(bobs[0].0.text(), "ended");
        for (socket, _) in &mut anns {
            assert_eq!(socket.closed(), 4001);
        }
        until("all are gone", || ask(&mut bobs[0].0, "ids ann").is_empty());
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn a_script_sees_a_slow_client_before_it_loses_it() {
    on_all(|setup| {
        let server = reach(setup);
        let mut slow = Socket::open(server.public, "/reach");
        let id = slow.text();
        slow.say(&format!("flood {id}"));
        std::thread::sleep(Duration::from_millis(100));
        let mut bytes = 0;
        let last = loop {
            let text = slow.text();
            if text.starts_with("sent") {
                break text;
            }
            bytes += text.len();
        };
        assert_eq!((bytes, last.as_str()), (30_000_000, "sent 3000 true"));
    });
}
