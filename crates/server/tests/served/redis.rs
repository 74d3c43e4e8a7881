//! `veche.redis` with a real Redis.

use std::time::Duration;

use crate::suite;
use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Http, Server, get, now, setups, until};

#[test]
fn commands_and_subscriptions() {
    let backing = Backing::redis();
    for setup in setups().filter(|setup| setup.workers == 1) {
        let server = suite::serve(setup, "redis.lua", &backing.url("0", ""));
        suite::run(&server);
        let metrics = Metrics::scrape(server.internal);
        let calls = metrics.sum("veche_outbound_calls_total", &["client=\"redis\""]);
        assert!(calls > 2_000.0, "{calls}");
    }
}

/// Commands while Redis is down fail at once; when it is back, they succeed immediately.
#[test]
fn a_redis_that_crashes_and_returns() {
    let mut backing = Backing::redis();
    for setup in setups().filter(|setup| setup.io == "epoll") {
        let server = suite::serve(setup, "redis.lua", &backing.url("0", ""));
        let mut connections: Vec<Http> = (0..6).map(|_| Http::connect(server.public)).collect();
        let mut status = move |number: usize| {
            let http = &mut connections[number % 6];
            let answer = http.request("GET", "/suite?test=get&key=none", "", b"");
            answer.expect("an answer").status
        };
        for number in 0..12 {
            assert_eq!(status(number), 200);
        }
        backing.crash();
        let began = now();
        for number in 0..300 {
            assert_eq!(status(number), 500);
        }
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        assert!(
            server.log().contains("redis: not connected: "),
            "{}",
            server.log()
        );
        backing.start();
        until("it is found again", || status(0) == 200);
        for number in 0..60 {
            assert_eq!(status(number), 200);
        }
        // A restart of Redis between two commands causes no error.
        backing.crash();
        backing.start();
        std::thread::sleep(Duration::from_millis(50));
        for number in 0..60 {
            assert_eq!(status(number), 200);
        }
    }
}

/// The script calls `receive` with a timeout that is shorter than the delays between attempts to reconnect. The
/// subscription must be restored nevertheless.
#[test]
fn a_subscription_is_restored_with_any_read_timeout() {
    let mut backing = Backing::redis();
    let script = r#"
        local veche = require "veche"
        local app, redis, heard, failed = {}, veche.redis.connect(veche.config.url), {}, 0
        function app.start()
          veche.spawn(function()
            local news = redis:subscribe("news")
            while true do
              local ok, message = pcall(news.receive, news, 0.02)
              if not ok then failed = failed + 1 elseif message then heard[message.data] = true end
            end
          end)
        end
        function app.request(req)
          if not req.query.text then return tostring(failed) end
          local sent = pcall(redis.publish, redis, "news", req.query.text)
          return sent and heard[req.query.text] and "heard" or "not heard"
        end
        return app"#;
    let setup = setups().find(|setup| setup.workers == 1 && setup.io == "epoll");
    let routes = format!(
        "[[route]]\npath = \"/news\"\nhandler = \"lua\"\nscript = \"app.lua\"\noptions = {{ url = \"{}\" }}\n",
        backing.url("0", "")
    );
    let server = Server::serving(
        setup.expect("such a setup"),
        &routes,
        &[("app.lua", script)],
    );
    let ask = |path: &str| get(server.public, path).text().to_owned();
    until("the first message", || ask("/news?text=one") == "heard");
    for text in ["two", "three"] {
        backing.crash();
        until("the loss to be told", || ask("/news") != "0");
        // The outage is long enough for several attempts to reconnect.
        std::thread::sleep(Duration::from_secs(1));
        backing.start();
        until("a message after the outage", || {
            ask(&format!("/news?text={text}")) == "heard"
        });
    }
}
