//! `veche.mysql` with a real MariaDB.

use std::time::Duration;

use crate::suite;
use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Http, Setup, now, setups, until};

fn database() -> Backing {
    let backing = Backing::mariadb(1_200);
    backing.sql("create database test");
    backing
}

#[test]
fn statements_and_transactions() {
    let backing = database();
    for setup in setups().filter(|setup| setup.workers == 1) {
        let server = suite::serve(setup, "mysql.lua", &backing.url("test", "pool=10"));
        suite::run(&server);
        let metrics = Metrics::scrape(server.internal);
        let of = |name: &str| metrics.sum(name, &["client=\"mysql\""]);
        assert!(of("veche_outbound_calls_total") > 1_000.0);
        assert!(of("veche_outbound_connections") >= 1.0);
        assert!(of("veche_outbound_wait_seconds_count") > 900.0);
        assert_eq!(
            (of("veche_outbound_busy"), of("veche_outbound_waiting")),
            (0.0, 0.0)
        );
    }
}

/// While the database is down, calls fail soon; once it is back, no call gets a dead connection.
#[test]
fn a_database_that_crashes_and_returns() {
    let mut backing = database();
    let options = "pool=20&connect_timeout=2&timeout=20";
    for workers in [1, 3] {
        let setup = Setup {
            io: "epoll",
            workers,
        };
        let server = suite::serve(setup, "mysql.lua", &backing.url("test", options));
        let ask = |sql: &str| {
            let sql = sql.replace(' ', "%20");
            let mut http = Http::connect(server.public);
            let answer = http.request("GET", &format!("/suite?test=value&sql={sql}"), "", b"");
            let answer = answer.expect("an answer");
            (answer.status, answer.text().to_owned())
        };
        std::thread::scope(|scope| {
            let warm: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| ask("select sleep(0.2)")))
                .collect();
            for one in warm {
                assert_eq!(one.join().expect("an answer"), (200, "0".to_owned()));
            }
            let midway: Vec<_> = (0..10)
                .map(|_| scope.spawn(|| ask("select sleep(15)")))
                .collect();
            until("they are midway", || {
                let metrics = Metrics::scrape(server.internal);
                metrics.sum("veche_outbound_busy", &["client=\"mysql\""]) == 10.0
            });
            let began = now();
            backing.crash();
            for one in midway {
                assert_eq!(one.join().expect("an answer").0, 500);
            }
            for _ in 0..20 {
                assert_eq!(ask("select 1").0, 500);
            }
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{:?}",
                began.elapsed()
            );
        });
        assert!(
            server.log().contains("mysql: connection lost: "),
            "{}",
            server.log()
        );
        backing.start();
        for number in 0..60 {
            assert_eq!(ask(&format!("select {number}")), (200, number.to_string()));
        }
        let metrics = Metrics::scrape(server.internal);
        let errors = |kind: &str| {
            let labels = ["client=\"mysql\"", &*format!("kind=\"{kind}\"")];
            metrics.sum("veche_outbound_errors_total", &labels)
        };
        assert_eq!(
            (errors("connection_lost"), errors("unreachable")),
            (10.0, 20.0)
        );
    }
}
