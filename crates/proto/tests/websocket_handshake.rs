//! Tests of the opening handshake from both ends, including what each end refuses.

use veche_proto::http::{HeadLimits, parse_head};
use veche_proto::websocket::deflate::{DeflatePolicy, negotiate};
use veche_proto::websocket::handshake::{
    HandshakeResponse, ResponseError, new_key, read, read_response, write_request, write_response,
};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Returns a valid request in which these lines are replaced (`Some`), omitted (`None`) or, with a `+`, added.
fn request(changes: &[(&str, Option<&str>)]) -> String {
    let mut lines = vec![
        ("Host", "server.example.com"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", KEY),
        ("Sec-WebSocket-Version", "13"),
    ];
    let mut start = "GET /chat HTTP/1.1";
    for (name, value) in changes {
        match value {
            Some(value) if name.is_empty() => start = value,
            Some(value) => {
                let present = lines.iter_mut().find(|(other, _)| other == name);
                match present {
                    Some(line) => line.1 = value,
                    None => lines.push((name.trim_start_matches('+'), value)),
                }
            }
            None => lines.retain(|(other, _)| other != name),
        }
    }
    let lines: String = lines
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("{start}\r\n{lines}\r\n")
}

/// Returns 101 if the request is accepted, 0 if it is not an upgrade, or else the status of the refusal.
fn status(changes: &[(&str, Option<&str>)]) -> u16 {
    let request = request(changes);
    let head = parse_head(request.as_bytes(), &HeadLimits::default()).unwrap();
    match read(&head) {
        Ok(Some(upgrade)) => {
            assert_eq!(upgrade.key.len(), 24);
            101
        }
        Ok(None) => 0,
        Err(refused) => refused.status.0,
    }
}

#[test]
fn requests() {
    assert_eq!(status(&[]), 101);
    assert_eq!(status(&[("Upgrade", Some("h2c, WebSocket"))]), 101);
    assert_eq!(status(&[("Connection", Some("keep-alive, upgrade"))]), 101);
    assert_eq!(status(&[("+Content-Length", Some("0"))]), 101);
    // Requests that are not upgrades, or that are upgrades to another protocol.
    assert_eq!(status(&[("Upgrade", None)]), 0);
    assert_eq!(status(&[("Upgrade", Some("h2c"))]), 0);
    assert_eq!(status(&[("", Some("GET /chat HTTP/1.0"))]), 0);
    // Upgrades that are invalid.
    assert_eq!(status(&[("", Some("POST /chat HTTP/1.1"))]), 400);
    assert_eq!(status(&[("Connection", Some("keep-alive"))]), 400);
    assert_eq!(status(&[("Connection", None)]), 400);
    assert_eq!(status(&[("+Content-Length", Some("5"))]), 400);
    assert_eq!(status(&[("+Transfer-Encoding", Some("chunked"))]), 400);
    assert_eq!(status(&[("Sec-WebSocket-Key", None)]), 400);
    assert_eq!(status(&[("+Sec-WebSocket-Key", Some(KEY))]), 400);
    assert_eq!(
        status(&[("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25jZQ"))]),
        400
    );
    assert_eq!(
        status(&[("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25jZQ=x"))]),
        400
    );
    assert_eq!(
        status(&[("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub2 jZQ=="))]),
        400
    );
    assert_eq!(status(&[("Sec-WebSocket-Version", None)]), 400);
    assert_eq!(status(&[("Sec-WebSocket-Version", Some("7"))]), 426);
    assert_eq!(status(&[("Sec-WebSocket-Version", Some("13, 8"))]), 426);
}

#[test]
fn the_response_of_rfc_6455_section_1_2() {
    let mut out = Vec::new();
    write_response(&mut out, KEY, Some("chat"), None);
    let expected = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn both_ends_agree() {
    let policy = DeflatePolicy {
        takeover: true,
        server_window_bits: 10,
        client_window_bits: 9,
    };
    let key = new_key(*b"the sample nonce");
    assert_eq!(key, KEY);
    let mut wire = Vec::new();
    let headers = [("Origin", "http://example.com"), ("X-Split", "a\r\nb: c")];
    write_request(
        &mut wire,
        "h:80",
        "/a?b=c",
        &key,
        "chat, superchat",
        Some(&policy),
        headers,
    );
    let head = parse_head(&wire, &HeadLimits::default()).unwrap();
    assert_eq!((head.target, head.host), ("/a?b=c", "h:80"));
    assert_eq!(head.header("origin"), Some("http://example.com"));
    assert_eq!(head.header("x-split"), None);
    let upgrade = read(&head).unwrap().unwrap();
    assert!(upgrade.protocols().eq(["chat", "superchat"]));
    let agreed = negotiate(upgrade.extensions(), &policy);
    assert_eq!(agreed.unwrap().server_window_bits(), 10);
    assert_eq!(agreed.unwrap().client_window_bits(), 9);

    let mut response = Vec::new();
    write_response(&mut response, upgrade.key, Some("superchat"), agreed);
    let size = response.len();
    response.extend_from_slice(b"\x81\x01a");
    for end in 0..size {
        let partial = read_response(&response[..end], &key, "chat, superchat", Some(&policy));
        assert_eq!(partial, Ok(None));
    }
    let read = read_response(&response, &key, "chat, superchat", Some(&policy));
    let (read_size, HandshakeResponse { protocol, deflate }) = read.unwrap().unwrap();
    assert_eq!((read_size, protocol), (size, Some("superchat")));
    // The parameters are compared field by field, because the server's also contain the flag that the client offered a
    // server window.
    let (client, server) = (deflate.unwrap(), agreed.unwrap());
    assert_eq!(client.server_window_bits(), server.server_window_bits());
    assert_eq!(client.client_window_bits(), server.client_window_bits());
    assert!(!client.server_no_context_takeover() && !client.client_no_context_takeover());
}

#[test]
fn responses_that_a_client_refuses() {
    let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let read = |head: &str| {
        read_response(format!("{head}\r\n").as_bytes(), KEY, "chat", None)
            .map(|read| assert!(read.is_some()))
    };
    assert_eq!(read(good), Ok(()));
    assert_eq!(read("SSH-2.0-OpenSSH\r\n"), Err(ResponseError::Malformed));
    assert_eq!(
        read("HTTP/1.1 302 Found\r\n"),
        Err(ResponseError::Status(302))
    );
    assert_eq!(
        read(&good.replace("websocket", "h2c")),
        Err(ResponseError::NotUpgraded)
    );
    assert_eq!(
        read(&good.replace("Connection: Upgrade\r\n", "")),
        Err(ResponseError::NotUpgraded)
    );
    assert_eq!(
        read(&good.replace("s3p", "S3p")),
        Err(ResponseError::Accept)
    );
    assert_eq!(
        read(&good.replace("Sec-WebSocket-Accept", "X")),
        Err(ResponseError::Accept)
    );
    let more = |line: &str| read(&format!("{good}{line}\r\n"));
    assert_eq!(more("Sec-WebSocket-Protocol: chat"), Ok(()));
    assert_eq!(
        more("Sec-WebSocket-Protocol: other"),
        Err(ResponseError::Protocol)
    );
    assert_eq!(
        more("Sec-WebSocket-Extensions: permessage-deflate"),
        Err(ResponseError::Extension(
            "the server chose an extension that was not offered"
        ))
    );
    let endless = format!("HTTP/1.1 101 X\r\nA: {}", "a".repeat(20_000));
    let read = read_response(endless.as_bytes(), KEY, "", None);
    assert_eq!(read, Err(ResponseError::TooLarge));
}
