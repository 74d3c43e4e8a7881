//! Compares encoded events and answers to hellos with the test vectors.

mod support;

use std::net::{IpAddr, Ipv4Addr};

use support::{vector, vectors};
use veche_runtime::hooks::{AppHookCaller, AppHookRequest, Hook};
use veche_runtime::wire::{
    AppDescription, EventConnection, EventName, FrameKind, FrameLimits, HelloHead, OutgoingEvent,
    encode,
};
use veche_runtime::{Attribute, Attributes, Event, Request};
use veche_types::{ConnectionId, MessageKind, PayloadKind, PayloadRef, WorkerId};

const ANN: ConnectionId = ConnectionId {
    index: 3,
    generation: 1,
};

fn payload(kind: PayloadKind, bytes: &[u8]) -> PayloadRef<'_> {
    PayloadRef { kind, bytes }
}

fn written(event: &Event<'_>, id: u64, known: EventConnection<'_>) -> Option<Vec<u8>> {
    let OutgoingEvent { head, parts } = OutgoingEvent::of(event, id, known)?;
    let mut wire = Vec::new();
    encode(&mut wire, FrameLimits::default(), &head, &parts).expect("it is short");
    Some(wire)
}

fn chat_request() -> Box<Request> {
    let mut request = Request::new("GET", "/chat/7", "token=a%20b", [203, 0, 113, 9].into());
    request.header("Host", "example.com");
    request.header("Cookie", "a=1; b=2");
    request.header("Sec-WebSocket-Protocol", "chat.v1");
    request.param("room", "7");
    Box::new(request)
}

#[test]
fn events_are_written_as_their_vectors() {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (known, id) = (EventConnection::default(), ANN);
    let mut of_ann = Box::new(Request::new("GET", "/", "", local));
    of_ann.set_user("ann");
    let mut order = Box::new(Request::new("POST", "/orders", "", local));
    order.header("Content-Type", "application/json");
    order.body = br#"{"a":[1,2]}"#.to_vec();
    let mut attributes = Attributes::default();
    let text = Attribute::Bytes(br#"Ann "A""#[..].into());
    for (name, value) in [
        ("visits", Attribute::Number(3.0)),
        ("score", Attribute::Number(1.5)),
        ("admin", Attribute::Boolean(true)),
        ("name", text),
    ] {
        attributes.set(name, Some(value)).expect("there is room");
    }
    let known_ann = EventConnection {
        worker: WorkerId(0),
        user: Some("ann"),
        attributes: Some(&attributes),
    };
    let headers = [(Box::from("cookie"), Box::from(&b"sid=1"[..]))];
    let caller = AppHookCaller {
        id: "0.3.1",
        user: "ann",
        transport: "websocket",
        protocol: "json",
        name: "js",
        version: "5.3",
        remote: "2001:db8::1".parse().expect("an address"),
        headers: &headers,
        meta: None,
    };
    let news = [Box::from("news")];
    let asked = |hook| AppHookRequest {
        hook,
        caller,
        subject: "",
        code: 0,
        token: "",
        channels: &[],
        data: None,
    };
    let connect = AppHookRequest {
        caller: AppHookCaller { user: "", ..caller },
        token: "secret",
        channels: &news,
        data: Some(payload(PayloadKind::Json, br#"{"room":7}"#)),
        ..asked(Hook::Connect)
    };
    let meta = |meta| AppHookCaller {
        meta: Some(meta),
        ..caller
    };
    let refresh = AppHookRequest {
        caller: meta(br#"{"plan":"gold"}"#),
        ..asked(Hook::Refresh)
    };
    let subscribe = AppHookRequest {
        subject: "room:1",
        token: "t",
        data: Some(payload(PayloadKind::Json, b"{}")),
        ..asked(Hook::Subscribe)
    };
    let sub_refresh = AppHookRequest {
        subject: "room:1",
        ..asked(Hook::SubRefresh)
    };
    let publish = AppHookRequest {
        caller: AppHookCaller {
            protocol: "protobuf",
            ..meta(b"{}")
        },
        subject: "room:1",
        data: Some(payload(PayloadKind::Binary, &[1, 2])),
        ..asked(Hook::Publish)
    };
    let rpc = AppHookRequest {
        subject: "sum",
        data: Some(payload(PayloadKind::Json, b"[1,2]")),
        ..asked(Hook::Rpc)
    };
    let message = AppHookRequest {
        data: Some(payload(PayloadKind::Text, b"typing")),
        ..asked(Hook::Message)
    };
    let disconnect = AppHookRequest {
        subject: "connection closed",
        code: 3000,
        ..asked(Hook::Disconnect)
    };
    let hook = |request| Event::Hook { number: 5, request };
    let text = |data| Event::Message {
        id,
        kind: MessageKind::Text,
        data,
    };
    let other = ConnectionId {
        index: 0,
        generation: 7,
    };
    let third = ConnectionId {
        index: 4,
        generation: 2,
    };
    let binary = Event::Message {
        id,
        kind: MessageKind::Binary,
        data: &[0, 255, 128],
    };
    let close = Event::Close {
        id,
        code: 1001,
        reason: "going away",
    };
    let user = EventConnection {
        user: Some("ann"),
        ..known
    };
    let on_another = EventConnection {
        worker: WorkerId(1),
        ..known
    };
    let table = [
        ("stop", 99, Event::Stop, known),
        (
            "open",
            2,
            Event::Handshake {
                id,
                request: chat_request(),
            },
            known,
        ),
        (
            "open of a user whom the route knows",
            3,
            Event::Handshake {
                id: other,
                request: of_ann,
            },
            on_another,
        ),
        ("message", 4, text("Grüße".as_bytes()), known),
        ("message, binary", 5, binary, known),
        ("message, empty", 6, text(b""), known),
        (
            "message of a user, with attributes",
            7,
            text(b"hello"),
            known_ann,
        ),
        ("close", 8, close, user),
        (
            "request",
            9,
            Event::Request {
                id: third,
                request: order,
            },
            known,
        ),
        ("connect", 10, hook(&connect), known),
        (
            "refresh, with what the application keeps",
            11,
            hook(&refresh),
            known,
        ),
        ("subscribe", 12, hook(&subscribe), known),
        ("sub_refresh", 13, hook(&sub_refresh), known),
        (
            "publish, binary, with what the application keeps",
            14,
            hook(&publish),
            known,
        ),
        ("rpc", 15, hook(&rpc), known),
        ("client_message, text", 16, hook(&message), known),
        ("disconnect", 17, hook(&disconnect), known),
    ];
    for (name, id, event, known) in &table {
        let wire = written(event, *id, *known);
        assert_eq!(wire, Some(vector("events", name).wire()), "{name}");
    }
    // The table lacks the frames `start` and `cancel`, which the runtime creates itself.
    assert_eq!(table.len() + 2, vectors("events").len());
    for event in [
        Event::Run,
        Event::Drain { id },
        Event::HookGone { number: 1 },
    ] {
        assert_eq!(written(&event, 1, known), None, "{event:?}");
    }
}

#[test]
fn a_hello_is_answered_by_what_both_sides_have() {
    let offer = AppDescription {
        app: "chat",
        instance: 1,
        limits: FrameLimits::default(),
        options: None,
    };
    let hello = |events: &[&str], versions: &[u32], concurrency| HelloHead {
        kind: FrameKind::Hello,
        versions: versions.to_vec(),
        sdk: "".into(),
        pid: None,
        codecs: vec!["msgpack".to_owned()],
        events: events.iter().map(|&name| name.to_owned()).collect(),
        concurrency,
    };
    let mut wire = Vec::new();
    let events = ["close", "message", "moon_landing", "open"];
    let welcome = offer
        .answer(&hello(&events, &[3, 1], 1))
        .expect("a version in common");
    encode(&mut wire, FrameLimits::default(), &welcome, &[]).expect("it is short");
    assert_eq!(wire, vector("hello", "welcome").wire());
    let refused = offer
        .answer(&hello(&events, &[2], 1))
        .expect_err("it speaks another version");
    wire.clear();
    encode(&mut wire, FrameLimits::default(), &refused, &[]).expect("it is short");
    assert_eq!(wire, vector("hello", "refuse").wire());
    let idle = offer
        .answer(&hello(&events, &[1], 0))
        .expect_err("it takes nothing");
    assert!(idle.message.contains("concurrency"), "{idle:?}");
}

#[test]
fn names_of_events_are_those_of_frames() {
    for event in EventName::ALL {
        assert_eq!(serde_json::json!(event), event.name());
    }
}
