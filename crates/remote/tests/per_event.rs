//! Tests that an application's events become requests, and that responses cause their effects.

use std::sync::Arc;
use std::time::Duration;

use veche_calls::{
    Call, CallError, CallErrorKind, CallOutcome, CallReply, FastcgiCall, FastcgiPool, FastcgiReply,
    Secret,
};
use veche_remote::{PerEvent, Program};
use veche_runtime::hooks::{AppHookCaller, AppHookRequest, Hook, HookResponse};
use veche_runtime::wire::EventName;
use veche_runtime::{
    Effect, Effects, Event, EventKind, HandlerProgress, HandshakeReply, Host, Request, Runtime,
    Token,
};
use veche_types::{ConnectionId, MessageKind, Now, WorkerId};

const ANN: ConnectionId = ConnectionId {
    index: 3,
    generation: 1,
};

fn program() -> Program {
    let second = Duration::from_secs(1);
    let pool = FastcgiPool {
        address: "unix:/run/fpm.sock".into(),
        script: "/app.php".into(),
        size: 2,
        connect_timeout: second,
        wait_timeout: second,
        timeout: second,
        idle_timeout: second,
        response_bytes_max: 1000,
    };
    Program {
        name: "chat".into(),
        options: "{\"a\":1}".into(),
        pool: Arc::new(pool),
        events: vec![
            EventName::Open,
            EventName::Message,
            EventName::Close,
            EventName::Request,
            EventName::Connect,
        ],
        api: Some(("http://127.0.0.1:8081/".into(), Some(Secret("key".into())))),
    }
}

/// An application, and its effects.
struct World {
    runtime: PerEvent,
    /// The effects of the last call, except requests.
    effects: Vec<String>,
    /// Requests without an outcome.
    asked: Vec<(Token, Box<FastcgiCall>)>,
}

fn now() -> Now {
    Now::default()
}

impl World {
    fn new() -> Self {
        let Ok(runtime) = PerEvent::start(&program(), &Host::default(), WorkerId(0));
        Self {
            runtime,
            effects: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn hear(&mut self, event: Event<'_>) -> HandlerProgress {
        let progress = self.runtime.handle_event(event, now());
        self.take();
        progress
    }

    fn take(&mut self) {
        self.effects.clear();
        let mut effects = Effects::default();
        self.runtime.take_effects(&mut effects);
        let (list, bytes) = effects.drain();
        for effect in list {
            let line = match effect {
                Effect::Call { call, token } => match *call {
                    Call::Fastcgi(request) => {
                        self.asked.push((token, request));
                        continue;
                    }
                    other => panic!("{other:?}"),
                },
                Effect::CancelCall { token } => {
                    self.asked.retain(|(other, _)| *other != token);
                    "cancel".to_owned()
                }
                Effect::Send { to, data, .. } => {
                    format!(
                        "send {} {}",
                        to.index,
                        String::from_utf8_lossy(data.of(bytes))
                    )
                }
                Effect::Publish { channel, data, .. } => {
                    format!(
                        "publish {channel} {}",
                        String::from_utf8_lossy(data.of(bytes))
                    )
                }
                Effect::Subscribe {
                    connection,
                    channel,
                    ..
                } => {
                    format!("subscribe {} {channel}", connection.index)
                }
                Effect::Handshake { reply, .. } => match reply {
                    HandshakeReply::Accept { user, .. } => format!("accept {user:?}"),
                    HandshakeReply::Refuse { status, .. } => format!("refuse {status}"),
                },
                Effect::Respond { status, body, .. } => {
                    format!(
                        "respond {status} {}",
                        String::from_utf8_lossy(body.of(bytes))
                    )
                }
                Effect::Hook { response, .. } => match response {
                    HookResponse::Failed => "hook failed".to_owned(),
                    other => format!("hook {other:?}"),
                },
                Effect::Ready { .. } => "ready".to_owned(),
                Effect::Failed { .. } => "failed".to_owned(),
                Effect::Close { code, .. } => format!("close {code}"),
                Effect::Log { text, .. } => format!("log {text}"),
                other => panic!("{other:?}"),
            };
            self.effects.push(line);
        }
    }

    /// Ends the oldest request.
    fn outcome(&mut self, outcome: CallOutcome) {
        let (token, _) = self.asked.remove(0);
        self.runtime.handle_outcome(token, outcome, now());
        self.take();
    }

    /// Answers the oldest request. Adds `members` to the head of the answer.
    fn answer(&mut self, members: &str, payload: &str) {
        let Token(id) = self.asked[0].0;
        let head = format!("{{\"type\":\"answer\",\"id\":{id}{members}}}");
        let mut body = Vec::new();
        body.extend_from_slice(&(head.len() as u32).to_le_bytes());
        body.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(payload.as_bytes());
        self.respond(200, body);
    }

    fn respond(&mut self, status: u16, body: Vec<u8>) {
        let log = Vec::new();
        self.outcome(Ok(CallReply::Fastcgi(FastcgiReply { status, body, log })));
    }

    fn fault(&mut self, kind: CallErrorKind) {
        self.outcome(Err(CallError::new(kind, "why")));
    }

    /// Returns the head of the newest request's frame.
    fn head(&self) -> String {
        let (_, request) = self.asked.last().expect("a request");
        let length = u32::from_le_bytes(request.body[..4].try_into().expect("four"));
        String::from_utf8(request.body[8..8 + length as usize].to_vec()).expect("text")
    }

    fn handshake(&mut self) {
        let progress = self.hear(Event::Handshake {
            id: ANN,
            request: request(),
        });
        assert_eq!(progress, HandlerProgress::Waits);
    }

    /// Opens a connection: the application accepts the handshake without further effects.
    fn open(&mut self) {
        self.handshake();
        self.answer("", "");
        assert_eq!(self.effects, ["accept None"]);
        self.hear(Event::Open {
            id: ANN,
            request: request(),
        });
    }

    fn message(&mut self, data: &str) {
        let progress = self.hear(Event::Message {
            id: ANN,
            kind: MessageKind::Text,
            data: data.as_bytes(),
        });
        assert_eq!(progress, HandlerProgress::Waits);
    }

    fn close(&mut self) {
        self.hear(Event::Close {
            id: ANN,
            code: 1001,
            reason: "gone",
        });
    }
}

fn request() -> Box<Request> {
    let mut request = Request::new("GET", "/ws", "user=ann", [127, 0, 0, 1].into());
    request.header("Cookie", "a=1");
    Box::new(request)
}

#[test]
fn a_request_says_which_application_and_client_it_is_of() {
    let mut world = World::new();
    world.handshake();
    let (_, request) = &world.asked[0];
    assert_eq!(
        (&*request.client.path, &*request.client.query),
        ("/ws", "user=ann")
    );
    assert_eq!(
        request.client.headers,
        [("cookie".to_owned(), "a=1".to_owned())]
    );
    let variables: Vec<_> = request
        .variables
        .iter()
        .map(|(name, value)| (*name, &*value.0))
        .collect();
    assert_eq!(
        variables,
        [
            ("VECHE_PROTOCOL", "1"),
            ("VECHE_APP", "chat"),
            ("VECHE_OPTIONS", "{\"a\":1}"),
            ("VECHE_API_URL", "http://127.0.0.1:8081/"),
            ("VECHE_API_KEY", "key"),
        ]
    );
    assert!(
        !format!("{request:?}").contains("key\""),
        "debug output hides the key"
    );
    assert!(
        world
            .head()
            .contains(r#""event":"open","connection":"0.3.1""#),
        "{}",
        world.head()
    );
    assert!(
        world.runtime.handles(EventKind::Handshake) && world.runtime.handles(EventKind::Request)
    );
    assert!(world.runtime.decides_on(Hook::Connect) && !world.runtime.decides_on(Hook::Rpc));
}

#[test]
fn effects_of_a_handshake_count_once_the_connection_is_open() {
    let mut world = World::new();
    world.handshake();
    let effects = r#","effects":[{"effect":"subscribe","channel":"room"},{"effect":"attributes","set":{"n":1}},{"effect":"send","data":0}],"reply":{"user":"ann"}"#;
    world.answer(effects, "welcome");
    assert_eq!(world.effects, ["accept Some(\"ann\")"]);
    let mut opened = request();
    opened.set_user("ann");
    world.hear(Event::Open {
        id: ANN,
        request: opened,
    });
    assert_eq!(world.effects, ["subscribe 3 room", "send 3 welcome"]);
    assert!(world.runtime.is_open(ANN));
    world.message("hello");
    let head = world.head();
    assert!(
        head.contains(r#""user":"ann","attributes":{"n":1}"#),
        "{head}"
    );
    world.answer(r#","effects":[{"effect":"send","data":0}]"#, "hello");
    assert_eq!(world.effects, ["send 3 hello", "ready"]);
}

#[test]
fn a_refusal_is_a_response() {
    let mut world = World::new();
    world.handshake();
    world.answer(r#","reply":{"status":401,"body":0}"#, "who?");
    assert_eq!(world.effects, ["refuse 401"]);
    assert!(world.runtime.has_no_clients());
}

#[test]
fn a_close_waits_for_the_message_before_it() {
    let mut world = World::new();
    world.open();
    world.message("hello");
    world.close();
    assert_eq!(world.asked.len(), 1, "one at a time");
    assert!(!world.runtime.is_open(ANN));
    world.answer(r#","effects":[{"effect":"attributes","set":{"n":2}}]"#, "");
    assert_eq!(world.asked.len(), 1);
    let head = world.head();
    assert!(
        head.contains(r#""event":"close""#) && head.contains(r#""attributes":{"n":2}"#),
        "{head}"
    );
    assert!(head.contains(r#""code":1001,"reason":"gone""#), "{head}");
    world.answer(
        r#","effects":[{"effect":"publish","channel":"room","data":0}]"#,
        "left",
    );
    assert_eq!(world.effects[0], "publish room left");
    assert!(world.runtime.has_no_clients());
}

#[test]
fn where_nothing_has_time_each_event_has_its_outcome() {
    let mut world = World::new();
    world.handshake();
    world.fault(CallErrorKind::PoolFull);
    assert_eq!(world.effects, ["log open: why", "refuse 503"]);
    world.open();
    world.message("hello");
    world.fault(CallErrorKind::PoolFull);
    assert_eq!(world.effects, ["log message: why", "close 1013"]);
    world.close();
    for _ in 0..3 {
        world.fault(CallErrorKind::PoolFull);
        assert_eq!(
            (world.effects.len(), world.asked.len()),
            (0, 1),
            "a close is asked again"
        );
    }
    world.answer("", "");
    assert!(world.runtime.has_no_clients());
    world.hear(Event::Request {
        id: ANN,
        request: request(),
    });
    world.fault(CallErrorKind::PoolFull);
    assert_eq!(
        world.effects,
        ["log request: why", "respond 503 too busy\n"]
    );
}

#[test]
fn a_handler_that_fails_ends_its_connection_alone() {
    for kind in [
        CallErrorKind::Timeout,
        CallErrorKind::ConnectionLost,
        CallErrorKind::Broken,
    ] {
        let mut world = World::new();
        world.open();
        world.message("hello");
        world.fault(kind);
        assert_eq!(world.effects, ["log message: why", "failed"]);
    }
    let mut world = World::new();
    world.open();
    world.message("hello");
    world.answer(
        r#","effects":[{"effect":"send","data":0}],"failed":"app.php:1: oh""#,
        "first",
    );
    assert_eq!(
        world.effects,
        ["send 3 first", "log app.php:1: oh", "failed"]
    );
    world.handshake();
    world.fault(CallErrorKind::Unreachable);
    assert_eq!(world.effects, ["log open: why", "refuse 500"]);
}

#[test]
fn an_invalid_response_fails_the_event_without_effects() {
    let good = |id: u64, members: &str| {
        let head = format!("{{\"type\":\"answer\",\"id\":{id}{members}}}");
        let mut body = (head.len() as u64).to_le_bytes().to_vec();
        body.extend_from_slice(head.as_bytes());
        body
    };
    let send = r#","effects":[{"effect":"publish","channel":"a","data":0}]"#;
    type Body<'a> = &'a dyn Fn(u64) -> (u16, Vec<u8>);
    let rows: [(Body<'_>, &str); 8] = [
        (
            &|_| (500, b"Fatal error".to_vec()),
            "status 500: Fatal error",
        ),
        (
            &|_| (200, b"<b>Warning</b> in app.php".to_vec()),
            "<b>Warning",
        ),
        (&|_| (200, Vec::new()), "no complete answer"),
        (
            &|id| (200, good(id, "")[..20].to_vec()),
            "no complete answer",
        ),
        (
            &|id| (200, good(id + 1, send)),
            "was not sent to the process",
        ),
        (
            &|id| (200, [good(id, send), good(id, "")].concat()),
            "after the end of the answer",
        ),
        (
            &|id| (200, good(id, r#","effects":[{"effect":"dance"}]"#)),
            "dance",
        ),
        (
            &|_| {
                let head = br#"{"type":"call","id":1,"call":"api","method":"info"}"#;
                let mut body = (head.len() as u64).to_le_bytes().to_vec();
                body.extend_from_slice(head);
                (200, body)
            },
            "not allowed in a response",
        ),
    ];
    for (body, why) in rows {
        let mut world = World::new();
        world.open();
        world.message("hello");
        let Token(id) = world.asked[0].0;
        let (status, body) = body(id);
        world.respond(status, body);
        assert_eq!(world.effects.len(), 2, "{:?}", world.effects);
        assert!(world.effects[0].contains(why), "{why}: {:?}", world.effects);
        assert_eq!(world.effects[1], "failed");
    }
}

#[test]
fn a_client_that_is_gone_is_waited_for_no_more() {
    let mut world = World::new();
    world.handshake();
    world.hear(Event::Gone {
        id: ANN,
        is_late: false,
    });
    assert_eq!(world.effects, ["cancel"]);
    assert!(world.runtime.has_no_clients() && world.asked.is_empty());
}

#[test]
fn hooks_are_answered_by_number() {
    let mut world = World::new();
    let caller = AppHookCaller {
        id: "0.3.1",
        user: "",
        transport: "websocket",
        protocol: "json",
        name: "js",
        version: "1",
        remote: [127, 0, 0, 1].into(),
        headers: &[],
        meta: None,
    };
    let hook = AppHookRequest {
        hook: Hook::Connect,
        caller,
        subject: "",
        code: 0,
        token: "",
        channels: &[],
        data: None,
    };
    world.hear(Event::Hook {
        number: 7,
        request: &hook,
    });
    world.answer(r#","reply":{"error":{"code":403,"message":"no"}}"#, "");
    assert!(world.effects[0].contains("403"), "{:?}", world.effects);
    world.hear(Event::Hook {
        number: 8,
        request: &hook,
    });
    world.fault(CallErrorKind::Timeout);
    assert_eq!(world.effects, ["log connect: why", "hook failed"]);
    world.hear(Event::Hook {
        number: 9,
        request: &hook,
    });
    world.hear(Event::HookGone { number: 9 });
    assert_eq!(world.effects, ["cancel"]);
}

#[test]
fn the_end_answers_all() {
    let mut world = World::new();
    world.open();
    world.message("hello");
    world.runtime.handle_event(
        Event::Request {
            id: ConnectionId {
                index: 9,
                generation: 1,
            },
            request: request(),
        },
        now(),
    );
    world.runtime.fail_waiting();
    world.take();
    let mut effects = world.effects.clone();
    effects.sort();
    assert_eq!(
        effects,
        [
            "failed",
            "log message: the application ends",
            "log request: the application ends",
            "respond 500 internal error\n"
        ]
    );
    assert!(world.runtime.is_idle());
}
