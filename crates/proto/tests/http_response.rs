//! Tests of encoded responses: a table of heads, headers that are refused, and random responses parsed again by
//! `httparse`.

use proptest::prelude::*;
use veche_proto::http::{
    DateHeader, HeadLimits, HttpError, HttpVersion, InvalidHeader, ResponseBody, ResponseHead,
    Status, finish_chunks, parse_head, write_chunk, write_error,
};

const DATE: &DateHeader = b"Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn heads_are_written_as_the_peer_needs_them() {
    use HttpVersion::{Http10, Http11};
    use ResponseBody::{Chunked, Sized, UntilClose};
    let rows: &[(Status, HttpVersion, bool, ResponseBody, &str, &str)] = &[
        (
            Status::OK,
            Http11,
            true,
            Sized(5),
            "200 OK",
            "Content-Length: 5",
        ),
        (
            Status::OK,
            Http11,
            false,
            Sized(0),
            "200 OK",
            "Connection: close|Content-Length: 0",
        ),
        // The response that `ab -k` (ApacheBench) requires to count a connection as kept alive.
        (
            Status::OK,
            Http10,
            true,
            Sized(5),
            "200 OK",
            "Connection: keep-alive|Content-Length: 5",
        ),
        (
            Status::OK,
            Http10,
            false,
            Sized(5),
            "200 OK",
            "Connection: close|Content-Length: 5",
        ),
        (
            Status::OK,
            Http11,
            true,
            Chunked,
            "200 OK",
            "Transfer-Encoding: chunked",
        ),
        (
            Status::OK,
            Http10,
            true,
            Chunked,
            "200 OK",
            "Connection: close",
        ),
        (
            Status::OK,
            Http11,
            true,
            UntilClose,
            "200 OK",
            "Connection: close",
        ),
        (
            Status::NO_CONTENT,
            Http11,
            true,
            Sized(0),
            "204 No Content",
            "",
        ),
        (
            Status::NO_CONTENT,
            Http10,
            true,
            Chunked,
            "204 No Content",
            "Connection: keep-alive",
        ),
        (
            Status::NOT_MODIFIED,
            Http11,
            true,
            Sized(7),
            "304 Not Modified",
            "",
        ),
        (
            Status::UPGRADE_REQUIRED,
            Http11,
            true,
            Sized(0),
            "426 Upgrade Required",
            "Connection: upgrade|Upgrade: websocket|Content-Length: 0",
        ),
        (
            Status(299),
            Http11,
            true,
            Sized(0),
            "299 ",
            "Content-Length: 0",
        ),
        (
            Status(7),
            Http11,
            true,
            Sized(0),
            "500 Internal Server Error",
            "Content-Length: 0",
        ),
        (
            Status::OK,
            Http11,
            true,
            Sized(u64::MAX),
            "200 OK",
            "Content-Length: 18446744073709551615",
        ),
    ];
    for (status, version, keep_alive, body, line, expected) in rows.iter().copied() {
        let head = ResponseHead {
            status,
            version,
            keep_alive,
            body,
        };
        let mut out = b"before".to_vec();
        head.write(&mut out, DATE, &[("X-A", "b")]).unwrap();
        let expected: String = expected
            .split_terminator('|')
            .map(|header| format!("{header}\r\n"))
            .collect();
        let expected = format!(
            "beforeHTTP/1.1 {line}\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n{expected}X-A: b\r\n\r\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn a_stream_to_http_1_0_ends_by_closing() {
    let limits = HeadLimits::default();
    let request = parse_head(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &limits).unwrap();
    let head = ResponseHead::to(&request, Status::OK, ResponseBody::Chunked);
    assert_eq!(
        (head.body, head.keep_alive),
        (ResponseBody::UntilClose, false)
    );
    let head = ResponseHead::to(&request, Status::OK, ResponseBody::Sized(1));
    assert_eq!((head.body, head.keep_alive), (ResponseBody::Sized(1), true));
}

#[test]
fn nothing_that_could_split_a_response_is_written() {
    use InvalidHeader::{Name, Reserved, Value};
    let rows: &[(&str, &str, InvalidHeader)] = &[
        ("Location", "/\r\nSet-Cookie: a=b", Value),
        ("Location", "/\nx", Value),
        ("Location", "/\rx", Value),
        ("Location", "/\0", Value),
        ("Location", "/\u{7f}", Value),
        ("Location", "\r\n\r\n<script>", Value),
        ("X\r\nY", "z", Name),
        ("X:", "z", Name),
        ("X ", "z", Name),
        ("", "z", Name),
        ("\u{e9}", "z", Name),
        ("content-length", "5", Reserved),
        ("Transfer-Encoding", "chunked", Reserved),
        ("CONNECTION", "close", Reserved),
        ("Date", "now", Reserved),
    ];
    let head = ResponseHead {
        status: Status::OK,
        version: HttpVersion::Http11,
        keep_alive: true,
        body: ResponseBody::Sized(0),
    };
    for (name, value, expected) in rows {
        let mut out = b"before".to_vec();
        assert_eq!(
            head.write(&mut out, DATE, &[("X-A", "b"), (name, value)]),
            Err(*expected)
        );
        assert_eq!(out, b"before", "{name:?}");
        let mut writer = head.start(&mut out, DATE);
        writer.header("X-A", "b").unwrap();
        assert_eq!(writer.header(name, value), Err(*expected));
        writer.finish();
        assert!(out.ends_with(b"X-A: b\r\n\r\n"));
    }
}

#[test]
fn a_refusal_is_answered_and_closed() {
    let error = HttpError {
        status: Status::HEADERS_TOO_LARGE,
        reason: "too many headers",
    };
    let mut out = Vec::new();
    write_error(&mut out, &error, DATE);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "HTTP/1.1 431 Request Header Fields Too Large\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Connection: close\r\nContent-Length: 17\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
         too many headers\n"
    );
}

#[test]
fn chunks() {
    let mut out = Vec::new();
    write_chunk(&mut out, b"");
    write_chunk(&mut out, b"hello");
    write_chunk(&mut out, &[b'x'; 16]);
    finish_chunks(&mut out);
    assert_eq!(out, b"5\r\nhello\r\n10\r\nxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
}

proptest! {
    #[test]
    fn what_is_written_is_read_by_others(
        code in 200..600u16,
        is_http_10 in any::<bool>(),
        keep_alive in any::<bool>(),
        length in prop::option::of(any::<u64>()),
        headers in prop::collection::vec(("[ -~\r\n\t]{0,12}", prop::collection::vec(any::<u8>(), 0..20)), 0..8),
    ) {
        let head = ResponseHead {
            status: Status(code),
            version: if is_http_10 { HttpVersion::Http10 } else { HttpVersion::Http11 },
            keep_alive,
            body: length.map_or(ResponseBody::Chunked, ResponseBody::Sized),
        };
        let mut out = Vec::new();
        let mut writer = head.start(&mut out, DATE);
        let written: Vec<_> =
            headers.iter().filter(|(name, value)| writer.header(name, value).is_ok()).collect();
        writer.finish();

        let mut storage = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut storage);
        prop_assert_eq!(response.parse(&out), Ok(httparse::Status::Complete(out.len())));
        prop_assert_eq!((response.version, response.code), (Some(1), Some(code)));
        let read: Vec<_> = response.headers.iter().rev().take(written.len()).rev().collect();
        for ((name, value), header) in written.iter().zip(&read) {
            prop_assert_eq!(name, header.name);
            let trimmed = value.trim_ascii();
            prop_assert_eq!(trimmed, header.value);
        }
        let framings = response.headers.iter().take(response.headers.len() - written.len()).filter(|header| {
            ["Content-Length", "Transfer-Encoding"].contains(&header.name)
        });
        let is_until_close = length.is_none() && is_http_10;
        let has_body = Status(code).has_body();
        prop_assert_eq!(framings.count(), usize::from(has_body && !is_until_close));
    }
}
