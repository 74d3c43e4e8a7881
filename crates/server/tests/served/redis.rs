//! `veche.redis` with a real Redis.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Http, Options, SETUPS, Server, Setup, get, now, until};

/// A server whose application uses that Redis.
fn serve(setup: Setup, url: &str) -> Server {
    let routes = format!(
        "[[route]]\npath = \"/redis\"\nhandler = \"lua\"\nscript = \"app.lua\"\noptions = {{ url = \"{url}\" }}\n"
    );
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(here.join(path)).expect("a script");
    let (app, check) = (
        read("tests/served/redis.lua"),
        read("../script/tests/support/check.lua"),
    );
    Server::with(
        setup,
        &Options {
            routes: &routes,
            files: &[("app.lua", &app), ("check.lua", &check)],
            ..Options::default()
        },
    )
}

#[test]
fn commands_and_subscriptions() {
    let backing = Backing::redis();
    for setup in SETUPS.into_iter().filter(|setup| setup.workers == 1) {
        let server = serve(setup, &backing.url("0", ""));
        let names = get(server.public, "/redis").json();
        let names = names.as_array().expect("a list");
        assert!(names.len() > 10, "{names:?}");
        let mut failed = Vec::new();
        for name in names {
            let name = name.as_str().expect("a name");
            let began = now();
            let answer = get(server.public, &format!("/redis?test={name}"));
            eprintln!(
                "{} {name}: {} in {:?}",
                setup.io,
                answer.status,
                began.elapsed()
            );
            if answer.status != 200 {
                failed.push(format!("{name}: {}", answer.text()));
            }
        }
        assert!(failed.is_empty(), "{}\n{}", failed.join("\n"), server.log());
        let metrics = Metrics::scrape(server.internal);
        let calls = metrics.sum("veche_outbound_calls_total", &["client=\"redis\""]);
        assert!(calls > 2_000.0, "{calls}");
    }
}

/// Who asks while it is away is told at once; when it is back, nobody notices that it was away.
#[test]
fn a_redis_that_crashes_and_returns() {
    let mut backing = Backing::redis();
    for setup in SETUPS.into_iter().filter(|setup| setup.io == "epoll") {
        let server = serve(setup, &backing.url("0", ""));
        let mut connections: Vec<Http> = (0..6).map(|_| Http::connect(server.public)).collect();
        let mut status = move |number: usize| {
            let http = &mut connections[number % 6];
            let answer = http.request("GET", "/redis?test=get&key=none", "", b"");
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
            server.log().contains("redis: connection failed or lost"),
            "{}",
            server.log()
        );
        backing.start();
        until("it is found again", || status(0) == 200);
        for number in 0..60 {
            assert_eq!(status(number), 200);
        }
        // A restart that nobody has noticed yet is no error either.
        backing.crash();
        backing.start();
        std::thread::sleep(Duration::from_millis(50));
        for number in 0..60 {
            assert_eq!(status(number), 200);
        }
    }
}
