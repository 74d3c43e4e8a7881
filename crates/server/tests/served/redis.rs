//! `veche.redis` with a real Redis.

use std::time::Duration;

use crate::suite;
use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Http, now, setups, until};

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

/// Who asks while it is away is told at once; when it is back, nobody notices that it was away.
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
