//! Hostile input: each kind is refused with its error, and nothing panics.

use veche_centrifuge::{
    ClientRequest, DEPTH_MAX, DecodeLimits, ENTRIES_MAX, Encoding, MalformedMessage,
};

use Encoding::{Json, Protobuf};

/// Returns the number of commands before the error, and the error.
fn refused(encoding: Encoding, message: &[u8], limits: DecodeLimits) -> (usize, MalformedMessage) {
    let mut commands = encoding.commands(message, limits);
    let good = commands.by_ref().take_while(Result::is_ok).count();
    assert!(commands.next().is_none(), "something follows an error");
    let error = encoding
        .commands(message, limits)
        .find_map(Result::err)
        .unwrap_or_else(|| panic!("accepted: {}", message.escape_ascii()));
    (good, error)
}

#[track_caller]
fn check(encoding: Encoding, message: &[u8], expected: MalformedMessage) {
    let (_, error) = refused(encoding, message, DecodeLimits::default());
    assert_eq!(error, expected, "{}", message.escape_ascii());
}

fn json(line: usize, column: usize) -> MalformedMessage {
    MalformedMessage::Json { line, column }
}

fn value(line: usize, column: usize) -> MalformedMessage {
    MalformedMessage::Value { line, column }
}

#[test]
fn a_command_has_one_request_and_an_id() {
    check(Json, br#"{"id":1}"#, MalformedMessage::NoRequest);
    check(Json, br#"{"id":1,"fly":{}}"#, MalformedMessage::NoRequest);
    check(
        Json,
        br#"{"id":1,"ping":null}"#,
        MalformedMessage::NoRequest,
    );
    check(Json, br#"{"ping":{}}"#, MalformedMessage::NoId);
    check(Json, br#"{"id":0,"publish":{}}"#, MalformedMessage::NoId);
    check(
        Json,
        br#"{"id":1,"ping":{},"send":{}}"#,
        MalformedMessage::ManyRequests,
    );
    check(
        Json,
        br#"{"id":1,"ping":{},"ping":{}}"#,
        MalformedMessage::ManyRequests,
    );
    check(Protobuf, &[2, 0x08, 1], MalformedMessage::NoRequest);
    check(
        Protobuf,
        &[4, 0x08, 1, 11 << 3, 0],
        MalformedMessage::Field { field: 11 },
    );
    check(Protobuf, &[2, 11 << 3 | 2, 0], MalformedMessage::NoId);
    let twice = [6, 0x08, 1, 11 << 3 | 2, 0, 12 << 3 | 2, 0];
    check(Protobuf, &twice, MalformedMessage::ManyRequests);
}

#[test]
fn ids_are_of_32_bits() {
    for id in [
        "-1",
        "4294967296",
        "1e3",
        "1.0",
        "\"1\"",
        "true",
        "[1]",
        "99999999999999999999",
    ] {
        let message = format!(r#"{{"id":{id},"ping":{{}}}}"#);
        let (_, error) = refused(Json, message.as_bytes(), DecodeLimits::default());
        assert!(
            matches!(error, MalformedMessage::Value { line: 1, .. }),
            "{id}: {error}"
        );
    }
    let too_large = [6, 0x08, 0x80, 0x80, 0x80, 0x80, 0x10];
    check(Protobuf, &too_large, MalformedMessage::Field { field: 1 });
    check(
        Protobuf,
        &[3, 0x0a, 1, b'1'],
        MalformedMessage::Field { field: 1 },
    );
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    check(Json, b"{", json(1, 1));
    check(Json, b"}", json(1, 1));
    check(Json, b"{}\n{\"id\":", json(2, 6));
    check(Json, b"{\"id\":1,}", json(1, 9));
    check(Json, b"{'id':1}", json(1, 2));
    check(Json, b"{} NaN", json(1, 4));
    check(Json, b"\0", json(1, 1));
    check(Json, b"{}\0", json(1, 3));
    check(Json, b"{\"rpc\":{\"method\":\"a\0\"}}", json(1, 20));
    check(Json, b"{\"send\":{\"data\":\"a\0\"}}", json(1, 18));
    check(Json, br#"{"rpc":{"method":"\ud800"}}"#, json(1, 25));
    check(Json, b"\xef\xbb\xbf{}", json(1, 1));
    for bytes in [b"\xff".as_slice(), b"{\"a\":\"\xc3\"}", b"{}\n\xed\xa0\x80"] {
        check(Json, bytes, MalformedMessage::Utf8);
    }
}

#[test]
fn values_have_their_fields_types() {
    check(Json, b"1", value(1, 1));
    check(Json, b"null", value(1, 4));
    check(Json, b"[]", value(1, 0));
    check(Json, b"[{}]", value(1, 0));
    check(Json, b"\"{}\"", value(1, 4));
    for request in [
        r#""connect":[]"#,
        r#""connect":"a""#,
        r#""connect":{"token":1}"#,
        r#""connect":{"subs":[]}"#,
        r#""connect":{"subs":{"a":1}}"#,
        r#""connect":{"headers":{"a":1}}"#,
        r#""subscribe":{"channel":["a"]}"#,
        r#""subscribe":{"recover":1}"#,
        r#""subscribe":{"offset":-1}"#,
        r#""subscribe":{"offset":18446744073709551616}"#,
        r#""subscribe":{"channel":"a","channel":"b"}"#,
        r#""history":{"limit":2147483648}"#,
        r#""history":{"since":1}"#,
        r#""history":{"since":[1]}"#,
        r#""publish":["c",1]"#,
        r#""connect":{"subs":{"a":[true]}}"#,
        r#""ping":1"#,
        r#""presence":false"#,
    ] {
        let message = format!(r#"{{"id":1,{request}}}"#);
        let (_, error) = refused(Json, message.as_bytes(), DecodeLimits::default());
        assert!(
            matches!(error, MalformedMessage::Value { line: 1, .. }),
            "{request}: {error}"
        );
    }
    // Field 5 of a command is a subscribe request. In the request, field 1 is the channel, 3 `recover`, and 13 the filter.
    let subscribe = |field: &[u8]| {
        let mut message = vec![field.len() as u8 + 4, 0x08, 1, 0x2a, field.len() as u8];
        message.extend(field);
        refused(Protobuf, &message, DecodeLimits::default()).1
    };
    assert_eq!(subscribe(&[0x08, 1]), MalformedMessage::Field { field: 1 });
    assert_eq!(subscribe(&[0x1a, 0]), MalformedMessage::Field { field: 3 });
    assert_eq!(subscribe(&[0x68, 0]), MalformedMessage::Field { field: 13 });
    assert_eq!(subscribe(&[0x0a, 2, 0xc3, 0x28]), MalformedMessage::Utf8);
    // A limit of more than 32 bits. The limit is field 7 of a history request, which is field 10 of a command.
    let limit = [10, 0x08, 1, 0x52, 6, 0x38, 0x80, 0x80, 0x80, 0x80, 0x08];
    check(Protobuf, &limit, MalformedMessage::Field { field: 7 });
}

#[test]
fn lengths_that_are_not_there_cost_nothing() {
    let mut huge = vec![0xff; 10];
    huge[9] = 0x01;
    check(Protobuf, &huge, MalformedMessage::Truncated);
    check(Protobuf, &[0x80], MalformedMessage::Truncated);
    check(Protobuf, &[5, 0x08, 1], MalformedMessage::Truncated);
    check(Protobuf, &[0xff; 11], MalformedMessage::Protobuf);
    // The connect request in a complete message has a token whose declared length exceeds the
    // message.
    let token = [9, 0x08, 1, 0x22, 5, 0x0a, 0xff, 0xff, 0xff, 0x7f];
    check(Protobuf, &token, MalformedMessage::Truncated);
}

#[test]
fn messages_are_as_long_as_allowed() {
    let limits = DecodeLimits {
        message_bytes_max: 20,
        commands_max: 3,
    };
    let fits = |encoding: Encoding, message: &[u8]| {
        encoding
            .commands(message, limits)
            .map(|command| command.unwrap())
            .filter(|command| command.request == ClientRequest::Pong)
            .count()
    };
    assert_eq!(fits(Json, b"{}{}{}              "), 3);
    assert_eq!(fits(Protobuf, &[0; 3]), 3);
    assert_eq!(
        refused(Json, b"{}{}{}               ", limits),
        (0, MalformedMessage::TooBig)
    );
    assert_eq!(
        refused(Protobuf, &[0; 21], limits),
        (0, MalformedMessage::TooBig)
    );
    assert_eq!(
        refused(Json, b"{}{}{}{}", limits),
        (3, MalformedMessage::TooManyCommands)
    );
    assert_eq!(
        refused(Protobuf, &[0; 4], limits),
        (3, MalformedMessage::TooManyCommands)
    );
    assert_eq!(
        Json.connect_request(&[b' '; 21], limits),
        Err(MalformedMessage::TooBig)
    );
    assert_eq!(
        Json.emulation(&[b' '; 21], limits),
        Err(MalformedMessage::TooBig)
    );
}

#[test]
fn data_are_nested_as_deep_as_allowed() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let publish = |data: &str| format!(r#"{{"id":1,"publish":{{"data":{data}}}}}"#);
    let good = publish(&deep(DEPTH_MAX));
    assert!(
        Json.commands(good.as_bytes(), DecodeLimits::default())
            .all(|command| command.is_ok())
    );
    check(
        Json,
        publish(&deep(DEPTH_MAX + 1)).as_bytes(),
        MalformedMessage::TooDeep,
    );
    // Deep nesting does not exhaust the stack, neither in data nor in skipped fields.
    let limits = DecodeLimits {
        message_bytes_max: usize::MAX,
        ..DecodeLimits::default()
    };
    let much = deep(1_000_000);
    for message in [
        publish(&much),
        format!(r#"{{"id":1,"publish":{{"other":{much}}}}}"#),
        format!(r#"{{"other":{much}}}"#),
        format!(r#"{{"id":1,"subscribe":{{"tf":{much}}}}}"#),
        much[..1_000_000].to_owned(),
        r#"{"id":1,"connect":{"subs":{"a":"#.repeat(100_000),
    ] {
        for command in Json.commands(message.as_bytes(), limits).flatten() {
            assert!(command.request.data().is_none());
        }
    }
    // Filters that are nested 20,000 deep.
    let mut filter = Vec::new();
    for _ in 0..20_000 {
        let mut outer = vec![0x32];
        let mut length = filter.len();
        while length >= 0x80 {
            outer.push(length as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.append(&mut filter);
        filter = outer;
        if filter.len() > 30_000 {
            break;
        }
    }
    for _ in Protobuf.commands(&filter, limits) {}
}

#[test]
fn maps_have_as_many_entries_as_allowed() {
    let limits = DecodeLimits {
        message_bytes_max: usize::MAX,
        ..DecodeLimits::default()
    };
    for (count, is_good) in [
        (ENTRIES_MAX, true),
        (ENTRIES_MAX + 1, false),
        (100_000, false),
    ] {
        for (name, entry) in [("subs", r#""a":{}"#), ("headers", r#""a":"b""#)] {
            let entries = vec![entry; count].join(",");
            let message = format!(r#"{{"id":1,"connect":{{"{name}":{{{entries}}}}}}}"#);
            let read = Json.commands(message.as_bytes(), limits).next().unwrap();
            match is_good {
                true => assert!(read.is_ok()),
                false => assert_eq!(read, Err(MalformedMessage::TooManyEntries)),
            }
        }
        // Fields 3 and 6 of a connect request, with an empty entry.
        for key in [0x1a, 0x32] {
            let connect = [key, 0].repeat(count);
            let read = Protobuf.connect_request(&connect, limits);
            match is_good {
                true => assert!(read.is_ok()),
                false => assert_eq!(read, Err(MalformedMessage::TooManyEntries)),
            }
        }
    }
}

#[test]
fn errors_never_repeat_what_came() {
    for message in [
        r#"{"id":"SECRET"}"#,
        r#"{"id":1,"connect":{"token":{"SECRET":1}}}"#,
        r#"{"id":1,"connect":"SECRET"}"#,
        r#"SECRET"#,
    ] {
        let (_, error) = refused(Json, message.as_bytes(), DecodeLimits::default());
        assert!(
            !format!("{error} {error:?}").contains("SECRET"),
            "{message}"
        );
    }
}
