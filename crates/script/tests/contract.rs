//! Tests that the requests of a script and the requests of a worker process become the same effects.

mod support;

use std::sync::Arc;

use support::{ANN, Folder};
use veche_runtime::hooks::{AppHookCaller, AppHookRequest, Hook};
use veche_runtime::wire::{CallBridge, EffectBuilder, EventName, EventOrigin, Frame, FromWorker};
use veche_runtime::{
    Attribute, Effect, Effects, Event, HandlerProgress, Host, Request, Runtime, Token,
};
use veche_script::{AppRole, MessageKind, Now, Program, Script, ScriptApp, SourceCode};
use veche_store::Store;
use veche_types::{PayloadKind, PayloadRef, WorkerId};

const SCRIPT: &str = r#"
    local veche = require "veche"
    local app = { centrifuge = {} }
    function app.handshake(req)
      if req.path == "/closed" then return 403, { ["Content-Type"] = "text/plain" }, "no" end
      return { user = "ann", protocol = "chat.v1" }
    end
    function app.message(conn, data)
      if data == "echo" then return conn:send("hello") end
      if data == "far" then return veche.connection("1.8.2"):close(4001, "bye") end
      if data == "tell" then
        veche.push("bob", "hi")
        veche.publish("room:1", { a = 1 })
        return
      end
      error "unknown"
    end
    function app.request(req)
      return 201, { ["Content-Type"] = "application/json" }, '{"id":1}'
    end
    function app.centrifuge.rpc(client, method, data)
      if method == "sum" then return { data = { 3 } } end
      return { error = { code = 404, message = "no such method" } }
    end
    return app
"#;

fn script(folder: &Folder) -> Script {
    let path = folder.write("app.lua", SCRIPT);
    let program = Program {
        app: ScriptApp {
            name: "test".into(),
            options: serde_json::Value::Null,
            has_files: false,
            databases: Arc::default(),
            limits: support::limits(),
            role: AppRole::Clients,
        },
        code: Arc::new(SourceCode::read(&path).expect("a script")),
        store: Arc::new(Store::default()),
        seed: None,
        load_run: None,
    };
    let mut script = Script::start(&program, &Host::default(), WorkerId(0)).expect("it loads");
    script.turn(Now::default());
    script
}

struct Own;

impl CallBridge for Own {
    fn token(&mut self) -> Token {
        Token(0)
    }

    fn set_attribute(&mut self, _: veche_calls::WorkerConnection, _: &str, _: Option<Attribute>) {}
}

/// Returns the effects of a worker process's response.
fn of_worker(origin: EventOrigin, event: EventName, head: &str, payload: &[u8]) -> Effects {
    let frame = Frame {
        head: head.as_bytes(),
        payload,
    };
    let mut effects = Effects::default();
    let carrier = EffectBuilder {
        worker: WorkerId(0),
        origin,
    };
    match FromWorker::read(frame, |_| Some(event)) {
        Ok(FromWorker::Handled(handled)) => carrier
            .add_effects(handled, &mut Own, &mut effects)
            .expect("there is room"),
        other => panic!("{other:?}"),
    }
    effects
}

fn effect_lines(mut effects: Effects) -> Vec<String> {
    let (list, bytes) = effects.drain();
    let lines = list.filter_map(|effect| match effect {
        Effect::Send { to, kind, data } => {
            Some(format!("send {to:?} {kind:?} {:?}", data.of(bytes)))
        }
        Effect::Publish {
            channel,
            kind,
            data,
        } => Some(format!("publish {channel} {kind:?} {:?}", data.of(bytes))),
        Effect::Respond {
            to,
            status,
            headers,
            body,
        } => Some(format!(
            "respond {to:?} {status} {headers:?} {:?}",
            body.of(bytes)
        )),
        // Log lines are not compared, since only a script has a traceback. `Ready` is not compared,
        // since a worker process always causes it, but a script only after a handler that waited.
        Effect::Log { .. } | Effect::Ready { .. } => None,
        other => Some(format!("{other:?}")),
    });
    lines.collect()
}

#[test]
fn a_script_and_a_worker_process_have_the_same_effects() {
    let folder = Folder::new();
    let mut script = script(&folder);
    let (now, id) = (Now::default(), ANN);
    let request = |path: &str| Box::new(Request::new("GET", path, "", [127, 0, 0, 1].into()));
    let text = |data: &'static str| Event::Message {
        id,
        kind: MessageKind::Text,
        data: data.as_bytes(),
    };
    let asked = |subject| AppHookRequest {
        hook: Hook::Rpc,
        caller: AppHookCaller {
            id: "0.3.1",
            user: "ann",
            transport: "websocket",
            protocol: "json",
            name: "js",
            version: "5.3",
            remote: [127, 0, 0, 1].into(),
            headers: &[],
            meta: None,
        },
        subject,
        code: 0,
        token: "",
        channels: &[],
        data: Some(PayloadRef {
            kind: PayloadKind::Json,
            bytes: b"[1,2]",
        }),
    };
    let (sum, other) = (asked("sum"), asked("other"));
    let (handshake, message) = (EventOrigin::Handshake(id), EventOrigin::Connection(id));
    let (rpc, name) = (EventOrigin::Hook(7), EventName::Message);
    let hook = |request| Event::Hook { number: 7, request };
    let table: Vec<(Event<'_>, EventOrigin, EventName, &str, &str)> = vec![
        (
            Event::Handshake {
                id,
                request: request("/closed"),
            },
            handshake,
            EventName::Open,
            r#"{"type":"answer","id":1,"reply":{"status":403,"headers":[["Content-Type","text/plain"]],"body":0}}"#,
            "no",
        ),
        (
            Event::Handshake {
                id,
                request: request("/"),
            },
            handshake,
            EventName::Open,
            r#"{"type":"answer","id":1,"reply":{"user":"ann","protocol":"chat.v1"}}"#,
            "",
        ),
        (
            text("echo"),
            message,
            name,
            r#"{"type":"answer","id":1,"effects":[{"effect":"send","data":0}]}"#,
            "hello",
        ),
        (
            text("far"),
            message,
            name,
            r#"{"type":"answer","id":1,"effects":[{"effect":"close","connection":"1.8.2","code":4001,"reason":"bye"}]}"#,
            "",
        ),
        (
            text("tell"),
            message,
            name,
            r#"{"type":"answer","id":1,"effects":[{"effect":"push","user":"bob","data":0},{"effect":"publish","channel":"room:1","data_kind":"json","data":1}],"parts":[2,7]}"#,
            r#"hi{"a":1}"#,
        ),
        (
            text("unknown"),
            message,
            name,
            r#"{"type":"answer","id":1,"failed":"unknown"}"#,
            "",
        ),
        (
            Event::Request {
                id,
                request: request("/"),
            },
            EventOrigin::Request(id),
            EventName::Request,
            r#"{"type":"answer","id":1,"reply":{"status":201,"headers":[["Content-Type","application/json"]],"body":0}}"#,
            r#"{"id":1}"#,
        ),
        (
            hook(&sum),
            rpc,
            EventName::Rpc,
            r#"{"type":"answer","id":1,"reply":{"result":{"data":0}}}"#,
            "[3]",
        ),
        (
            hook(&other),
            rpc,
            EventName::Rpc,
            r#"{"type":"answer","id":1,"reply":{"error":{"code":404,"message":"no such method"}}}"#,
            "",
        ),
    ];
    let mut of_script = |event: Event<'_>| {
        let what = format!("{event:?}");
        let progress = script.handle_event(event, now);
        assert_eq!(progress, HandlerProgress::Done, "{what}");
        let mut effects = Effects::default();
        script.take_effects(&mut effects);
        (what, effect_lines(effects))
    };
    let open = Event::Open {
        id,
        request: request("/"),
    };
    assert!(of_script(open).1.is_empty());
    for (event, origin, name, head, payload) in table {
        // After a failed message the connection receives no more messages, so the row whose message
        // fails follows all other rows with messages in `table`.
        let (what, effects) = of_script(event);
        assert!(!effects.is_empty(), "{what}");
        let worker = of_worker(origin, name, head, payload.as_bytes());
        assert_eq!(effects, effect_lines(worker), "{what}");
    }
}
