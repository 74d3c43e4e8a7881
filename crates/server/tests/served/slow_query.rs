//! Tests the slow query example: a thousand concurrent requests on one worker, each waiting a second for a real
//! database.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Http, Server, Setup, now, setups};

const REQUESTS: usize = 1_000;

/// Serves the example with `backing` as its database.
fn example(setup: Setup, backing: &Backing, options: &str) -> Server {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slow-query");
    let folder = std::env::temp_dir().join(format!(
        "veche-slow-query-{}-{}",
        std::process::id(),
        setup.io
    ));
    fs::create_dir_all(&folder).expect("a folder");
    fs::copy(example.join("app.lua"), folder.join("app.lua")).expect("copied");
    let config = fs::read_to_string(example.join("veche.toml")).expect("a config");
    let own = backing.url("", options);
    let theirs = "mysql://root@127.0.0.1:3306/?pool=100&wait_timeout=60";
    assert!(config.contains(theirs));
    fs::write(folder.join("veche.toml"), config.replace(theirs, &own)).expect("written");
    let server = Server::copy_of(setup, &folder);
    let _ = fs::remove_dir_all(&folder);
    server
}

/// Sends all requests at once; returns the time until each has a correct response.
fn ask(server: &Server) -> Duration {
    let mut clients: Vec<Http> = (0..REQUESTS)
        .map(|_| Http::connect(server.public))
        .collect();
    let began = now();
    for client in &mut clients {
        client
            .raw(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("sent");
    }
    for client in &mut clients {
        let answer = client.response().expect("an answer");
        assert_eq!(answer.status, 200, "{}", server.log());
        assert_eq!(answer.text(), "slept, and the database says 0\n");
    }
    began.elapsed()
}

#[test]
fn a_thousand_requests_wait_for_the_database_at_once() {
    let backing = Backing::mariadb(1_200);
    for setup in setups().filter(|setup| setup.workers == 1) {
        let server = example(setup, &backing, "pool=1000&wait_timeout=60&timeout=60");
        ask(&server);
        let warm = ask(&server);
        let io = setup.io;
        eprintln!("{io}: {REQUESTS} with a pool of 1,000 in {warm:?}");
        // The limit is far above the time on an idle machine, and far below the time of sequential
        // requests.
        assert!(warm < Duration::from_secs(8), "{warm:?}");
        let metrics = Metrics::scrape(server.internal);
        let of = |name: &str| metrics.sum(name, &["client=\"mysql\""]);
        assert_eq!(of("veche_outbound_connections"), 1_000.0);
        assert_eq!(of("veche_outbound_errors_total"), 0.0);
    }
}

#[test]
fn a_pool_of_a_hundred_lets_them_wait_and_none_fails() {
    let backing = Backing::mariadb(150);
    let setup = Setup {
        io: "epoll",
        workers: 1,
    };
    let server = example(setup, &backing, "pool=100&wait_timeout=60&timeout=60");
    let took = ask(&server);
    eprintln!("{REQUESTS} with a pool of 100 in {took:?}");
    assert!(took >= Duration::from_millis(9_900), "{took:?}");
    assert!(took < Duration::from_secs(40), "{took:?}");
    let metrics = Metrics::scrape(server.internal);
    let of = |name: &str| metrics.sum(name, &["client=\"mysql\""]);
    assert_eq!(of("veche_outbound_connections"), 100.0);
    assert_eq!(of("veche_outbound_errors_total"), 0.0);
    assert_eq!(of("veche_outbound_wait_seconds_count"), 900.0);
    // With a pool of 100, the second hundred requests wait one second, and so on up to nine seconds
    // for the last hundred.
    assert!(of("veche_outbound_wait_seconds_sum") >= 4_400.0);
    assert_eq!(of("veche_outbound_waiting"), 0.0);
}
