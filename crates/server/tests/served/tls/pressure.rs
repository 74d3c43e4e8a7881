//! Tests TLS sessions that end for reasons outside of TLS.

use std::thread;

use rustix::process::Signal;
use serde_json::json;

use super::TlsFixture;
use crate::support::{Options, call, on_all, until};

/// A drain sends the close code inside TLS, and then close_notify.
#[test]
fn a_drain_ends_them_in_good_order() {
    on_all(|setup| {
        let options = Options {
            limits: "drain_time = \"4s\"",
            ..Options::default()
        };
        let mut fixture = TlsFixture::start(setup, "", &options);
        let mut clients: Vec<_> = (0..8).map(|_| fixture.open()).collect();
        for client in &mut clients {
            client.upgrade("/echo").expect("it opens");
            client.echoes(b"there");
        }
        fixture.server.signal(Signal::TERM);
        // Each client answers at once: the server closes the connections one after the other, and waits for none of them
        // for long.
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    let end = client.hear().expect_err("the server goes away").to_string();
                    assert!(end.contains("1001"), "{end}");
                    client.leave();
                });
            }
        });
        assert_eq!(fixture.server.exit_code(), Some(0));
    });
}

/// Encrypted output counts against the outbox limit. Only the client that exceeds the limit is
/// closed.
#[test]
fn a_client_that_does_not_read_is_closed_alone() {
    on_all(|setup| {
        let limits = "outbox_bytes = \"256KiB\"\nwrite_timeout = \"1s\"";
        let options = Options {
            limits,
            ..Options::default()
        };
        let fixture = TlsFixture::start(setup, "", &options);
        let mut deaf = fixture.open();
        deaf.upgrade("/ws?user=deaf&channel=news")
            .expect("it opens");
        let mut other = fixture.open();
        other.upgrade("/echo").expect("it opens");
        let data = "x".repeat(60_000);
        until("the one that does not read to be closed", || {
            call(
                fixture.server.internal,
                "publish",
                &json!({"channel": "news", "data": data}),
            );
            fixture.count("veche_slow_consumers_total", "") > 0
        });
        other.echoes(b"still there");
        fixture.server.await_connections(1);
        drop(deaf);
    });
}
