//! Tests the back end's API over HTTP and over its WebSocket.

use crate::world::wire::{
    ServerMessage, close, get, handshake, message, post, response, responses, server_messages,
    statuses, text, texts,
};
use crate::world::{INTERNAL, Options, PUBLIC, World};
use veche_proto::websocket::MessageKind;

#[test]
fn results_are_as_documented() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let mut anns: Vec<_> = (0..3)
        .map(|worker| world.open(worker, "/ws?user=ann&channel=news"))
        .collect();
    for worker in 0..3 {
        world.open(worker, "/ws?user=bob&channel=room:1");
    }
    let table: &[(&str, &str, &str)] = &[
        (
            "/api/push",
            r#"{"user":"ann","data":"x"}"#,
            r#"{"result":{"handed":3}}"#,
        ),
        (
            "/api/push",
            r#"{"user":"nobody","message":{}}"#,
            r#"{"result":{"handed":0,"note":"the user has no connection"}}"#,
        ),
        (
            "/api/push",
            r#"{"users":["ann","bob"],"binary":"AA=="}"#,
            r#"{"result":{"handed":6}}"#,
        ),
        (
            "/api/publish",
            r#"{"channel":"news","data":1}"#,
            r#"{"result":{"handed":3}}"#,
        ),
        (
            "/api/broadcast",
            r#"{"channels":["news","none","room:1"],"data":1}"#,
            r#"{"result":{"responses":[{"result":{"handed":3}},{"result":{"handed":0}},{"result":{"handed":3}}]}}"#,
        ),
        (
            "/api/info",
            "{}",
            r#"{"result":{"nodes":[{"name":"here"}]}}"#,
        ),
        (
            "/api/push",
            r#"{"channel":"news","data":1}"#,
            r#""code":107,"message":"this call requires \"user\" or \"users\""#,
        ),
        (
            "/api/publish",
            r#"{"user":"ann","data":1}"#,
            r#""message":"this call requires \"channel\""#,
        ),
        (
            "/api/broadcast",
            r#"{"channel":"news","data":1}"#,
            r#""message":"this call requires \"channels\""#,
        ),
        (
            "/api/disconnect",
            r#"{"channel":"news"}"#,
            r#""message":"bad JSON at column 10: unknown field `channel`"#,
        ),
        (
            "/api/push",
            r#"{"user":"ann"}"#,
            r#""code":107,"message":"\"data\""#,
        ),
        (
            "/api/push",
            "",
            r#""code":107,"message":"expected a JSON object"#,
        ),
        (
            "/api/nonsense",
            "{}",
            r#"{"error":{"code":104,"message":"method not found"}}"#,
        ),
        (
            "/api/disconnect",
            r#"{"user":"ann"}"#,
            r#"{"result":{"disconnected":3}}"#,
        ),
        (
            "/api/disconnect",
            r#"{"user":"nobody"}"#,
            r#"{"result":{"disconnected":0}}"#,
        ),
    ];
    for worker in [0, 1, 2, 0] {
        // All requests of a round use one kept-alive connection. Clients that the previous round has disconnected
        // connect again.
        for (worker, ann) in anns.iter_mut().enumerate() {
            world.reset(*ann);
            *ann = world.open(worker, "/ws?user=ann&channel=news");
        }
        let caller = world.connect(worker, INTERNAL);
        for (target, body, expected) in table {
            let answer = responses(&world.ask(caller, post(target, body)));
            assert_eq!(
                (answer.len(), answer[0].status),
                (1, 200),
                "{target} {body}"
            );
            assert_eq!(answer[0].header("content-type"), Some("application/json"));
            assert!(
                answer[0].body.contains(expected),
                "{target} {body}: {}",
                answer[0].body
            );
            assert!(serde_json::from_str::<serde_json::Value>(&answer[0].body).is_ok());
        }
    }
}

#[test]
fn a_disconnect_with_its_reason_reaches_every_worker() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let peers: Vec<_> = (0..6).map(|n| world.open(n % 3, "/ws?user=ann")).collect();
    let other = world.open(0, "/ws?user=bob");
    let caller = world.connect(0, INTERNAL);
    let answer = responses(&world.ask(caller, post("/api/disconnect", r#"{"user":"ann"}"#)));
    assert_eq!(answer[0].body, r#"{"result":{"disconnected":6}}"#);
    for peer in peers {
        let got = server_messages(&world.take(peer));
        assert_eq!(
            got,
            [ServerMessage::Close(
                Some(3503),
                "disconnected by the back end".into()
            )]
        );
        world.ask(peer, close(Some(3503), ""));
        assert!(!world.is_open(peer));
    }
    assert_eq!(world.take(other), b"");
    assert!(world.is_open(other));
}

#[test]
fn keys_open_the_api_and_nothing_else_does() {
    let body = r#"{"user":"a","data":1}"#;
    let call = |headers: &str| {
        format!(
            "POST /api/push HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
    };
    let table: &[(&[&str], &str, u16)] = &[
        (&["secret", "other"], "X-API-Key: secret\r\n", 200),
        (&["secret", "other"], "X-API-Key: other\r\n", 200),
        (
            &["secret", "other"],
            "X-API-Key: secret\r\nOrigin: http://a\r\n",
            200,
        ),
        (&["secret", "other"], "X-API-Key: secre\r\n", 401),
        (&["secret", "other"], "X-API-Key: secrets\r\n", 401),
        (&["secret", "other"], "X-API-Key: \r\n", 401),
        (&["secret", "other"], "", 401),
        (&[], "", 200),
        (&[], "X-API-Key: anything\r\n", 200),
        (&[], "Origin: http://a\r\n", 401),
        (&[], "Sec-Fetch-Site: same-origin\r\n", 401),
        (&[], "Sec-Fetch-Site: none\r\n", 401),
    ];
    for (keys, headers, status) in table {
        let mut world = World::new(Options {
            api_keys: keys.to_vec(),
            ..Options::default()
        });
        let caller = world.connect(0, INTERNAL);
        let answer = responses(&world.ask(caller, call(headers) + &get("/health")));
        assert_eq!(
            (answer[0].status, answer[1].status),
            (*status, 200),
            "{keys:?} {headers}"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&answer[0].body).is_ok());
        // A WebSocket handshake with these headers has the same result as the request, except that `Origin` is refused
        // with 403: it differs from the host of the handshake.
        let caller = world.connect(0, INTERNAL);
        let answer = world.ask(caller, handshake("/api/socket", headers));
        let expected = match (*status, headers.contains("Origin")) {
            (200, false) => 101,
            (200, true) => 403,
            (status, true) => status.max(403),
            (status, false) => status,
        };
        assert_eq!(statuses(&answer), [expected], "{keys:?} {headers}");
    }
}

#[test]
fn the_apis_socket_answers_in_order_by_id() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let (here, far) = (world.user_at(0), world.user_at(1));
    let ann = world.open(1, &format!("/ws?user={far}"));
    let caller = world.open_on(0, INTERNAL, "/api/socket");
    let frames = [
        text(&format!(r#"{{"id":1,"user":"{far}","data":"one"}}"#)),
        text(&format!(r#"{{"id":"two","user":"{here}","data":2}}"#)),
        text("bad"),
        message(MessageKind::Binary, b"{}"),
        text(r#"{"id":5,"user":"","data":5}"#),
        text(&format!(r#"{{"users":["{here}","{far}"],"data":"six"}}"#)),
    ];
    let mut answers = texts(&world.ask(caller, frames.concat()));
    assert_eq!(answers.remove(0), r#"{"id":1,"result":{"handed":1}}"#);
    assert_eq!(
        answers.remove(0),
        r#"{"id":"two","result":{"handed":0,"note":"the user has no connection"}}"#
    );
    assert!(
        answers
            .remove(0)
            .starts_with(r#"{"error":{"code":107,"message":"expected a JSON object"#)
    );
    assert!(answers.remove(0).contains("text message"));
    assert!(
        answers
            .remove(0)
            .starts_with(r#"{"id":5,"error":{"code":107,"message":"bad user"#)
    );
    assert_eq!(answers, [r#"{"result":{"handed":1}}"#]);
    assert_eq!(texts(&world.take(ann)), ["one", "six"]);
    assert!(world.is_open(caller));
}

#[test]
fn more_frames_than_answers_may_be_open_are_all_answered() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let far = world.user_at(1);
    let caller = world.open_on(0, INTERNAL, "/api/socket");
    // Valid, invalid and binary messages alternate in an order that shifts, so that each kind
    // reaches the limit once.
    for skip in 0..3 {
        let frames: Vec<u8> = (skip..4000 + skip)
            .flat_map(|n| match n % 3 {
                0 => text(&format!(r#"{{"id":{n},"user":"{far}","data":1}}"#)),
                1 => text("bad"),
                _ => message(MessageKind::Binary, b"{\"user\":\"a\",\"data\":1}"),
            })
            .collect();
        world.send(caller, &text(&format!(r#"{{"user":"{far}","data":1}}"#)));
        let answers = texts(&world.ask(caller, frames));
        assert_eq!(answers.len(), 4001);
        for (n, answer) in (skip..).zip(&answers[1..]) {
            let expected = match n % 3 {
                0 => format!(r#"{{"id":{n},"result""#),
                1 => r#"{"error":{"code":107,"message":"expected a JSON object"#.to_owned(),
                _ => r#"{"error":{"code":107,"message":"expected a text message"#.to_owned(),
            };
            assert!(answer.starts_with(&expected), "{n}: {answer}");
        }
    }
}

#[test]
fn the_public_listener_has_no_api() {
    let mut world = World::new(Options::default());
    let caller = world.connect(0, PUBLIC);
    let answer = world.ask(
        caller,
        post("/api/push", r#"{"user":"a","data":1}"#) + &handshake("/api/socket", ""),
    );
    assert_eq!(statuses(&answer), [404, 404]);
}

#[test]
fn a_long_answer_ends_the_connection_if_the_caller_wants_that() {
    let mut world = World::new(Options::default());
    let data = "x".repeat(1_000);
    let publication = format!(r#"{{"channel":"long:1","data":"{data}"}}"#);
    let caller = world.connect(0, INTERNAL);
    for _ in 0..200 {
        world.ask(caller, post("/api/publish", &publication));
    }
    let body = r#"{"channel":"long:1","limit":-1}"#;
    for (header, is_kept) in [("", true), ("Connection: close\r\n", false)] {
        let length = body.len();
        let caller = world.connect(0, INTERNAL);
        let bytes = world.ask(
            caller,
            format!(
                "POST /api/history HTTP/1.1\r\nHost: veche.test\r\n{header}Content-Length: {length}\r\n\r\n{body}"
            ),
        );
        let (answer, rest) = response(&bytes, true);
        assert_eq!((answer.status, rest), (200, &b""[..]));
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        let connection = (!is_kept).then_some("close");
        assert_eq!(answer.header("connection"), connection);
        assert_eq!(world.is_open(caller), is_kept);
    }
}
