//! Every request decoded from both encodings: JSON as written here, and Protobuf encoded by prost.

mod oracle;

use std::borrow::Cow;

use veche_centrifuge::{
    ChannelRequest, ClientRequest, Command, ConnectRequest, DecodeLimits, Encoding, HistoryRequest,
    MalformedMessage, PublicationData, PublishRequest, RefreshRequest, RpcRequest, SecretText,
    SendRequest, ServerSub, StreamPosition, SubRefreshRequest, SubscribeRequest,
};

fn read(encoding: Encoding, message: &[u8]) -> Vec<Command<'_>> {
    encoding
        .commands(message, DecodeLimits::default())
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{error}: {}", message.escape_ascii()))
}

fn secret(text: &str) -> SecretText<'_> {
    SecretText(text.into())
}

/// Returns the data of a request, if any.
fn data_of<'c, 'a>(
    request: &'c mut ClientRequest<'a>,
) -> Option<&'c mut Option<PublicationData<'a>>> {
    match request {
        ClientRequest::Connect(request) => Some(&mut request.data),
        ClientRequest::Subscribe(request) => Some(&mut request.data),
        ClientRequest::Publish(request) => Some(&mut request.data),
        ClientRequest::Send(request) => Some(&mut request.data),
        ClientRequest::Rpc(request) => Some(&mut request.data),
        _ => None,
    }
}

#[track_caller]
fn check(json: &str, expected: (u32, ClientRequest<'_>)) {
    let (id, request) = expected;
    let mut expected = [Command { id, request }];
    assert_eq!(read(Encoding::Json, json.as_bytes()), expected);

    let oracle: oracle::Command = serde_json::from_str(json).expect("the oracle's JSON");
    let wire = oracle::to_protobuf(&oracle);
    // Protobuf data has no type, so it is decoded as binary.
    if let Some(data) = data_of(&mut expected[0].request) {
        *data = data.map(|data| PublicationData::Binary(data.bytes()));
    }
    let filter = oracle.subscribe.and_then(|request| request.tf);
    let filter = filter.map(|filter| prost::Message::encode_to_vec(&filter));
    if let ClientRequest::Subscribe(request) = &mut expected[0].request {
        request.filter = filter.as_deref().map(PublicationData::Binary);
    }
    assert_eq!(read(Encoding::Protobuf, &wire), expected);
}

#[test]
fn connect() {
    check(
        r#"{"id":1,"connect":{}}"#,
        (1, ClientRequest::Connect(ConnectRequest::default())),
    );
    check(
        r#"{"id":4294967295,"connect":{"token":"T","data":{"d":1},"name":"app","version":"1.0",
            "headers":{"":"","authorization":"A"},"flag":-9223372036854775808,"profile":"p","dict":"d",
            "subs":{"a":{"recover":true,"offset":18446744073709551615,"epoch":"e"},"b":{"join_leave":true}}}}"#,
        (
            u32::MAX,
            ClientRequest::Connect(ConnectRequest {
                token: secret("T"),
                data: Some(PublicationData::Json(r#"{"d":1}"#)),
                subs: vec![
                    ServerSub {
                        channel: "a".into(),
                        recover: true,
                        position: StreamPosition {
                            offset: u64::MAX,
                            epoch: "e".into(),
                        },
                        join_leave: false,
                    },
                    ServerSub {
                        channel: "b".into(),
                        join_leave: true,
                        ..ServerSub::default()
                    },
                ],
                name: "app".into(),
                version: "1.0".into(),
                headers: vec![
                    ("".into(), secret("")),
                    ("authorization".into(), secret("A")),
                ],
                flag: i64::MIN,
            }),
        ),
    );
}

#[test]
fn subscribe() {
    check(
        r#"{"id":2,"subscribe":{"channel":"chat:1"}}"#,
        (
            2,
            ClientRequest::Subscribe(SubscribeRequest {
                channel: "chat:1".into(),
                ..SubscribeRequest::default()
            }),
        ),
    );
    check(
        r#"{"id":2,"subscribe":{"channel":"c","token":"T","recover":true,"epoch":"ep","offset":6,"data":[1, 2],
            "positioned":true,"recoverable":true,"join_leave":true,"delta":"fossil","flag":3,"type":-1,
            "tf":{"op":"and","nodes":[{"key":"k","cmp":"in","vals":["v"]}]},
            "phase":1,"cursor":"C","limit":10,"asc":true}}"#,
        (
            2,
            ClientRequest::Subscribe(SubscribeRequest {
                channel: "c".into(),
                token: secret("T"),
                recover: true,
                epoch: "ep".into(),
                offset: 6,
                data: Some(PublicationData::Json("[1, 2]")),
                positioned: true,
                recoverable: true,
                join_leave: true,
                delta: "fossil".into(),
                filter: Some(PublicationData::Json(
                    r#"{"op":"and","nodes":[{"key":"k","cmp":"in","vals":["v"]}]}"#,
                )),
                flag: 3,
                kind: -1,
            }),
        ),
    );
}

#[test]
fn what_needs_only_a_channel() {
    let channel = |name: &'static str| ChannelRequest {
        channel: name.into(),
    };
    check(
        r#"{"id":3,"unsubscribe":{"channel":"c"}}"#,
        (3, ClientRequest::Unsubscribe(channel("c"))),
    );
    check(
        r#"{"id":3,"presence":{"channel":"c"}}"#,
        (3, ClientRequest::Presence(channel("c"))),
    );
    check(
        r#"{"id":3,"presence_stats":{}}"#,
        (3, ClientRequest::PresenceStats(channel(""))),
    );
}

#[test]
fn publish() {
    check(
        r#"{"id":4,"publish":{"channel":"c","data":null}}"#,
        (
            4,
            ClientRequest::Publish(PublishRequest {
                channel: "c".into(),
                data: Some(PublicationData::Json("null")),
                kind: 0,
            }),
        ),
    );
    check(
        r#"{"id":4,"publish":{"channel":"c","type":1,"key":"k","removed":true}}"#,
        (
            4,
            ClientRequest::Publish(PublishRequest {
                channel: "c".into(),
                data: None,
                kind: 1,
            }),
        ),
    );
}

#[test]
fn history() {
    check(
        r#"{"id":5,"history":{"channel":"c","limit":-1,"since":{"offset":7,"epoch":"e"},"reverse":true}}"#,
        (
            5,
            ClientRequest::History(HistoryRequest {
                channel: "c".into(),
                limit: -1,
                since: Some(StreamPosition {
                    offset: 7,
                    epoch: "e".into(),
                }),
                reverse: true,
            }),
        ),
    );
    check(
        r#"{"id":5,"history":{"channel":"c","limit":2147483647,"since":{}}}"#,
        (
            5,
            ClientRequest::History(HistoryRequest {
                channel: "c".into(),
                limit: i32::MAX,
                since: Some(StreamPosition::default()),
                reverse: false,
            }),
        ),
    );
}

#[test]
fn commands_for_the_application() {
    check(
        r#"{"send":{"data":{"a":"b"}}}"#,
        (
            0,
            ClientRequest::Send(SendRequest {
                data: Some(PublicationData::Json(r#"{"a":"b"}"#)),
            }),
        ),
    );
    // A `send` command needs no id, but may have one.
    check(
        r#"{"id":6,"send":{}}"#,
        (6, ClientRequest::Send(SendRequest::default())),
    );
    check(
        r#"{"id":6,"rpc":{"method":"getTime","data":1e3}}"#,
        (
            6,
            ClientRequest::Rpc(RpcRequest {
                data: Some(PublicationData::Json("1e3")),
                method: "getTime".into(),
            }),
        ),
    );
}

#[test]
fn more_time() {
    check(
        r#"{"id":7,"refresh":{"token":"T"}}"#,
        (
            7,
            ClientRequest::Refresh(RefreshRequest { token: secret("T") }),
        ),
    );
    check(
        r#"{"id":8,"sub_refresh":{"channel":"c","token":"T","type":1}}"#,
        (
            8,
            ClientRequest::SubRefresh(SubRefreshRequest {
                channel: "c".into(),
                token: secret("T"),
                kind: 1,
            }),
        ),
    );
}

#[test]
fn pings_and_pongs() {
    check(r#"{"id":9,"ping":{}}"#, (9, ClientRequest::Ping));
    check("{}", (0, ClientRequest::Pong));
    let pong = [Command {
        id: 0,
        request: ClientRequest::Pong,
    }];
    assert_eq!(read(Encoding::Protobuf, &[0]), pong);
    // Unknown fields are ignored, since a later version of the protocol may add fields.
    assert_eq!(read(Encoding::Json, br#" { "x" : [{}] } "#), pong);
    assert_eq!(read(Encoding::Protobuf, &[3, 0xa2, 0x06, 0]), pong);
    assert_eq!(read(Encoding::Json, br#"{"id":0,"connect":null}"#), pong);
}

#[test]
fn fields_that_are_null_are_missing() {
    let json = br#"{"id":1,"publish":null,"subscribe":{"channel":"c","token":null,"recover":null,"offset":null,
        "epoch":null,"tf":null,"flag":null}}
        {"id":2,"connect":{"subs":null,"headers":null}}
        {"id":3,"connect":{"subs":{"a":null},"headers":{"n":null}}}
        {"id":4,"history":{"since":null}}"#;
    let commands = read(Encoding::Json, json);
    let subscribe = SubscribeRequest {
        channel: "c".into(),
        ..SubscribeRequest::default()
    };
    assert_eq!(commands[0].request, ClientRequest::Subscribe(subscribe));
    let mut connect = ConnectRequest::default();
    assert_eq!(commands[1].request, ClientRequest::Connect(connect.clone()));
    connect.subs.push(ServerSub {
        channel: "a".into(),
        ..ServerSub::default()
    });
    connect.headers.push(("n".into(), secret("")));
    assert_eq!(commands[2].request, ClientRequest::Connect(connect));
    assert_eq!(
        commands[3].request,
        ClientRequest::History(HistoryRequest::default())
    );
}

#[test]
fn many_commands_come_in_one_message_with_any_white_space() {
    let first = r#"{"id":1,"ping":{}}"#;
    let second = r#"{"id":2,"ping":{}}"#;
    for (before, between, after) in [
        ("", "\n", ""),
        ("", "\n", "\n"),
        ("\n\r\n", "\n\n", "\r\n \t"),
        (" ", "", " "),
    ] {
        let message = format!("{before}{first}{between}{second}{after}");
        let ids: Vec<u32> = read(Encoding::Json, message.as_bytes())
            .iter()
            .map(|command| command.id)
            .collect();
        assert_eq!(ids, [1, 2], "{message:?}");
    }
    assert_eq!(read(Encoding::Json, b""), []);
    assert_eq!(read(Encoding::Json, b" \n\n"), []);
    assert_eq!(read(Encoding::Protobuf, b""), []);
    // A command is accepted as JSON that is indented over several lines, as from an editor.
    let spread =
        b"{\n  \"id\": 3,\n  \"publish\": {\n    \"data\": {\n      \"a\": 1\n    }\n  }\n}\n";
    let data = read(Encoding::Json, spread)[0].request.data();
    assert_eq!(
        data,
        Some(PublicationData::Json("{\n      \"a\": 1\n    }"))
    );
}

#[test]
fn texts_are_borrowed_unless_something_in_them_is_escaped() {
    let json =
        br#"{"id":1,"rpc":{"method":"plain"}}{"id":1,"rpc":{"method":"\u0000\ud83d\ude00\n\""}}"#;
    let commands = read(Encoding::Json, json);
    let method = |place: usize| match &commands[place].request {
        ClientRequest::Rpc(rpc) => rpc.method.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(method(0), Cow::Borrowed("plain")));
    assert!(matches!(method(1), Cow::Owned(text) if text == "\0\u{1f600}\n\""));
}

#[test]
fn unidirectional_clients_start_without_a_command() {
    let limits = DecodeLimits::default();
    let json = br#"{"token":"T","subs":{"user#2694":{"recover":true,"offset":12,"epoch":"xD5R"}}}"#;
    let connect = Encoding::Json.connect_request(json, limits).unwrap();
    assert_eq!(&*connect.token, "T");
    assert_eq!(connect.subs[0].channel, "user#2694");
    assert_eq!(connect.subs[0].position.offset, 12);

    let oracle: oracle::ConnectRequest = serde_json::from_slice(json).unwrap();
    let wire = prost::Message::encode_to_vec(&oracle);
    assert_eq!(
        Encoding::Protobuf.connect_request(&wire, limits),
        Ok(connect)
    );

    let refused = |json: &[u8]| Encoding::Json.connect_request(json, limits).unwrap_err();
    assert_eq!(refused(b""), MalformedMessage::Json { line: 1, column: 0 });
    assert_eq!(
        refused(b"{} {}"),
        MalformedMessage::Json { line: 1, column: 4 }
    );
    assert_eq!(
        refused(b"[1]"),
        MalformedMessage::Value { line: 1, column: 0 }
    );
    let deep = format!(r#"{{"data":{}{}}}"#, "[".repeat(129), "]".repeat(129));
    assert_eq!(refused(deep.as_bytes()), MalformedMessage::TooDeep);
}

#[test]
fn commands_that_come_another_way_are_in_an_envelope() {
    let limits = DecodeLimits::default();
    let json = br#"{"session":"S","node":"N","data":"{\"id\":2,\"ping\":{}}\n{}"}"#;
    let envelope = Encoding::Json.emulation(json, limits).unwrap();
    assert_eq!((&*envelope.session, &*envelope.node), ("S", "N"));
    assert_eq!(&*envelope.data, b"{\"id\":2,\"ping\":{}}\n{}");
    assert_eq!(read(Encoding::Json, &envelope.data).len(), 2);
    assert!(!format!("{envelope:?}").contains('S'));

    let oracle = oracle::EmulationRequest {
        node: "N".into(),
        session: "S".into(),
        data: vec![0, 0],
    };
    let wire = prost::Message::encode_to_vec(&oracle);
    let envelope = Encoding::Protobuf.emulation(&wire, limits).unwrap();
    assert_eq!((&*envelope.session, &*envelope.node), ("S", "N"));
    assert_eq!(read(Encoding::Protobuf, &envelope.data).len(), 2);

    assert!(Encoding::Json.emulation(br#"{"data":{}}"#, limits).is_err());
    assert!(Encoding::Json.emulation(b"\xff", limits).is_err());
    assert!(Encoding::Protobuf.emulation(&[0x08, 1], limits).is_err());
}

#[test]
fn no_secret_is_shown() {
    let json = br#"{"id":1,"connect":{"token":"TOKEN","headers":{"a":"TOKEN"}}}
        {"id":2,"subscribe":{"token":"TOKEN"}}{"id":3,"refresh":{"token":"TOKEN"}}
        {"id":4,"sub_refresh":{"token":"TOKEN"}}"#;
    let shown = format!(
        "{:?} {:?}",
        read(Encoding::Json, json),
        Encoding::Json.commands(json, DecodeLimits::default())
    );
    assert!(
        !shown.contains("TOKEN") && shown.contains("5 bytes"),
        "{shown}"
    );
}
