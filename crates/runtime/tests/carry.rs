//! Tests the effects of the worker frames in the test vectors.

mod support;

use support::vector;
use veche_calls::{CallError, CallErrorKind, CallReply, WorkerConnection, channel::ChannelReply};
use veche_runtime::hooks::{Grant, HookResponse, ServerSubscription};
use veche_runtime::wire::{
    CallBridge, EffectBuilder, EventConnection, EventOrigin, Frame, FrameDecoder, FrameLimits,
    FromWorker, ResultHead, encode,
};
use veche_runtime::{
    Attribute, Attributes, Effect, Effects, HandshakeReply, Level, Request, Token, WaitResult,
};
use veche_types::{ConnectionId, Payload, PayloadKind, PayloadRef, WorkerId};

const ANN: ConnectionId = ConnectionId {
    index: 3,
    generation: 1,
};

/// A bridge that numbers tokens and records attributes as text.
#[derive(Default)]
struct Own {
    tokens: u64,
    attributes: Vec<String>,
}

impl CallBridge for Own {
    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    fn set_attribute(&mut self, of: WorkerConnection, name: &str, value: Option<Attribute>) {
        self.attributes.push(format!("{of} {name} {value:?}"));
    }
}

/// Converts the frame of the test vector `name` in `file` to effects, as worker 0 does. Returns the
/// effects as text, and the bridge with the recorded attributes.
fn carried(file: &str, name: &str, origin: EventOrigin) -> (Vec<String>, Own) {
    let vector = vector(file, name);
    let wire = vector.wire();
    let mut decoder = FrameDecoder::new(FrameLimits::default());
    let mut input = &wire[..];
    let frame: Frame<'_> = decoder.decode(&mut input).expect("a frame").expect("whole");
    let read = FromWorker::read(frame, |id| vector.in_hand(id)).expect("a frame of a worker");
    let (mut own, mut effects) = (Own::default(), Effects::default());
    let carrier = EffectBuilder {
        worker: WorkerId(0),
        origin,
    };
    match read {
        FromWorker::Handled(handled) => carrier
            .add_effects(handled, &mut own, &mut effects)
            .expect("there is room"),
        FromWorker::Call(call) => {
            let is_effect = carrier.add_call(call, Token(77), &mut effects);
            assert_eq!(is_effect, Ok(!effects.is_empty()), "{name}");
        }
        other => panic!("{name}: {other:?}"),
    }
    let (list, bytes) = effects.drain();
    let lines = list.map(|effect| effect_line(&effect, bytes)).collect();
    (lines, own)
}

fn effect_line(effect: &Effect, bytes: &[u8]) -> String {
    let text =
        |span: &veche_runtime::ByteSpan| String::from_utf8_lossy(span.of(bytes)).into_owned();
    match effect {
        Effect::Send { to, kind, data } => format!(
            "send {}.{} {kind:?} {}",
            to.index,
            to.generation,
            text(data)
        ),
        Effect::SendFar {
            worker, to, data, ..
        } => format!(
            "send far {worker}.{}.{} {}",
            to.index,
            to.generation,
            text(data)
        ),
        Effect::Publish {
            channel,
            kind,
            data,
        } => format!("publish {channel} {kind:?} {}", text(data)),
        Effect::Subscribe {
            connection,
            channel,
            place,
            token,
        } => format!(
            "subscribe {} {channel} {place:?} {}",
            connection.index, token.0
        ),
        Effect::Unsubscribe {
            connection,
            channel,
        } => format!("unsubscribe {} {channel}", connection.index),
        Effect::Close { of, code, reason } => format!("close {} {code} {reason}", of.index),
        Effect::CloseFar {
            worker,
            of,
            code,
            reason,
        } => format!("close far {worker}.{} {code} {reason}", of.index),
        Effect::Respond {
            to,
            status,
            headers,
            body,
        } => format!("respond {} {status} {headers:?} {}", to.index, text(body)),
        Effect::RespondFile {
            to, status, path, ..
        } => format!("file {} {status} {path}", to.index),
        Effect::Begin {
            to,
            status,
            headers,
        } => format!("begin {} {status} {headers:?}", to.index),
        Effect::Part { to, data, token } => format!("part {} {} {token:?}", to.index, text(data)),
        Effect::End { to, is_whole } => format!("end {} {is_whole}", to.index),
        Effect::Handshake { of, reply } => match reply {
            HandshakeReply::Accept { user, protocol } => {
                format!("accept {} {user:?} {protocol:?}", of.index)
            }
            HandshakeReply::Refuse {
                status,
                headers,
                body,
            } => format!(
                "refuse {} {status} {headers:?} {}",
                of.index,
                String::from_utf8_lossy(body)
            ),
        },
        Effect::Hook { number, response } => format!("hook {number} {response:?}"),
        Effect::Ready { of } => format!("ready {}", of.index),
        Effect::Failed { of } => format!("failed {}", of.index),
        Effect::Log { level, text, .. } => format!("log {level:?} {text}"),
        Effect::Command {
            method,
            body,
            token,
        } => format!("command {method} {} {}", text(body), token.0),
        Effect::Find { user, limit, token } => format!("find {user} {limit} {}", token.0),
        Effect::Renew {
            connection,
            credential,
            token,
        } => format!("renew {} {} {}", connection.index, credential.0, token.0),
        other => format!("{other:?}"),
    }
}

#[test]
fn answers_lead_to_effects_of_the_contract() {
    let (message, request, open) = (
        EventOrigin::Connection(ANN),
        EventOrigin::Request(ANN),
        EventOrigin::Handshake(ANN),
    );
    let plain = r#"[("Content-Type", "text/plain; charset=utf-8")]"#;
    let table: &[(&str, EventOrigin, &[&str])] = &[
        ("nothing to do", message, &["ready 3"]),
        ("an echo", message, &["send 3.1 Text hello", "ready 3"]),
        (
            "an echo, binary",
            message,
            &["send 3.1 Binary \0\u{fffd}", "ready 3"],
        ),
        (
            "one part to several connections",
            message,
            &["send 3.1 Text news", "send far 1.8.2 news", "ready 3"],
        ),
        (
            "parts of their own",
            message,
            &[
                "send 3.1 Text hello",
                "publish #bob Text ",
                "publish room:1 Json {\"a\":1}",
                "ready 3",
            ],
        ),
        (
            "subscriptions",
            message,
            &[
                "subscribe 3 room:1 None 1",
                "unsubscribe 3 room:2",
                "unsubscribe 8 room:2",
                "ready 3",
            ],
        ),
        (
            "close",
            message,
            &["close 3 1000 ", "close far 1.8 4001 bye", "ready 3"],
        ),
        (
            "lines for the log",
            message,
            &["log Info hello", "log Warn two\nlines", "ready 3"],
        ),
        (
            "a handler that failed",
            message,
            &[
                "send 3.1 Text before",
                "log Error app.php:12: Uncaught TypeError",
                "failed 3",
            ],
        ),
        ("open, accepted", open, &["accept 3 None None"]),
        (
            "open, accepted with a user, a subprotocol and a subscription",
            open,
            &[
                "subscribe 3 room:7 None 1",
                "accept 3 Some(\"ann\") Some(\"chat.v1\")",
            ],
        ),
        (
            "open, refused",
            open,
            &["refuse 3 403 [(\"Content-Type\", \"text/plain\")] no"],
        ),
        (
            "a response",
            request,
            &[
                "respond 3 201 [(\"Content-Type\", \"application/json\"), (\"Set-Cookie\", \"a=1\"), (\"Set-Cookie\", \"b=2\")] {\"id\":1}",
            ],
        ),
        ("a response without a body", request, &["respond 3 204 [] "]),
        (
            "a response with a file",
            request,
            &["file 3 200 pages/a.html"],
        ),
        (
            "the beginning of a response in parts",
            request,
            &[
                "begin 3 200 [(\"Content-Type\", \"text/csv\")]",
                "part 3 a,b\n None",
            ],
        ),
        ("its end", request, &["part 3 1,2\n None", "end 3 true"]),
        ("a response that breaks off", request, &["end 3 false"]),
        (
            "effects of no event",
            EventOrigin::Worker,
            &["publish #ann Text reminder"],
        ),
        (
            "client_message, heard",
            EventOrigin::Hook(9),
            &[
                "hook 9 Granted(Grant { user: \"\", expires_at_s: None, is_expired: false, info: None, data: None, channels: [], meta: None, skips_history: false })",
            ],
        ),
        (
            "rpc, an error",
            EventOrigin::Hook(9),
            &["hook 9 Error { code: 404, message: \"no such method\", is_temporary: false }"],
        ),
        (
            "subscribe, disconnect",
            EventOrigin::Hook(9),
            &["hook 9 Disconnect { code: 4500, reason: \"not you\" }"],
        ),
    ];
    for (name, origin, expected) in table {
        let (lines, own) = carried("answers", name, *origin);
        assert_eq!(lines, *expected, "{name}");
        assert!(
            own.attributes.is_empty() || name.contains("accepted with"),
            "{name}"
        );
    }
    // A failed handler still produces an answer, for every kind of event.
    let failed = |origin| carried("answers", "a handler that failed", origin).0.pop();
    let expected = format!("refuse 3 500 {plain} internal error\n");
    assert_eq!(failed(open), Some(expected));
    let expected = format!("respond 3 500 {plain} internal error\n");
    assert_eq!(failed(request), Some(expected));
    let hook = carried("answers", "disconnect, heard", EventOrigin::Hook(3)).0;
    assert_eq!(hook[0], "publish room:1 Text ann is gone");
}

#[test]
fn attributes_are_kept_by_the_runtime() {
    let (lines, own) = carried("answers", "attributes", EventOrigin::Connection(ANN));
    assert_eq!(lines, ["ready 3"]);
    let expected = [
        "0.3.1 admin Some(Boolean(true))",
        "0.3.1 gone None",
        "0.3.1 name Some(Bytes([65, 110, 110]))",
        "0.3.1 score Some(Number(1.5))",
        "0.3.1 visits Some(Number(3.0))",
    ];
    assert_eq!(own.attributes, expected);
}

fn payload(kind: PayloadKind, bytes: &[u8]) -> Payload {
    PayloadRef { kind, bytes }.to_payload()
}

#[test]
fn grants_are_those_of_any_runtime() {
    let (lines, _) = carried("answers", "connect, granted", EventOrigin::Hook(4));
    let name = || Some(payload(PayloadKind::Json, br#"{"name":"Ann"}"#));
    let given = |channel: &str| ServerSubscription {
        channel: channel.to_owned(),
        ..ServerSubscription::default()
    };
    let response = HookResponse::Granted(Box::new(Grant {
        user: "ann".to_owned(),
        expires_at_s: Some(1_800_000_000),
        info: name(),
        data: Some(payload(PayloadKind::Json, b"[]")),
        channels: vec![
            given("news"),
            ServerSubscription {
                info: name(),
                data: Some(payload(PayloadKind::Binary, &[1, 2, 3])),
                expires_at_s: Some(1_700_000_000),
                ..given("room:1")
            },
        ],
        meta: Some(payload(PayloadKind::Json, b"{}")),
        ..Grant::default()
    }));
    assert_eq!(lines, [format!("hook 4 {response:?}")]);
    let lines = |name| carried("answers", name, EventOrigin::Hook(4)).0.remove(0);
    assert!(lines("refresh, expired").contains("is_expired: true"));
    let publish = lines("publish, changed and not kept");
    assert!(publish.contains("skips_history: true"), "{publish}");
}

#[test]
fn calls_are_effects_whose_answer_is_a_result() {
    let request = EventOrigin::Request(ANN);
    let table: &[(&str, EventOrigin, &[&str])] = &[
        (
            "api",
            request,
            &["command presence {\"channel\":\"room:1\"} 77"],
        ),
        (
            "api, of no event and without a body",
            EventOrigin::Worker,
            &["command info  77"],
        ),
        ("connections", EventOrigin::Worker, &["find ann 10 77"]),
        // The runtime answers the call `connection` itself, so the call has no effect.
        ("connection", request, &[]),
        ("renew", EventOrigin::Worker, &["renew 3 eyJ 77"]),
        ("part", request, &["part 3 x Some(Token(77))"]),
    ];
    for (name, origin, expected) in table {
        assert_eq!(carried("calls", name, *origin).0, *expected, "{name}");
    }
    let (lines, _) = carried("calls", "subscribe", EventOrigin::Handshake(ANN));
    assert!(
        lines[0].starts_with("subscribe 3 room:1 Some(PositionRequest { since: Some("),
        "{lines:?}"
    );
    let wire = |head: &ResultHead<'_>, payload: &[u8]| {
        let mut wire = Vec::new();
        encode(&mut wire, FrameLimits::default(), head, &[payload]).expect("it is short");
        wire
    };
    let outcome = |id, outcome: Result<CallReply, CallError>| {
        let (head, payload) = ResultHead::of_outcome(id, &outcome);
        wire(&head, &payload)
    };
    let place = |worker, index, generation| WorkerConnection {
        worker,
        connection: ConnectionId { index, generation },
    };
    let places = CallReply::Places(vec![place(WorkerId(0), 3, 1), place(WorkerId(1), 8, 2)]);
    let joined = CallReply::Channel(ChannelReply::Joined {
        position: Some(("28t5cy4t".to_owned(), 44)),
        recovered: Some(true),
    });
    let refused = CallError::new(CallErrorKind::Refused, "no such namespace");
    let mut attributes = Attributes::default();
    let visits = attributes.set("visits", Some(Attribute::Number(3.0)));
    visits.expect("there is room");
    let known = EventConnection {
        worker: WorkerId(0),
        user: Some("ann"),
        attributes: Some(&attributes),
    };
    let opening = Request::new("GET", "/", "", [127, 0, 0, 1].into());
    let closed = ResultHead {
        open: Some(false),
        ..ResultHead::new(4)
    };
    let table = [
        (
            "the result of api",
            outcome(
                1,
                Ok(CallReply::Api(br#"{"result":{"presence":{}}}"#.to_vec())),
            ),
        ),
        ("the result of connections", outcome(3, Ok(places))),
        (
            "the result of connections, none",
            outcome(3, Ok(CallReply::Places(Vec::new()))),
        ),
        (
            "the result of connection",
            wire(&ResultHead::connection(4, known, &opening), b""),
        ),
        ("the result of connection, closed", wire(&closed, b"")),
        ("the result of subscribe", outcome(5, Ok(joined))),
        (
            "the result of subscribe, without history",
            wire(&ResultHead::of_answer(5, &WaitResult::Done), b""),
        ),
        (
            "the result of renew",
            wire(&ResultHead::of_answer(6, &WaitResult::Number(3600.0)), b""),
        ),
        (
            "the result of part",
            wire(&ResultHead::of_answer(7, &WaitResult::Done), b""),
        ),
        ("a call that failed", outcome(5, Err(refused))),
        (
            "a call that failed",
            wire(
                &ResultHead::of_answer(5, &WaitResult::Failed("no such namespace".to_owned())),
                b"",
            ),
        ),
    ];
    for (name, wire) in table {
        assert_eq!(wire, vector("calls", name).wire(), "{name}");
    }
}

#[test]
fn effects_without_room_are_reported() {
    let mut effects = Effects::default();
    effects.log(Level::Info, "kept".to_owned(), None);
    let data = vec![b'x'; 16 << 20];
    let mut taken = 0;
    let no_room = loop {
        let head = br#"{"type":"answer","id":4,"effects":[{"effect":"send","data":0}]}"#;
        let frame = Frame {
            head,
            payload: &data,
        };
        let read = FromWorker::read(frame, |_| Some(veche_runtime::wire::EventName::Message));
        let Ok(FromWorker::Handled(handled)) = read else {
            panic!("{read:?}");
        };
        let carrier = EffectBuilder {
            worker: WorkerId(0),
            origin: EventOrigin::Connection(ANN),
        };
        match carrier.add_effects(handled, &mut Own::default(), &mut effects) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10, "it takes all");
    };
    assert_eq!(taken, 4);
    assert_eq!(
        no_room.to_string(),
        "the handlers' output exceeds 64 MiB or 1048576 effects at once"
    );
}
