//! Runs arbitrary programs in a VM. The VM must not crash or panic and must keep working; errors must be texts.
//!
//! The input encodes a sequence of events: connections, messages, requests, passing time, answers and replies to
//! calls, and reloads. Each message is a program too, which calls any function that scripts can reach;
//! `script/app.lua` runs it.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use veche_calls::{CallError, CallErrorKind, CallReply, Handle, HttpReply, ReplyBody};
use veche_script::{AppRole, AppWorld, Now, Request, Token, Vm};
use veche_script::{
    ConnectionId, Effect, Effects, MessageKind, ScriptApp, ScriptLimits, SourceCode, WaitResult,
};
use veche_types::WorkerId;

/// Maximum number of operations of a script.
const OPERATIONS_MAX: usize = 60;

/// Number of connections of a script.
const CLIENTS: u8 = 4;

/// Maximum number of turns until a VM answers.
const TURNS_MAX: usize = 200;

struct Script<'d>(&'d [u8]);

impl<'d> Script<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes one byte as a length, and returns that many of the following bytes, or all if there are fewer.
    fn bytes(&mut self) -> &'d [u8] {
        let length = usize::from(self.byte().unwrap_or(0));
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// An application, and the tokens that its script waits for.
struct Stage {
    vm: Vm,
    before: Vec<Vm>,
    world: AppWorld,
    now: Now,
    effects: Effects,
    tokens: Vec<Token>,
    open: [Option<ConnectionId>; CLIENTS as usize],
    generation: u32,
    /// The data that the application has recently sent.
    sent: Vec<Vec<u8>>,
    /// Whether the application has run out of memory.
    is_full: bool,
}

/// Runs one script; panics on a finding.
pub fn run(data: &[u8]) {
    let world = AppWorld::default();
    let mut stage = Stage {
        vm: load(&world),
        before: Vec::new(),
        world,
        now: Now::default(),
        effects: Effects::default(),
        tokens: Vec::new(),
        open: [None; CLIENTS as usize],
        generation: 0,
        sent: Vec::new(),
        is_full: false,
    };
    stage.now.wall_ms = 1_700_000_000_000;
    stage.vm.turn(stage.now);
    let mut script = Script(data);
    for _ in 0..OPERATIONS_MAX {
        if stage.operate(&mut script).is_none() {
            break;
        }
        stage.look();
    }
    stage.check_others_served();
    stage.vm.stop(stage.now);
    stage.look();
    stage.vm.finish();
    stage.look();
}

/// Returns the application and its source code, which contains the names of methods and options.
fn app() -> &'static (ScriptApp, Arc<SourceCode>) {
    static APP: OnceLock<(ScriptApp, Arc<SourceCode>)> = OnceLock::new();
    APP.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("veche-fuzz-{}.lua", std::process::id()));
        fs::write(&path, include_str!("script/app.lua")).expect("a file");
        let code = SourceCode::read(&path).expect("a script");
        let app = ScriptApp {
            name: "fuzz".into(),
            options: serde_json::json!({ "names": names() }),
            has_files: true,
            databases: Arc::default(),
            limits: ScriptLimits {
                memory_bytes_max: 24 << 20,
                cpu_budget: Duration::from_millis(100),
                tasks_max: 200,
                ..ScriptLimits::default()
            },
            role: AppRole::default(),
        };
        (app, Arc::new(code))
    })
}

/// Returns the names of methods and fields from the type definitions for editors.
fn names() -> BTreeSet<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [here.join("types"), here.join("../crates/script/types")];
    let folder = folders.iter().find(|folder| folder.is_dir());
    let folder = fs::read_dir(folder.expect("the types")).expect("a folder");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for entry in folder {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        for line in text.lines() {
            let rest = match line.strip_prefix("function ") {
                Some(rest) => rest.split(['.', ':']).nth(1),
                None => line.strip_prefix("---@field "),
            };
            let name = rest.and_then(|rest| rest.split(|c| !is_name(c)).next());
            names.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    assert!(names.len() > 50, "{names:?}");
    names
}

fn load(world: &AppWorld) -> Vm {
    let (app, code) = app();
    Vm::new(app, code, world, WorkerId(0)).unwrap_or_else(|error| panic!("{error}"))
}

fn request(path: &str, program: &[u8]) -> Request {
    let text = String::from_utf8_lossy(program);
    let query = format!("a=b&program={}", text.replace(['&', '+', '%'], "."));
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut request = Request::new("POST", path, &query, address);
    request.header("x-header", "value");
    request.header("cookie", "a=b; c=d");
    request.param("room", "tea");
    request.body = program.to_vec();
    request
}

impl Stage {
    fn operate(&mut self, script: &mut Script<'_>) -> Option<()> {
        let operation = script.byte()?;
        let place = operation / 16 % CLIENTS;
        match operation % 16 {
            0 => self.open(place),
            1..=6 => {
                let program = script.bytes();
                let id = self.client(place);
                self.vm.message(id, MessageKind::Binary, program, self.now);
            }
            7 => {
                let id = self.new_id(8 + place);
                let request = request("/x", script.bytes());
                self.vm.request(id, request, self.now);
                if operation > 127 {
                    self.vm.gone(id, operation > 191, self.now);
                }
            }
            8 => {
                let id = self.new_id(8 + place);
                let request = request("/ws", script.bytes());
                self.vm.handshake(id, request, self.now);
            }
            9 => {
                let milliseconds = [0, 1, 10, 1000, 60_000, 10_000_000];
                let which = usize::from(operation / 16) % milliseconds.len();
                self.now.mono_ms += milliseconds[which];
                self.turn();
            }
            10 => self.answer(operation / 16)?,
            11 | 12 => self.reply(operation / 16)?,
            13 => {
                let program = String::from_utf8_lossy(script.bytes()).into_owned();
                if let Some(id) = self.open[usize::from(place)].take() {
                    self.vm.closed(id, 1001, &program, self.now);
                }
            }
            14 => {
                let id = self.client(place);
                self.vm.drained(id, self.now);
            }
            _ => self.reload(),
        }
        Some(())
    }

    fn new_id(&mut self, index: u8) -> ConnectionId {
        self.generation += 1;
        ConnectionId {
            index: index.into(),
            generation: self.generation,
        }
    }

    fn client(&mut self, place: u8) -> ConnectionId {
        self.open(place);
        self.open[usize::from(place)].expect("it is open")
    }

    fn open(&mut self, place: u8) {
        if self.open[usize::from(place)].is_none() {
            let id = self.new_id(place);
            self.open[usize::from(place)] = Some(id);
            self.vm.opened(id, request("/ws", b""), self.now);
        }
    }

    fn turn(&mut self) {
        for vm in self.before.iter_mut().chain([&mut self.vm]) {
            vm.turn(self.now);
        }
    }

    /// Takes a waiting token selected by the number, or makes one up if none waits.
    fn token(&mut self, number: u8) -> Option<Token> {
        let count = self.tokens.len();
        if count == 0 {
            return Some(Token(number.into()));
        }
        Some(self.tokens.swap_remove(usize::from(number) % count))
    }

    fn answer(&mut self, number: u8) -> Option<()> {
        let token = self.token(number)?;
        let answer = match number % 3 {
            0 => WaitResult::Done,
            1 => WaitResult::Number(f64::from(number)),
            _ => WaitResult::Failed("failed on request".into()),
        };
        for vm in self.before.iter_mut().chain([&mut self.vm]) {
            vm.answer(token, &answer, self.now);
        }
        Some(())
    }

    /// Replies to a call with any kind of reply, including one that does not match the call.
    fn reply(&mut self, number: u8) -> Option<()> {
        let token = self.token(number)?;
        let http = |body| {
            let headers = [("set-cookie", "a=b"), ("vary", "a"), ("vary", "\u{ff}")];
            let headers = headers.map(|(name, value)| (name.to_owned(), value.into()));
            Ok(CallReply::Http(Box::new(HttpReply {
                status: 200,
                headers: headers.into(),
                url: "http://a.test/".into(),
                body,
            })))
        };
        let outcome = match number % 8 {
            0 => Ok(CallReply::Addresses(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])),
            1 => http(ReplyBody::Whole(b"{\"a\":1}".to_vec())),
            2 | 3 => http(ReplyBody::Stream(Handle::new(()))),
            4 => Ok(CallReply::Chunk(Some(b"chunk\0\xff".to_vec()))),
            5 => Ok(CallReply::Chunk(None)),
            _ => Err(CallError::new(CallErrorKind::Timeout, "a requested fault")),
        };
        let vms = self.before.iter_mut().chain([&mut self.vm]);
        if let Some(vm) = { vms }.find(|vm| vm.is_waiting(token)) {
            vm.replied(token, outcome, self.now);
        }
        Some(())
    }

    /// Replaces the VM by one with newer code. At most two VMs with older code are kept.
    fn reload(&mut self) {
        let mut vm = load(&self.world);
        vm.adopt();
        vm.turn(self.now);
        let mut old = std::mem::replace(&mut self.vm, vm);
        old.stop(self.now);
        self.before.push(old);
        if self.before.len() > 2 {
            self.before.remove(0).finish();
        }
    }

    /// Takes the effects of the scripts and handles them.
    fn look(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        self.vm.take_effects(&mut effects);
        let (list, bytes) = effects.drain();
        for effect in list {
            match effect {
                Effect::Call { token, .. } | Effect::Subscribe { token, .. } => {
                    self.tokens.push(token);
                }
                Effect::Send { data, .. } => self.sent.push(data.of(bytes).to_vec()),
                Effect::Log { text, .. } => {
                    assert!(!text.starts_with("FOUND"), "{text}");
                    self.is_full |= text.contains("not enough memory");
                }
                _ => {}
            }
        }
        self.effects = effects;
        self.tokens.truncate(64);
    }

    /// Checks that other clients are served normally.
    fn check_others_served(&mut self) {
        let id = self.new_id(30);
        self.sent.clear();
        self.is_full = false;
        self.vm.opened(id, request("/ws", b""), self.now);
        self.vm.message(id, MessageKind::Text, b"alive?", self.now);
        for _ in 0..TURNS_MAX {
            self.look();
            if self.is_full || self.sent.iter().any(|sent| sent == b"alive") {
                return;
            }
            self.now.mono_ms += 1;
            self.turn();
        }
        panic!("the VM does not answer any more");
    }
}
