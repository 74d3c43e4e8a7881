//! A VM for tests that runs a script and collects its effects.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod replies;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use veche_script::{
    AppRole, AppWorld, ByteSpan, ConnectionId, Effect, Effects, HandlerProgress, HandshakeReply,
    Level, LoadError, MessageKind, Now, Request, ScriptApp, ScriptLimits, SourceCode, Token, Vm,
    WaitResult,
};
use veche_types::WorkerId;

pub(crate) const ANN: ConnectionId = ConnectionId {
    index: 3,
    generation: 1,
};
pub(crate) const BOB: ConnectionId = ConnectionId {
    index: 0,
    generation: 7,
};

/// A folder for one test, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("veche-script-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn limits() -> ScriptLimits {
    ScriptLimits {
        memory_bytes_max: 32 << 20,
        // The budget is long, since the machine may be busy with other tests.
        cpu_budget: Duration::from_millis(200),
        ..ScriptLimits::default()
    }
}

/// Returns the token of the call that an effect begins; `None` for other effects.
pub(crate) fn token_of(effect: &Effect) -> Option<Token> {
    match effect {
        Effect::Call { token, .. }
        | Effect::Inquire { token, .. }
        | Effect::Find { token, .. }
        | Effect::Command { token, .. } => Some(*token),
        _ => None,
    }
}

/// A VM that runs a script.
pub(crate) struct Bench {
    pub(crate) vm: Vm,
    pub(crate) now: Now,
    pub(crate) folder: Folder,
    effects: Effects,
}

pub(crate) fn load(folder: &Folder, script: &str, limits: ScriptLimits) -> Result<Vm, LoadError> {
    load_as(AppRole::Clients, folder, script, limits)
}

fn load_as(
    role: AppRole,
    folder: &Folder,
    script: &str,
    limits: ScriptLimits,
) -> Result<Vm, LoadError> {
    load_in(&AppWorld::with_virtual_time(), role, folder, script, limits)
}

fn load_in(
    world: &AppWorld,
    role: AppRole,
    folder: &Folder,
    script: &str,
    limits: ScriptLimits,
) -> Result<Vm, LoadError> {
    let path = folder.write("app.lua", script);
    let app = ScriptApp {
        name: "test".into(),
        options: serde_json::json!({"greeting": "hello", "list": [1, 2], "nothing": null}),
        has_files: !script.contains("-- without files"),
        databases: Arc::default(),
        limits,
        role,
    };
    let code = Arc::new(SourceCode::read(&path)?);
    Vm::new(&app, &code, world, WorkerId(0))
}

/// Returns the error that loading an invalid script gives.
pub(crate) fn load_error(script: &str) -> String {
    match load(&Folder::new(), script, limits()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

impl Bench {
    pub(crate) fn new(script: &str) -> Self {
        Self::with(script, limits())
    }

    pub(crate) fn with(script: &str, limits: ScriptLimits) -> Self {
        Self::in_folder(Folder::new(), script, limits)
    }

    pub(crate) fn in_folder(folder: Folder, script: &str, limits: ScriptLimits) -> Self {
        let mut vm = load(&folder, script, limits).unwrap_or_else(|error| panic!("{error}"));
        vm.turn(Now::default());
        Self {
            vm,
            now: Now::default(),
            folder,
            effects: Effects::default(),
        }
    }

    /// Creates a VM in this world.
    pub(crate) fn in_world(world: &AppWorld, script: &str, limits: ScriptLimits) -> Self {
        let folder = Folder::new();
        let vm = load_in(world, AppRole::Clients, &folder, script, limits);
        let mut vm = vm.unwrap_or_else(|error| panic!("{error}"));
        vm.turn(Now::default());
        Self {
            vm,
            now: Now::default(),
            folder,
            effects: Effects::default(),
        }
    }

    /// Creates a VM whose turns are measured by the number of runs instead of by time.
    pub(crate) fn counting(script: &str) -> Self {
        let (world, folder) = (AppWorld::counting_runs(), Folder::new());
        let vm = load_in(&world, AppRole::Clients, &folder, script, limits());
        let mut vm = vm.unwrap_or_else(|error| panic!("{error}"));
        vm.turn(Now::default());
        Self {
            vm,
            now: Now::default(),
            folder,
            effects: Effects::default(),
        }
    }

    /// Replaces the code as a reload does. The effects of the older code are returned by [`Self::effect_lines`] too.
    pub(crate) fn reload(&mut self, world: &AppWorld, script: &str) -> Vm {
        let vm = load_in(world, AppRole::Clients, &self.folder, script, limits());
        let mut older = vm.unwrap_or_else(|error| panic!("{error}"));
        std::mem::swap(&mut self.vm, &mut older);
        self.vm.adopt();
        older.move_calls_to(&mut self.vm, self.now);
        older.stop(self.now);
        older
    }

    /// Creates a VM in this world with the default limits.
    pub(crate) fn within(world: &AppWorld, script: &str) -> Self {
        let folder = Folder::new();
        let vm = load_in(world, AppRole::Clients, &folder, script, limits());
        let mut vm = vm.unwrap_or_else(|error| panic!("{error}"));
        vm.turn(Now::default());
        Self {
            vm,
            now: Now::default(),
            folder,
            effects: Effects::default(),
        }
    }

    /// Creates a VM for the second of three instances of a service, and starts it.
    pub(crate) fn service(script: &str) -> Self {
        let role = AppRole::Service {
            instance: 2,
            instances: 3,
        };
        let folder = Folder::new();
        let vm = load_as(role, &folder, script, limits()).unwrap_or_else(|error| panic!("{error}"));
        let mut bench = Self {
            vm,
            now: Now::default(),
            folder,
            effects: Effects::default(),
        };
        bench.vm.turn(bench.now);
        bench.vm.serve(bench.now);
        bench
    }

    /// Runs `body` in `app.start` and returns the lines that it printed.
    pub(crate) fn run(body: &str) -> Vec<String> {
        let mut bench = Self::new(&format!(
            "local veche = require 'veche'\nlocal app = {{}}\nfunction app.start()\n{body}\nend\nreturn app"
        ));
        bench.pass_time();
        bench.effect_lines()
    }

    pub(crate) fn open(&mut self, id: ConnectionId) -> HandlerProgress {
        self.vm.turn(self.now);
        self.vm.opened(id, request("GET", "/ws", ""), self.now)
    }

    pub(crate) fn text(&mut self, id: ConnectionId, text: &str) -> HandlerProgress {
        self.vm.turn(self.now);
        self.vm
            .message(id, MessageKind::Text, text.as_bytes(), self.now)
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.vm.closed(id, 1001, "bye", self.now);
    }

    /// Reports to the VM that the outgoing connection `server` is closed.
    pub(crate) fn close_of(&mut self, server: ConnectionId) {
        self.vm.closed(server, 1006, "", self.now);
    }

    pub(crate) fn advance(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.vm.turn(self.now);
    }

    /// Advances the time until there are effects, and returns their lines. Effects whose lines begin with `ready ` are
    /// ignored.
    pub(crate) fn next_effect_lines(&mut self) -> Vec<String> {
        for _ in 0..1000 {
            self.advance(1);
            let mut effects = self.effect_lines();
            effects.retain(|line| !line.starts_with("ready "));
            if !effects.is_empty() {
                return effects;
            }
        }
        panic!("nothing comes of it")
    }

    pub(crate) fn pass_some_turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.advance(1);
        }
    }

    /// Advances the time until no more effects arrive, at most one hour.
    pub(crate) fn pass_time(&mut self) {
        for round in 0..50_000 {
            // Files are read in threads, whose work takes real time.
            if round % 10 == 9 && round > 1000 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let due = self.vm.deadline_ms();
            if due > self.now.mono_ms + 3_600_000 {
                return;
            }
            self.now.mono_ms = self.now.mono_ms.max(due);
            self.vm.turn(self.now);
        }
        panic!("there is always something left to do");
    }

    pub(crate) fn answer(&mut self, token: Token, answer: WaitResult) {
        self.vm.answer(token, &answer, self.now);
    }

    /// Returns the effects, each as a line.
    pub(crate) fn effect_lines(&mut self) -> Vec<String> {
        self.effects().into_iter().map(|(line, _)| line).collect()
    }

    /// Returns the bytes of the effect that was returned last.
    pub(crate) fn bytes(&self, span: ByteSpan) -> &[u8] {
        self.effects.bytes(span)
    }

    /// Returns the effects with their lines, without cloning the effects; calls have an empty line.
    pub(crate) fn take_effects(&mut self) -> Vec<(String, Effect)> {
        self.effects.clear();
        self.vm.take_effects(&mut self.effects);
        let list = std::mem::take(&mut self.effects.list);
        let line = |effect: &Effect| match effect {
            Effect::Call { .. } => String::new(),
            other => words(other, &self.effects),
        };
        list.into_iter()
            .map(|effect| (line(&effect), effect))
            .collect()
    }

    pub(crate) fn effects(&mut self) -> Vec<(String, Effect)> {
        self.effects.clear();
        self.vm.take_effects(&mut self.effects);
        let list = self.effects.list.clone();
        list.into_iter()
            .map(|effect| (words(&effect, &self.effects), effect))
            .collect()
    }
}

pub(crate) fn request(method: &str, path: &str, query: &str) -> Request {
    Request::new(method, path, query, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn name(id: ConnectionId) -> String {
    match id {
        ANN => "ann".into(),
        BOB => "bob".into(),
        other => format!("{other:?}"),
    }
}

fn words(effect: &Effect, effects: &Effects) -> String {
    let text = |span| String::from_utf8_lossy(effects.bytes(span)).into_owned();
    match effect {
        Effect::Send { to, kind, data } => {
            format!("send {} {} {}", name(*to), kind.name(), text(*data))
        }
        Effect::Close { of, code, reason } => format!("close {} {code} {reason}", name(*of)),
        Effect::SendFar {
            worker, to, data, ..
        } => {
            format!(
                "send {worker}.{}.{} {}",
                to.index,
                to.generation,
                text(*data)
            )
        }
        Effect::CloseFar {
            worker, of, code, ..
        } => {
            format!("close {worker}.{}.{} {code}", of.index, of.generation)
        }
        Effect::Subscribe {
            connection,
            channel,
            ..
        } => format!("subscribe {} {channel}", name(*connection)),
        Effect::Unsubscribe {
            connection,
            channel,
        } => format!("unsubscribe {} {channel}", name(*connection)),
        Effect::Renew { connection, .. } => format!("renew {}", name(*connection)),
        Effect::Publish {
            channel,
            kind,
            data,
            ..
        } => format!(
            "publish {channel} {} {}",
            kind.message_kind().name(),
            text(*data)
        ),
        Effect::Respond {
            to,
            status,
            headers,
            body,
        } => {
            let headers: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            format!(
                "respond {} {status} [{}] {}",
                name(*to),
                headers.join("; "),
                text(*body)
            )
        }
        Effect::RespondFile {
            to,
            status,
            headers,
            path,
        } => format!("file {} {status} {headers:?} {path}", name(*to)),
        Effect::Begin {
            to,
            status,
            headers,
        } => {
            let headers: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            format!("begin {} {status} [{}]", name(*to), headers.join("; "))
        }
        Effect::Part { to, data, token } => {
            let asks = if token.is_some() { " ?" } else { "" };
            format!("part {} {}{asks}", name(*to), text(*data))
        }
        Effect::End { to, is_whole } => match is_whole {
            true => format!("end {}", name(*to)),
            false => format!("break off {}", name(*to)),
        },
        Effect::Handshake { of, reply } => match reply {
            HandshakeReply::Accept { user, protocol } => {
                format!("accept {} {user:?} {protocol:?}", name(*of))
            }
            HandshakeReply::Refuse { status, body, .. } => {
                format!(
                    "refuse {} {status} {}",
                    name(*of),
                    String::from_utf8_lossy(body)
                )
            }
        },
        Effect::Dial { dial, .. } => format!(
            "dial {} {} {} [{}]",
            dial.address, dial.authority, dial.target, dial.protocols
        ),
        Effect::HangUp { .. } => "hang up".into(),
        Effect::Ready { of } => format!("ready {}", name(*of)),
        Effect::Find { user, limit, .. } => format!("find {user} {limit}"),
        Effect::Inquire {
            channel, request, ..
        } => format!("ask {channel} {request:?}"),
        Effect::Command { method, body, .. } => format!("api {method} {}", text(*body)),
        Effect::Call { call, .. } => format!("call {call:?}"),
        Effect::CancelCall { .. } => "cancel call".to_owned(),
        Effect::Hook { number, response } => format!("rule {number} {response:?}"),
        Effect::Failed { of } => format!("failed {}", name(*of)),
        Effect::Log { level, text, .. } => match level {
            Level::Info => text.clone(),
            other => format!("{other:?}: {text}"),
        },
    }
}
