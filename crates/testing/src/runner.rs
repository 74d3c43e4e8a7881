//! One run of a test case: alternates between the test's script and the simulated world.
//!
//! Requests of the script that need no wait are executed at once. Waits are checked when the world is idle: either an awaited
//! event has occurred and the script continues, or the simulated time advances to the next due event. So no wait depends on
//! real time.

mod asks;

use std::sync::Arc;
use std::time::Duration;

use veche_apps::RecordedEntry;
use veche_proto::websocket::MessageKind;
use veche_script::{
    AppWorld as Lua, Ask, Effect, Effects, Ended, Level, Plain, ScriptLimits, SourceCode, TestVm,
    Token,
};
use veche_store::Store;
use veche_types::codes::CloseCode;

use super::client::{OpeningState, ReceivedItem};
use super::world::{MONO_MS, TestServer, TestWorld};

/// The time limit for a response or a handshake, by the test's clock: longer than the server's own limits.
const PATIENCE_MS: u64 = 120_000;

/// The maximum CPU time of a test's script between two waits.
const CPU_BUDGET: Duration = Duration::from_secs(2);

/// A log line of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    pub(super) level: Level,
    pub(super) text: String,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestRun {
    pub(super) ended: Ended,
    /// The log of the applications and of the test itself.
    pub(super) log: Vec<LogLine>,
}

/// Loads a test's script; `seed` determines its randomness.
pub(super) fn load(code: &Arc<SourceCode>, seed: u64) -> Result<TestVm, String> {
    let app = veche_script::ScriptApp {
        name: "test".to_owned(),
        options: serde_json::Value::Null,
        has_files: false,
        databases: Arc::default(),
        limits: ScriptLimits {
            cpu_budget: CPU_BUDGET,
            ..ScriptLimits::default()
        },
        role: veche_script::AppRole::Clients,
    };
    let world = Lua::seeded(Arc::new(Store::default()), seed);
    TestVm::load(&app, code, &world).map_err(|error| error.to_string())
}

/// Runs one case by its number.
pub(super) fn run(
    server: &dyn TestServer,
    code: &Arc<SourceCode>,
    case: usize,
    seed: u64,
    within: Duration,
) -> Result<TestRun, String> {
    let vm = load(code, seed)?;
    let services = vm.cases().get(case).and_then(|case| case.services.clone());
    let mut conduct = TestRunner {
        server,
        world: TestWorld::new(server, seed, within, services.as_deref())?,
        vm,
        waits: Vec::new(),
        forgiven: Vec::new(),
    };
    let ended = conduct.run_case(case);
    Ok(conduct.finish_run(ended))
}

struct TestRunner<'g> {
    server: &'g dyn TestServer,
    pub(super) world: TestWorld,
    vm: TestVm,
    waits: Vec<ScriptWait>,
    /// The errors of applications that the test expected, as indexes into the recorded entries.
    forgiven: Vec<usize>,
}

/// A wait of the script.
struct ScriptWait {
    token: Token,
    what: WaitKind,
    /// The deadline, in milliseconds of the simulated monotonic clock.
    until_ms: u64,
}

enum WaitKind {
    /// Waits for the response to the handshake of the client with this number.
    Opening(usize),
    /// Waits for the HTTP response to the client with this number.
    Response(usize),
    /// Waits for the next received item of the client with this number.
    Received(usize),
    /// Waits for the world to be idle, then answers the request.
    Rest(Plain),
    /// Waits for the response to a push that the client with this number has sent as a back end.
    Line(usize),
    /// Waits for a time.
    Time,
    /// Waits until the stub with this number has a call for its function to answer.
    Called(usize),
    /// Waits for an application to dial the mocked WebSocket server of the stub with this number.
    Accepted(usize),
}

type StepAnswer = Result<Plain, String>;

impl TestRunner<'_> {
    /// Runs the case to its end, then lets the world become idle.
    fn run_case(&mut self, case: usize) -> Result<Ended, String> {
        // The applications start at the script's first wait, so that the script can first create stubs for the calls of
        // the applications.
        let now = self.world.now();
        self.vm.begin(case, now);
        let ended = loop {
            if let Some(ended) = self.listen()? {
                break ended;
            }
            self.world.settle()?;
            // Functions of stubs answer first, before any other wait can time out.
            if self.answer_one(true) {
                continue;
            }
            if self.vm.deadline_ms() <= self.world.now_ms() {
                let now = self.world.now();
                self.vm.turn(now);
                continue;
            }
            if self.answer_one(false) {
                continue;
            }
            let due_ms = self.vm.deadline_ms();
            if due_ms > self.world.now_ms() {
                self.pass_time(due_ms)?;
            }
            let now = self.world.now();
            self.vm.turn(now);
        };
        self.world.settle()?;
        Ok(ended)
    }

    /// Handles requests of the script until it waits; returns the result if the script has ended.
    fn listen(&mut self) -> Result<Option<Ended>, String> {
        loop {
            let mut effects = Effects::default();
            self.vm.take_effects(&mut effects);
            self.note(&mut effects)?;
            if let Some(ended) = self.vm.ended() {
                return Ok(Some(ended));
            }
            let asks = self.vm.take_asks();
            if asks.is_empty() {
                return Ok(None);
            }
            for Ask { token, request } in asks {
                if let Some(answer) = self.begin(token, request) {
                    let now = self.world.now();
                    self.vm.answer(token, answer, now);
                }
            }
        }
    }

    /// Handles log lines and publications of the script itself.
    fn note(&mut self, effects: &mut Effects) -> Result<(), String> {
        let (list, bytes) = effects.drain();
        for effect in list {
            match effect {
                Effect::Log { level, text, .. } => {
                    self.world
                        .recorder
                        .write(RecordedEntry::Noted { level, text });
                }
                Effect::Publish {
                    channel,
                    kind,
                    data,
                    ..
                } => {
                    let (to, name) = match channel.strip_prefix('#') {
                        Some(user) => ("user", user),
                        None => ("channel", channel.as_str()),
                    };
                    let request = Plain::map([
                        (to, Plain::from(name)),
                        ("data", Plain::Bytes(data.of(bytes).to_vec())),
                        ("kind", Plain::from(kind.message_kind().name())),
                    ]);
                    self.publish(&request);
                }
                Effect::Call { .. } => {
                    return Err(
                        "a test can't make calls itself: only the application's calls are stubbed"
                            .to_owned(),
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Completes one wait whose event has occurred or whose time is over. Returns `false` if there is none. If
    /// `is_outside` is set, considers only waits for calls of stubs' functions, otherwise only the other waits.
    fn answer_one(&mut self, is_outside: bool) -> bool {
        for place in 0..self.waits.len() {
            if matches!(self.waits[place].what, WaitKind::Called(_)) == is_outside
                && let Some(answer) = self.look(place)
            {
                let wait = self.waits.remove(place);
                let now = self.world.now();
                self.vm.answer(wait.token, answer, now);
                return true;
            }
        }
        false
    }

    /// Advances the time to the earliest of these: the next event of the applications, the next deadline of a wait, and
    /// `script_ms`, at which the test's script continues.
    fn pass_time(&mut self, script_ms: u64) -> Result<(), String> {
        let waits = self.waits.iter().map(|wait| wait.until_ms);
        let patience_ms = waits.chain([script_ms]).min().unwrap_or(u64::MAX);
        if patience_ms == u64::MAX {
            return Err("the test waits for an event that will never happen".to_owned());
        }
        let next_ms = self.world.next_ms().min(patience_ms);
        self.world.set_now_ms(next_ms)
    }

    /// Starts a request; returns the answer if it is available at once.
    fn begin(&mut self, token: Token, request: Plain) -> Option<StepAnswer> {
        let now_ms = self.world.now_ms();
        let within = |default_ms: u64| {
            let seconds = request.get("within").number();
            let ms = seconds.map_or(default_ms, |seconds| (seconds * 1000.0).ceil() as u64);
            now_ms + ms
        };
        let (what, until_ms) = match request.get("ask").text().as_str() {
            "connect" => match self.connect(&request) {
                Ok(client) => (WaitKind::Opening(client), within(PATIENCE_MS)),
                Err(words) => return Some(Err(words)),
            },
            "request" => match self.request(&request) {
                Ok(client) => (WaitKind::Response(client), within(PATIENCE_MS)),
                Err(words) => return Some(Err(words)),
            },
            "receive" => (WaitKind::Received(number(&request)), within(0)),
            "called" => (WaitKind::Called(stub(&request)), u64::MAX),
            "accept" => (WaitKind::Accepted(stub(&request)), within(0)),
            "advance" => {
                let seconds = request.get("seconds").number().unwrap_or_default();
                (WaitKind::Time, now_ms + (seconds * 1000.0).round() as u64)
            }
            "publish" => (WaitKind::Line(self.publish(&request)), now_ms),
            "take" | "is_open" | "published" | "log" | "requests" | "queries" | "commands"
            | "redis_publish" => (WaitKind::Rest(request), now_ms),
            _ => return Some(self.act(&request)),
        };
        self.waits.push(ScriptWait {
            token,
            what,
            until_ms,
        });
        None
    }

    /// Executes a request of the test's script that is answered at once.
    fn act(&mut self, request: &Plain) -> StepAnswer {
        let ask = request.get("ask").text();
        match ask.as_str() {
            "now" => {
                let ms = self.world.now_ms() - MONO_MS;
                return Ok(Plain::Number(ms as f64 / 1000.0));
            }
            "stub" => {
                let number = self.world.outside.stub(request)?;
                return Ok(Plain::Number(number as f64));
            }
            "reply" => {
                self.world.outside.replied(request);
                return Ok(Plain::Nil);
            }
            "forgive" => {
                self.forgiven
                    .push(request.get("number").number().unwrap_or_default() as usize);
                return Ok(Plain::Nil);
            }
            _ => {}
        }
        let (client, network) = self
            .world
            .client(number(request))
            .ok_or("there is no such client")?;
        match ask.as_str() {
            "send" => {
                let kind = match request.get("kind").bytes() {
                    b"binary" => MessageKind::Binary,
                    _ => MessageKind::Text,
                };
                if !client.send(network, kind, request.get("data").bytes()) {
                    return Err("the connection is closed".to_owned());
                }
            }
            "close" => {
                let code = request.get("code").number();
                let code = code.map_or(CloseCode::Normal.code(), |code| code as u16);
                client.close(network, code, &request.get("reason").text());
            }
            "drop" => client.drop(network),
            "read" => network.set_reading(client.id, request.get("reads").is_true()),
            other => return Err(format!("unknown test command {other:?}")),
        }
        Ok(Plain::Nil)
    }

    /// Returns the result of a wait if its event has occurred or its time is over. Called when the world is idle.
    fn look(&mut self, place: usize) -> Option<StepAnswer> {
        let now_ms = self.world.now_ms();
        let wait = &self.waits[place];
        let is_late = now_ms >= wait.until_ms;
        match &wait.what {
            WaitKind::Time => is_late.then_some(Ok(Plain::Nil)),
            WaitKind::Called(stub) => self.world.outside.take_asked(*stub).map(Ok),
            WaitKind::Accepted(stub) => {
                let stub = *stub;
                match self.world.accept(stub) {
                    Some((number, url)) => Some(Ok(self.accepted(number, &url))),
                    None => is_late.then(|| Ok(self.no_message())),
                }
            }
            WaitKind::Rest(request) => {
                let request = request.clone();
                Some(self.read(&request))
            }
            WaitKind::Opening(client) => {
                let number = *client;
                let (client, _) = self.world.client(number)?;
                match &client.opening {
                    OpeningState::Open { protocol } => Some(Ok(Plain::map([
                        ("client", Plain::Number(number as f64)),
                        (
                            "protocol",
                            protocol.as_deref().map_or(Plain::Nil, Plain::from),
                        ),
                    ]))),
                    OpeningState::Refused(response) => {
                        let answer = Plain::map([("refusal", response.to_plain())]);
                        let text = response.refusal();
                        let level = Level::Info;
                        self.world
                            .recorder
                            .write(RecordedEntry::Noted { level, text });
                        Some(Ok(answer))
                    }
                    OpeningState::Failed(words) => Some(Err(words.clone())),
                    OpeningState::UnderWay => is_late.then(|| Err(NO_ANSWER.to_owned())),
                }
            }
            WaitKind::Response(client) => {
                let (client, _) = self.world.client(*client)?;
                match &client.response {
                    Some(response) => Some(
                        response
                            .as_ref()
                            .map(|response| response.to_plain())
                            .map_err(Clone::clone),
                    ),
                    None => is_late.then(|| Err(NO_ANSWER.to_owned())),
                }
            }
            WaitKind::Line(client) => {
                let (client, _) = self.world.client(*client)?;
                match client.lines.pop_front() {
                    Some(line) => Some(acknowledged(&line)),
                    None => Some(Err("the push got no response".to_owned())),
                }
            }
            WaitKind::Received(client) => {
                let (client, _) = self.world.client(*client)?;
                match client.items.pop_front() {
                    Some(item) => Some(Ok(received_value(item))),
                    None => is_late.then(|| Ok(self.no_message())),
                }
            }
        }
    }

    /// Returns the answer for a wait in which no message arrived, with the seconds until the application acts next.
    fn no_message(&mut self) -> Plain {
        let due_ms = self.world.apps_due_in_ms();
        let due = due_ms.map_or(Plain::Nil, |ms| Plain::Number(ms as f64 / 1000.0));
        Plain::map([("nothing", Plain::Boolean(true)), ("due", due)])
    }

    /// Describes a connection that an application has dialed, for the test that accepts it.
    fn accepted(&mut self, number: usize, url: &str) -> Plain {
        let client = &self.world.clients[number];
        let protocol = match &client.opening {
            OpeningState::Open { protocol } => protocol.as_deref(),
            _ => None,
        };
        Plain::map([
            ("client", Plain::Number(number as f64)),
            ("url", Plain::from(url)),
            ("headers", client.request.clone()),
            ("protocol", protocol.map_or(Plain::Nil, Plain::from)),
        ])
    }

    /// Answers a query about the state of the idle world.
    fn read(&mut self, request: &Plain) -> StepAnswer {
        match request.get("ask").text().as_str() {
            "take" => {
                let (client, _) = self
                    .world
                    .client(number(request))
                    .ok_or("there is no such client")?;
                Ok(Plain::List(
                    client.items.drain(..).map(received_value).collect(),
                ))
            }
            "is_open" => {
                let (client, _) = self
                    .world
                    .client(number(request))
                    .ok_or("there is no such client")?;
                Ok(Plain::Boolean(client.is_open()))
            }
            "published" => Ok(Plain::List(self.published())),
            kind @ ("requests" | "queries" | "commands") => {
                Ok(Plain::List(self.world.outside.made(kind)))
            }
            "redis_publish" => {
                let (channel, data) = (request.get("channel"), request.get("data"));
                let handed = self.world.outside.publish(channel.bytes(), data.bytes());
                Ok(Plain::Number(handed as f64))
            }
            _ => Ok(Plain::List(self.log())),
        }
    }

    fn published(&self) -> Vec<Plain> {
        let entries = self.world.recorder.entries();
        let published = entries.into_iter().filter_map(|entry| match entry {
            RecordedEntry::Published {
                channel,
                kind,
                data,
            } => Some(Plain::map([
                ("channel", Plain::from(channel.as_str())),
                ("kind", Plain::from(kind.name())),
                ("data", Plain::Bytes(data)),
            ])),
            RecordedEntry::Logged { .. } | RecordedEntry::Noted { .. } => None,
        });
        published.collect()
    }

    fn log(&self) -> Vec<Plain> {
        let entries = self.world.recorder.entries();
        let lines = entries
            .into_iter()
            .enumerate()
            .filter_map(|(number, entry)| match entry {
                RecordedEntry::Logged { level, text } => Some(Plain::map([
                    ("number", Plain::Number(number as f64)),
                    ("level", Plain::from(name_of(level))),
                    ("text", Plain::from(text.as_str())),
                    (
                        "is_expected",
                        Plain::Boolean(self.forgiven.contains(&number)),
                    ),
                ])),
                RecordedEntry::Published { .. } | RecordedEntry::Noted { .. } => None,
            });
        lines.collect()
    }

    /// Returns the result of the run. An error that an application has logged makes the run fail, unless the test expected it.
    fn finish_run(mut self, ended: Result<Ended, String>) -> TestRun {
        let ended = ended.unwrap_or_else(|words| Ended::Failed {
            words,
            traceback: String::new(),
        });
        let mut effects = Effects::default();
        self.vm.take_effects(&mut effects);
        let _ = self.note(&mut effects);
        // A task of the test may have failed after the case had ended.
        let late = self.vm.ended().filter(|_| ended == Ended::Passed);
        let ended = late.unwrap_or(ended);
        let (mut log, mut unexpected) = (Vec::new(), None);
        for (number, entry) in self.world.recorder.entries().into_iter().enumerate() {
            let (level, text) = match entry {
                RecordedEntry::Logged { level, text } => {
                    let is_forgiven = self.forgiven.contains(&number);
                    if level == Level::Error && !is_forgiven && unexpected.is_none() {
                        unexpected = Some(text.clone());
                    }
                    (level, text)
                }
                RecordedEntry::Noted { level, text } => (level, text),
                RecordedEntry::Published { .. } => continue,
            };
            log.push(LogLine { level, text });
        }
        let ended = match (ended, unexpected) {
            (Ended::Passed, Some(error)) => Ended::Failed {
                words: format!(
                    "the application logged an error (test.expect_error expects one):\n  {}",
                    error.replace('\n', "\n  ")
                ),
                traceback: String::new(),
            },
            (ended, _) => ended,
        };
        TestRun { ended, log }
    }
}

const NO_ANSWER: &str = "no response in time";

fn number(request: &Plain) -> usize {
    let number = request.get("client").number();
    number.map_or(usize::MAX, |number| number as usize)
}

fn stub(request: &Plain) -> usize {
    let number = request.get("stub").number();
    number.map_or(usize::MAX, |number| number as usize)
}

/// Returns the name of a level in scripts.
pub(super) fn name_of(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    }
}

fn received_value(item: ReceivedItem) -> Plain {
    match item {
        ReceivedItem::Message { kind, data } => Plain::map([
            (
                "kind",
                Plain::from(if kind == MessageKind::Text {
                    "text"
                } else {
                    "binary"
                }),
            ),
            ("data", Plain::Bytes(data)),
        ]),
        ReceivedItem::Closed { code, reason } => Plain::map([
            ("code", Plain::Number(code.into())),
            ("reason", Plain::from(reason.as_str())),
        ]),
    }
}

/// Parses the response to a push: returns the number of receivers, or the server's error.
fn acknowledged(line: &str) -> StepAnswer {
    let answer: serde_json::Value =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    match answer["result"]["handed"].as_f64() {
        Some(handed) => Ok(Plain::Number(handed)),
        None => Err(answer["error"]["message"]
            .as_str()
            .unwrap_or(line)
            .to_owned()),
    }
}
