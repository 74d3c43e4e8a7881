//! Tests that the server's metrics add up.

use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::{Lines, Server, Socket, get, on_all};

#[test]
fn the_counters_add_up_after_a_known_day() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut sockets: Vec<Socket> = (0..4)
            .map(|i| Socket::open(server.public, &format!("/ws?user=u{}&channel=news", i % 2)))
            .collect();
        let mut echo = Socket::open(server.public, "/echo");
        assert!(Socket::try_open(server.public, "/nowhere").is_err());
        assert!(Socket::try_open(server.public, "/ws").is_err());
        for _ in 0..10 {
            echo.say("12345");
            assert_eq!(echo.text(), "12345");
        }
        let mut lines = Lines::connect(server.push);
        for _ in 0..5 {
            assert_eq!(
                lines.ask(&json!({"user": "u0", "data": "abc", "ack": true}))["result"]["handed"],
                2
            );
            assert_eq!(
                lines.ask(&json!({"channel": "news", "data": "abc", "ack": true}))["result"]["handed"],
                4
            );
        }
        lines.raw(b"bad\n");
        lines.answer();
        for (i, socket) in sockets.iter_mut().enumerate() {
            for _ in 0..if i % 2 == 0 { 10 } else { 5 } {
                assert_eq!(socket.text(), "abc");
            }
        }
        let mut broken = Socket::open(server.public, "/echo");
        broken.raw(&[0x83, 0x80, 0, 0, 0, 0]);
        assert_eq!(broken.closed(), 1002);
        lines.finish();
        drop(broken);
        // Five sessions remain open.
        server.await_connections(5);

        let metrics = Metrics::scrape(server.internal);
        let sum = |name: &str, labels: &[&str]| metrics.sum(name, labels);
        assert_eq!(sum("veche_sessions", &[]), 5.0);
        assert_eq!(sum("veche_connections", &[]), 6.0, "the scrape is one");
        assert_eq!(sum("veche_handshakes_total", &["outcome=\"opened\""]), 6.0);
        assert_eq!(
            sum("veche_handshakes_total", &[]),
            7.0,
            "to a path of files is no handshake"
        );
        // The ten connections include two refused handshakes and six opened sessions; the scrape's
        // own connection is not counted yet.
        assert_eq!(sum("veche_connections_accepted_total", &[]), 10.0);
        assert_eq!(sum("veche_messages_total", &["direction=\"in\""]), 10.0);
        assert_eq!(
            sum("veche_messages_total", &["direction=\"out\""]),
            10.0 + 30.0
        );
        assert_eq!(
            sum("veche_message_bytes_total", &["direction=\"in\""]),
            50.0
        );
        assert_eq!(
            sum("veche_message_bytes_total", &["direction=\"out\""]),
            50.0 + 90.0
        );
        assert_eq!(sum("veche_pushes_total", &[]), 10.0);
        assert_eq!(sum("veche_pushes_refused_total", &[]), 1.0);
        assert_eq!(sum("veche_push_fan_out_total", &[]), 30.0);
        assert_eq!(sum("veche_protocol_errors_total", &[]), 1.0);
        assert_eq!(sum("veche_slow_consumers_total", &[]), 0.0);
        assert_eq!(sum("veche_http_answers_total", &["4xx"]), 2.0);
        assert_eq!(
            sum("veche_subscriptions", &[]),
            8.0,
            "a user and a channel each"
        );
        let count = sum("veche_turn_seconds_count", &[]);
        assert!(count > 0.0);
        drop((sockets, echo));
        server.await_connections(0);
        let metrics = Metrics::scrape(server.internal);
        assert_eq!(metrics.sum("veche_sessions", &[]), 0.0);
        assert_eq!(metrics.sum("veche_connections", &[]), 1.0);
    });
}

/// OpenMetrics requires that a histogram has an infinite bucket whose value equals the count.
#[test]
fn histograms_end_in_infinity() {
    on_all(|setup| {
        let server = Server::start(setup);
        let metrics = Metrics::scrape(server.internal);
        let everything = metrics.sum("veche_turn_seconds_bucket", &["le=\"+Inf\""]);
        assert_eq!(everything, metrics.sum("veche_turn_seconds_count", &[]));
        assert!(everything > 0.0);
    });
}

#[test]
fn health_and_files_are_where_they_belong() {
    on_all(|setup| {
        let server = Server::start(setup);
        let health = get(server.internal, "/health");
        assert_eq!((health.status, health.text()), (200, "ok\n"));
        assert_eq!(
            get(server.public, "/health").status,
            404,
            "not for the public"
        );
        assert_eq!(get(server.public, "/metrics").status, 404);
        assert_eq!(get(server.public, "/api/info").status, 404);
        let page = get(server.public, "/");
        assert_eq!((page.status, page.text()), (200, "<p>hello</p>"));
        assert!(
            page.header("content-type")
                .is_some_and(|kind| kind.starts_with("text/html"))
        );
    });
}
