//! Tests every reply and push in both encodings. The JSON is compared with an expected text; the Protobuf, decoded by
//! prost, must have the same meaning.

mod oracle;

use std::fmt::Debug;

use veche_centrifuge::{
    ClientInfo, CommandError, ConnectResult, DeltaKind, Disconnect, DisconnectCode, Encoding,
    ErrorCode, HistoryResult, Outcome, PresenceResult, PresenceStatsResult, Publication,
    PublicationData, Push, PushBody, Refresh, RefreshResult, Reply, RpcResult, SubRefreshResult,
    Subscribe, SubscribeResult, Unsubscribe, UnsubscribeCode,
};

use Encoding::{Json, Protobuf};

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    assert_eq!(out[..6], *b"before");
    out.split_off(6)
}

/// Checks that the JSON encoding is this text, and the Protobuf encoding means the same.
#[track_caller]
fn same<M>(json: &str, write: impl Fn(Encoding, &mut Vec<u8>))
where
    M: prost::Message + Default + PartialEq + Debug + serde::de::DeserializeOwned,
{
    let text = written(|out| write(Json, out));
    assert_eq!(String::from_utf8(text).unwrap(), json);
    let wire = written(|out| write(Protobuf, out));
    let [from_json, from_wire] = [
        oracle::all_of_json::<M>(json.as_bytes()),
        oracle::all_of_protobuf::<M>(&wire),
    ];
    assert_eq!(from_wire, from_json);
}

#[track_caller]
fn check_reply(json: &str, outcome: Outcome<'_>) {
    let reply = Reply { id: 7, outcome };
    let json = format!(r#"{{"id":7,{json}}}"#);
    same::<oracle::Reply>(&json, |encoding, out| encoding.write_reply(out, &reply));
}

#[track_caller]
fn check_push(json: &str, channel: &str, body: PushBody<'_>) {
    let push = Push { channel, body };
    same::<oracle::Push>(json, |encoding, out| encoding.write_bare_push(out, &push));
    let reply = format!(r#"{{"push":{json}}}"#);
    same::<oracle::Reply>(&reply, |encoding, out| encoding.write_push(out, &push));
}

fn publication<'a>(json: &'a str) -> Publication<'a> {
    Publication::new(PublicationData::Json(json))
}

const INFO: ClientInfo<'_> = ClientInfo {
    user: "42",
    client: "c-1",
    conn_info: Some(PublicationData::Json(r#"{"n":1}"#)),
    chan_info: Some(PublicationData::Json("[2]")),
};

#[test]
fn errors() {
    check_reply(
        r#""error":{"code":103,"message":"permission denied"}"#,
        Outcome::Error(ErrorCode::PermissionDenied.into()),
    );
    check_reply(
        r#""error":{"code":100,"message":"internal server error","temporary":true}"#,
        Outcome::Error(ErrorCode::Internal.into()),
    );
    check_reply(
        r#""error":{"code":1000,"message":"say \"please\""}"#,
        Outcome::Error(CommandError {
            code: 1000,
            message: "say \"please\"",
            is_temporary: false,
        }),
    );
}

#[test]
fn connect() {
    check_reply(
        r#""connect":{}"#,
        Outcome::Connect(ConnectResult::default()),
    );
    let subs = [
        (
            "a",
            SubscribeResult {
                recoverable: true,
                epoch: "e",
                offset: 3,
                positioned: true,
                ..SubscribeResult::default()
            },
        ),
        ("b\n", SubscribeResult::default()),
    ];
    let result = ConnectResult {
        client: "c-1",
        version: "0.1",
        expires: true,
        ttl_s: 3600,
        data: Some(PublicationData::Json(r#"{"d":1}"#)),
        subs: &subs,
        ping_s: 25,
        pong: true,
        session: "s",
        node: "n",
        time_ms: 1_700_000_000_000,
    };
    check_reply(
        r#""connect":{"client":"c-1","version":"0.1","expires":true,"ttl":3600,"data":{"d":1},"subs":{"a":{"recoverable":true,"epoch":"e","offset":3,"positioned":true},"b\n":{}},"ping":25,"pong":true,"session":"s","node":"n","time":1700000000000}"#,
        Outcome::Connect(result),
    );
    // On a unidirectional transport the same result is sent as a push.
    check_push(
        r#"{"connect":{"client":"c-1","version":"0.1","data":{"d":1},"subs":{"a":{"recoverable":true,"epoch":"e","offset":3,"positioned":true},"b\n":{}},"expires":true,"ttl":3600,"ping":25,"pong":true,"session":"s","node":"n","time":1700000000000}}"#,
        "",
        PushBody::Connect(result),
    );
}

#[test]
fn subscribe() {
    check_reply(
        r#""subscribe":{}"#,
        Outcome::Subscribe(SubscribeResult::default()),
    );
    let publications = [
        Publication {
            offset: 5,
            ..publication("1")
        },
        Publication {
            offset: u64::MAX,
            info: Some(INFO),
            ..publication(r#"{"a":"b"}"#)
        },
    ];
    check_reply(
        r#""subscribe":{"expires":true,"ttl":60,"recoverable":true,"epoch":"ep","publications":[{"data":1,"offset":5},{"data":{"a":"b"},"info":{"user":"42","client":"c-1","conn_info":{"n":1},"chan_info":[2]},"offset":18446744073709551615}],"recovered":true,"offset":6,"positioned":true,"data":[],"was_recovering":true,"delta":true}"#,
        Outcome::Subscribe(SubscribeResult {
            expires: true,
            ttl_s: 60,
            recoverable: true,
            epoch: "ep",
            publications: &publications,
            recovered: true,
            offset: 6,
            positioned: true,
            data: Some(PublicationData::Json("[]")),
            was_recovering: true,
            delta: true,
        }),
    );
}

#[test]
fn results_without_fields() {
    check_reply(r#""unsubscribe":{}"#, Outcome::Unsubscribe);
    check_reply(r#""publish":{}"#, Outcome::Publish);
    check_reply(r#""ping":{}"#, Outcome::Ping);
}

#[test]
fn presence() {
    check_reply(
        r#""presence":{"presence":{}}"#,
        Outcome::Presence(PresenceResult::default()),
    );
    let presence = [("c-0", ClientInfo::default()), ("c-1", INFO)];
    check_reply(
        r#""presence":{"presence":{"c-0":{"user":"","client":""},"c-1":{"user":"42","client":"c-1","conn_info":{"n":1},"chan_info":[2]}}}"#,
        Outcome::Presence(PresenceResult {
            presence: &presence,
        }),
    );
    check_reply(
        r#""presence_stats":{"num_clients":0,"num_users":0}"#,
        Outcome::PresenceStats(PresenceStatsResult::default()),
    );
    check_reply(
        r#""presence_stats":{"num_clients":3,"num_users":2}"#,
        Outcome::PresenceStats(PresenceStatsResult {
            num_clients: 3,
            num_users: 2,
        }),
    );
}

#[test]
fn history() {
    check_reply(
        r#""history":{"publications":[],"epoch":"","offset":0}"#,
        Outcome::History(HistoryResult::default()),
    );
    let tags = [("a", "1"), ("b", "")];
    let publications = [Publication {
        offset: 1,
        tags: &tags,
        time_ms: -1,
        channel: "news:eu",
        ..publication("null")
    }];
    check_reply(
        r#""history":{"publications":[{"data":null,"offset":1,"tags":{"a":"1","b":""},"time":-1,"channel":"news:eu"}],"epoch":"e","offset":1}"#,
        Outcome::History(HistoryResult {
            publications: &publications,
            epoch: "e",
            offset: 1,
        }),
    );
}

#[test]
fn rpc() {
    check_reply(r#""rpc":{}"#, Outcome::Rpc(RpcResult::default()));
    check_reply(
        r#""rpc":{"data":{"year":2026}}"#,
        Outcome::Rpc(RpcResult {
            data: Some(PublicationData::Json(r#"{"year":2026}"#)),
        }),
    );
}

#[test]
fn more_time() {
    check_reply(
        r#""refresh":{"client":"c-1","version":"0.1","expires":true,"ttl":60}"#,
        Outcome::Refresh(RefreshResult {
            client: "c-1",
            version: "0.1",
            expires: true,
            ttl_s: 60,
        }),
    );
    check_reply(
        r#""sub_refresh":{"expires":true,"ttl":60}"#,
        Outcome::SubRefresh(SubRefreshResult {
            expires: true,
            ttl_s: 60,
        }),
    );
    check_push(
        r#"{"refresh":{"expires":true,"ttl":60}}"#,
        "",
        PushBody::Refresh(Refresh {
            expires: true,
            ttl_s: 60,
        }),
    );
}

#[test]
fn publications() {
    check_push(
        r#"{"channel":"chat:1","pub":{"data":{"a":1},"offset":6}}"#,
        "chat:1",
        PushBody::Publication(Publication {
            offset: 6,
            ..publication(r#"{"a":1}"#)
        }),
    );
    // A publication whose length needs more than one byte in Protobuf.
    let long = format!("[{}]", "1234567,".repeat(5000).trim_end_matches(','));
    check_push(
        &format!(r#"{{"channel":"c","pub":{{"data":{long}}}}}"#),
        "c",
        PushBody::Publication(publication(&long)),
    );
}

#[test]
fn joins_and_leaves() {
    let info = r#"{"user":"42","client":"c-1","conn_info":{"n":1},"chan_info":[2]}"#;
    check_push(
        &format!(r#"{{"channel":"c","join":{{"info":{info}}}}}"#),
        "c",
        PushBody::Join(INFO),
    );
    check_push(
        r#"{"channel":"c","leave":{"info":{"user":"","client":"c-2"}}}"#,
        "c",
        PushBody::Leave(ClientInfo {
            client: "c-2",
            ..ClientInfo::default()
        }),
    );
}

#[test]
fn what_the_server_does() {
    check_push(
        r#"{"channel":"c","subscribe":{}}"#,
        "c",
        PushBody::Subscribe(Subscribe::default()),
    );
    check_push(
        r#"{"channel":"c","subscribe":{"recoverable":true,"epoch":"e","offset":9,"positioned":true,"data":1}}"#,
        "c",
        PushBody::Subscribe(Subscribe {
            recoverable: true,
            epoch: "e",
            offset: 9,
            positioned: true,
            data: Some(PublicationData::Json("1")),
        }),
    );
    check_push(
        r#"{"channel":"c","unsubscribe":{"code":2500,"reason":"insufficient state"}}"#,
        "c",
        PushBody::Unsubscribe(UnsubscribeCode::InsufficientState.into()),
    );
    check_push(
        r#"{"channel":"c","unsubscribe":{"code":2100}}"#,
        "c",
        PushBody::Unsubscribe(Unsubscribe {
            code: 2100,
            reason: "",
        }),
    );
    check_push(
        r#"{"disconnect":{"code":3501,"reason":"bad request"}}"#,
        "",
        PushBody::Disconnect(DisconnectCode::BadRequest.into()),
    );
    check_push(
        r#"{"disconnect":{"code":4500,"reason":"go"}}"#,
        "",
        PushBody::Disconnect(Disconnect {
            code: 4500,
            reason: "go",
        }),
    );
    check_push(
        r#"{"message":{"data":{"m":1}}}"#,
        "",
        PushBody::Message(PublicationData::Json(r#"{"m":1}"#)),
    );
}

#[test]
fn data_stand_as_they_are_but_on_one_line() {
    let data = |json: &str| {
        let mut out = Vec::new();
        PublicationData::Json(json).write_json(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        data("{ \"a\": 1.0e+5,\t\"b\":\"\\n\" }"),
        "{ \"a\": 1.0e+5,\t\"b\":\"\\n\" }"
    );
    assert_eq!(data("\n{\r\n  \"a\": [\n1]}\n"), "{  \"a\": [1]}");
}

#[test]
fn text_is_a_string_to_json_clients_and_itself_to_others() {
    let text = "say \"hi\"\n\u{2028}\u{1f600}\0";
    check_push(
        "{\"channel\":\"c\",\"pub\":{\"data\":\"say \\\"hi\\\"\\n\u{2028}\u{1f600}\\u0000\"}}",
        "c",
        PushBody::Publication(Publication::new(PublicationData::Text(text))),
    );
}

#[test]
fn binary_data_are_base64_to_json_clients() {
    let binary = PublicationData::Binary(&[0xff, 0]);
    let push = Push {
        channel: "c",
        body: PushBody::Publication(Publication::new(binary)),
    };
    let nested = [(
        "c",
        ClientInfo {
            conn_info: Some(binary),
            ..ClientInfo::default()
        },
    )];
    let reply = Reply {
        id: 1,
        outcome: Outcome::Presence(PresenceResult { presence: &nested }),
    };
    let mut out = Vec::new();
    Json.write_bare_push(&mut out, &push);
    out.push(b'\n');
    Json.write_reply(&mut out, &reply);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"channel":"c","pub":{"data":"/wA="}}"#.to_owned()
            + "\n"
            + r#"{"id":1,"presence":{"presence":{"c":{"user":"","client":"","conn_info":"/wA="}}}}"#
    );
    let mut whole = Vec::new();
    let publication = Publication {
        delta: DeltaKind::Whole,
        ..Publication::new(binary)
    };
    let body = PushBody::Publication(publication);
    Json.write_bare_push(&mut whole, &Push { channel: "c", body });
    assert_eq!(
        String::from_utf8(whole).unwrap(),
        r#"{"channel":"c","pub":{"data":"\"/wA=\""}}"#
    );

    let wire = written(|out| Protobuf.write_push(out, &push));
    let [reply] = &oracle::all_of_protobuf::<oracle::Reply>(&wire)[..] else {
        panic!("one reply");
    };
    let publication = reply.push.as_ref().unwrap().r#pub.as_ref().unwrap();
    assert_eq!(publication.data, [0xff, 0]);
}

#[test]
fn with_deltas_json_data_are_a_string() {
    let push = |data, delta| Push {
        channel: "c",
        body: PushBody::Publication(Publication {
            delta,
            offset: 2,
            ..Publication::new(data)
        }),
    };
    let json = |data, delta| {
        let out = written(|out| Json.write_bare_push(out, &push(data, delta)));
        String::from_utf8(out).unwrap()
    };
    let wire = |data, delta| {
        let out = written(|out| Protobuf.write_bare_push(out, &push(data, delta)));
        let mut pushes = oracle::all_of_protobuf::<oracle::Push>(&out);
        pushes.remove(0).r#pub.unwrap()
    };
    // If deltas are negotiated, whole data are sent as a JSON string that contains their JSON form.
    let object = PublicationData::Json("{\n\"a\":\"b\\\\\"}");
    let whole = json(object, DeltaKind::Whole);
    assert_eq!(
        whole,
        r#"{"channel":"c","pub":{"data":"{\n\"a\":\"b\\\\\"}","offset":2}}"#
    );
    let text = PublicationData::Text("a\"b\\\n\u{1}");
    let whole = json(text, DeltaKind::Whole);
    assert_eq!(
        whole,
        r#"{"channel":"c","pub":{"data":"\"a\\\"b\\\\\\n\\u0001\"","offset":2}}"#
    );
    // The string that a client decodes is the text in JSON form.
    let read: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let content = read["pub"]["data"].as_str().unwrap();
    let mut form = Vec::new();
    text.write_json(&mut form);
    assert_eq!(content.as_bytes(), form);
    assert_eq!(
        serde_json::from_str::<String>(content).unwrap().as_bytes(),
        text.bytes()
    );
    assert_eq!(wire(text, DeltaKind::Whole).data, text.bytes());
    assert!(!wire(text, DeltaKind::Whole).delta);
    // A delta that is valid UTF-8 is sent as text.
    let patch = PublicationData::Text("6\n6:{\"a\":2;");
    assert_eq!(
        json(patch, DeltaKind::Patch),
        r#"{"channel":"c","pub":{"data":"6\n6:{\"a\":2;","offset":2,"delta":true}}"#
    );
    assert_eq!(
        json(PublicationData::Json(";"), DeltaKind::Patch),
        r#"{"channel":"c","pub":{"data":";","offset":2,"delta":true}}"#
    );
    assert!(wire(patch, DeltaKind::Patch).delta);
    // A delta may end inside a UTF-8 character, so it is sent as bytes.
    assert_eq!(
        wire(PublicationData::Binary(b"\xc3"), DeltaKind::Patch).data,
        b"\xc3"
    );
}

#[test]
fn no_data_are_left_out() {
    check_push(
        r#"{"channel":"c","pub":{}}"#,
        "c",
        PushBody::Publication(publication("")),
    );
}

#[test]
fn a_ping_is_an_empty_reply() {
    let text = written(|out| Json.write_ping(out));
    let wire = written(|out| Protobuf.write_ping(out));
    let replies = oracle::all_of_protobuf::<oracle::Reply>(&wire);
    assert_eq!(replies, [oracle::Reply::default()]);
    assert_eq!(replies, oracle::all_of_json::<oracle::Reply>(&text));
}

#[test]
fn what_bytes_of_protobuf_clients_are() {
    for (bytes, is_json) in [
        (b"{\"a\":1}".as_slice(), true),
        (b" [1, 2]\n", true),
        (b"1", true),
        (b"\"\"", true),
        (b"", false),
        (b"hello", false),
        (b"{} {}", false),
        (b"\"\xff\"", false),
        (b"\0", false),
    ] {
        let expected = match is_json {
            true => PublicationData::Json(str::from_utf8(bytes).unwrap()),
            false => PublicationData::Binary(bytes),
        };
        assert_eq!(PublicationData::of_bytes(bytes), expected);
    }
    // JSON that is nested more deeply than other clients can read is treated as binary data.
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(matches!(
        PublicationData::of_bytes(deep(128).as_bytes()),
        PublicationData::Json(_)
    ));
    assert!(matches!(
        PublicationData::of_bytes(deep(129).as_bytes()),
        PublicationData::Binary(_)
    ));
    assert!(matches!(
        PublicationData::of_bytes(deep(100_000).as_bytes()),
        PublicationData::Binary(_)
    ));
}
