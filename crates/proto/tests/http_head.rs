//! Request heads: every row of `vectors/http_heads.json` whole, byte by byte and split at random; and properties.

use veche_proto::http::{Framing, HeadScan, Limits, Method, parse_head};

const LIMITS: Limits = Limits {
    head_bytes_max: 16 * 1024,
    headers_max: 64,
    target_bytes_max: 8 * 1024,
    body_bytes_max: 1 << 20,
};

#[test]
fn reads_what_wrk_sends() {
    let wire = b"GET /a%20b?user=te%73t+er&x HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nCookie: a=1; b=\"2\"\r\n\r\nrest";
    let end = HeadScan::default().find(wire, &LIMITS).unwrap().unwrap();
    let head = parse_head(&wire[..end], &LIMITS).unwrap();
    assert_eq!(head.method, Method::Get);
    assert_eq!(
        (head.path, head.query, head.host),
        ("/a%20b", "user=te%73t+er&x", "127.0.0.1:8080")
    );
    assert_eq!(head.query("user").as_deref(), Some("test er"));
    assert_eq!(head.query("x").as_deref(), Some(""));
    assert_eq!(
        (head.cookie("a"), head.cookie("b"), head.cookie("c")),
        (Some("1"), Some("2"), None)
    );
    assert!(head.keep_alive && !head.expect_continue && head.framing == Framing::None);
    assert_eq!(&wire[end..], b"rest");
}
