//! The applications of one worker: a VM each, and during a reload the one before it.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{error, info, warn};
use veche_frontends::app::{AppAnswer, Outcome, Progress, Request, Response, Verdict};
use veche_frontends::{AppId, Apps, Shared};
use veche_hub::{Answer, SessionId, Ticket};
use veche_proto::websocket::MessageKind;
use veche_script::{ConnectionId, Effects, Handler, Kind, Token, Vm, World};

use super::carry::Held;
use super::library::{Shelf, Volume};

/// What log lines of scripts go by.
pub(super) const LOG: &str = "veche::app";

/// Handlers of older code have so long to end after a reload.
const RETIREMENT_MS: u64 = 10_000;

/// While publications wait for credit, the next look is due so soon.
const LOOK_AGAIN_MS: u64 = 1;

/// The applications of one worker.
pub(crate) struct Here {
    worker: u16,
    pub(super) apps: Vec<Option<Application>>,
    /// Effects in exchange for those of a call.
    pub(super) spare: Effects,
    pub(super) tickets: Tickets,
    pub(super) held: Held,
    now_ms: u64,
}

/// One application.
pub(super) struct Application {
    pub(super) volume: Arc<Volume>,
    world: World,
    pub(super) vm: Vm,
    before: Vec<Retired>,
}

/// A VM of older code whose handlers have not all ended.
struct Retired {
    vm: Vm,
    until_ms: u64,
}

/// What the hub's answers are for.
#[derive(Default)]
pub(super) struct Tickets {
    last: u32,
    waiting: HashMap<u32, Token>,
}

impl Tickets {
    /// A ticket whose answer goes to whoever waits with that token.
    pub(super) fn issue(&mut self, token: Token) -> Ticket {
        self.last = self.last.wrapping_add(1);
        self.waiting.insert(self.last, token);
        Ticket(self.last)
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Token> {
        self.waiting.remove(&ticket.0)
    }
}

/// An answer to the request that is being handed over.
pub(super) enum Direct {
    Verdict(Verdict),
    Response(Response),
}

impl Here {
    /// To be called on the worker's own thread.
    pub(crate) fn start(worker: u16, shelf: &Shelf) -> Result<Self, String> {
        let mut here = Self {
            worker,
            apps: Vec::new(),
            spare: Effects::default(),
            tickets: Tickets::default(),
            held: Held::default(),
            now_ms: 0,
        };
        for volume in shelf.iter() {
            let app = match volume {
                Some(volume) => {
                    let world = World::with_store(Arc::clone(&volume.store));
                    Some(here.load(volume, world)?)
                }
                None => None,
            };
            here.apps.push(app);
        }
        Ok(here)
    }

    fn load(&mut self, volume: &Arc<Volume>, world: World) -> Result<Application, String> {
        let vm = Vm::new(&volume.app, &volume.code, &world, self.worker)
            .map_err(|error| format!("app {:?}: {error}", volume.app.name))?;
        Ok(Application {
            volume: Arc::clone(volume),
            world,
            vm,
            before: Vec::new(),
        })
    }

    /// New code for all applications. Connections stay; handlers that wait end in the code they began in.
    pub(crate) fn reload(&mut self, shelf: &Shelf, shared: &mut Shared) {
        for (index, volume) in shelf.iter().enumerate() {
            if self.apps.len() <= index {
                self.apps.push(None);
            }
            let Some(volume) = volume else { continue };
            let before = self.apps[index].take();
            let world = before.as_ref().map(|app| app.world.clone());
            let world = world.unwrap_or_else(|| World::with_store(Arc::clone(&volume.store)));
            match self.load(volume, world) {
                Ok(mut app) => {
                    if let Some(mut old) = before {
                        app.vm.adopt();
                        app.before = std::mem::take(&mut old.before);
                        old.vm.stop(now(shared));
                        app.before.push(Retired {
                            vm: old.vm,
                            until_ms: shared.now.mono_ms + RETIREMENT_MS,
                        });
                        info!(target: LOG, app = volume.app.name, worker = self.worker, "reloaded");
                    }
                    self.apps[index] = Some(app);
                }
                Err(words) => {
                    // It was tried before: this is a script that fails now and then.
                    error!(target: LOG, worker = self.worker, "not reloaded: {words}");
                    self.apps[index] = before;
                }
            }
            self.carry_out(AppId(index as u16), None, shared);
        }
    }

    /// Ends what older code has left after its time.
    fn retire(&mut self, id: AppId, shared: &mut Shared) {
        let Some(app) = self.app(id) else { return };
        let now_ms = shared.now.mono_ms;
        let mut index = 0;
        while let Some(retired) = app.before.get_mut(index) {
            let is_over = retired.vm.tasks() == 0 && retired.vm.deadline_ms() == u64::MAX;
            if !is_over && now_ms < retired.until_ms {
                index += 1;
                continue;
            }
            if !is_over {
                let tasks = retired.vm.tasks();
                warn!(target: LOG, app = app.volume.app.name, tasks, "coroutines of older code are ended");
            }
            retired.vm.finish();
            app.before.swap_remove(index);
        }
    }

    fn app(&mut self, id: AppId) -> Option<&mut Application> {
        self.apps.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Runs an application and carries out what it wants done.
    fn run<R>(
        &mut self,
        id: AppId,
        current: Option<SessionId>,
        shared: &mut Shared,
        call: impl FnOnce(&mut Application, veche_script::Now) -> R,
    ) -> (Option<R>, Option<Direct>) {
        let now = now(shared);
        let result = self.app(id).map(|app| call(app, now));
        let direct = self.carry_out(id, current, shared);
        (result, direct)
    }

    fn answer(&mut self, id: AppId, ticket: Ticket, answer: &Answer, shared: &mut Shared) {
        let Some(token) = self.tickets.take(ticket) else {
            return;
        };
        let answer = match answer {
            Answer::Subscribed => veche_script::Answer::Done,
            Answer::Published { handed } => veche_script::Answer::Number((*handed).into()),
            Answer::Disconnected { count } => veche_script::Answer::Number((*count).into()),
        };
        self.run(id, None, shared, |app, now| {
            app.answer(token, &answer, now);
        });
    }
}

impl Application {
    /// Hands an answer to the VM that waits for it: the others don't know the token.
    pub(super) fn answer(
        &mut self,
        token: Token,
        answer: &veche_script::Answer,
        now: veche_script::Now,
    ) {
        for old in &mut self.before {
            old.vm.answer(token, answer, now);
        }
        self.vm.answer(token, answer, now);
    }
}

impl Apps for Here {
    fn has_handshake(&self, app: AppId) -> bool {
        let app = self.apps.get(usize::from(app.0)).and_then(Option::as_ref);
        app.is_some_and(|app| app.vm.has(Handler::Handshake))
    }

    fn handshake(
        &mut self,
        app: AppId,
        id: SessionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Outcome<Verdict> {
        let request = copy(request);
        let (_, direct) = self.run(app, Some(id), shared, |app, now| {
            app.vm.handshake(connection(id), request, now)
        });
        match direct {
            Some(Direct::Verdict(verdict)) => Outcome::Now(verdict),
            _ => Outcome::Later,
        }
    }

    fn opened(
        &mut self,
        app: AppId,
        id: SessionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Progress {
        let request = copy(request);
        let (progress, _) = self.run(app, None, shared, |app, now| {
            app.vm.opened(connection(id), request, now)
        });
        self::progress(progress)
    }

    fn message(
        &mut self,
        app: AppId,
        id: SessionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Shared,
    ) -> Progress {
        let kind = match kind {
            MessageKind::Text => Kind::Text,
            MessageKind::Binary => Kind::Binary,
        };
        let (progress, _) = self.run(app, None, shared, |app, now| {
            app.vm.message(connection(id), kind, data, now)
        });
        if !self.held.is_empty() && progress == Some(veche_script::Progress::Done) {
            // What was published can't be taken now: whoever goes on publishing waits.
            self.held.hold_back(id);
            return Progress::Waits;
        }
        self::progress(progress)
    }

    fn drained(&mut self, app: AppId, id: SessionId, shared: &mut Shared) {
        self.run(app, None, shared, |app, now| {
            app.vm.drained(connection(id), now)
        });
    }

    fn answered(
        &mut self,
        app: AppId,
        _: SessionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) {
        self.answer(app, ticket, &answer, shared);
    }

    fn closed(&mut self, app: AppId, id: SessionId, code: u16, reason: &str, shared: &mut Shared) {
        self.run(app, None, shared, |app, now| {
            let id = connection(id);
            let mut old = app.before.iter_mut();
            match old.find_map(|old| old.vm.is_busy_with(id).then_some(&mut old.vm)) {
                Some(busy) => {
                    // Behind the handler that waits there.
                    busy.closed(id, code, reason, now);
                    app.vm.let_go(id);
                }
                None => {
                    app.vm.closed(id, code, reason, now);
                    for old in &mut app.before {
                        old.vm.let_go(id);
                    }
                }
            }
        });
    }

    fn request(
        &mut self,
        app: AppId,
        id: SessionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Outcome<Response> {
        let request = copy(request);
        let (_, direct) = self.run(app, Some(id), shared, |app, now| {
            app.vm.request(connection(id), request, now)
        });
        match direct {
            Some(Direct::Response(response)) => Outcome::Now(response),
            _ => Outcome::Later,
        }
    }

    /// The handler goes on; its answer finds nobody.
    fn gone(&mut self, _: AppId, _: SessionId) {}

    fn turn(&mut self, shared: &mut Shared) {
        self.now_ms = shared.now.mono_ms;
        self.publish_held(shared);
        for index in 0..self.apps.len() {
            let id = AppId(index as u16);
            let (retires, _) = self.run(id, None, shared, |app, now| {
                if app.vm.deadline_ms() <= now.mono_ms {
                    app.vm.turn(now);
                }
                for old in &mut app.before {
                    old.vm.turn(now);
                }
                !app.before.is_empty()
            });
            if retires == Some(true) {
                self.retire(id, shared);
                self.carry_out(id, None, shared);
            }
        }
    }

    fn deadline_ms(&self) -> u64 {
        let apps = self.apps.iter().flatten();
        let due = apps.flat_map(|app| {
            let old = app.before.iter();
            let old = old.map(|old| old.vm.deadline_ms().min(old.until_ms));
            old.chain([app.vm.deadline_ms()])
        });
        let due = due.min().unwrap_or(u64::MAX);
        if self.held.is_empty() {
            due
        } else {
            due.min(self.now_ms + LOOK_AGAIN_MS)
        }
    }
}

/// An answer that did not come at once.
pub(super) fn later(to: SessionId, direct: Direct, shared: &mut Shared) {
    let answer = match direct {
        Direct::Verdict(verdict) => AppAnswer::Verdict(verdict),
        Direct::Response(response) => AppAnswer::Response(response),
    };
    shared.ports.app_answers.push_back((to, answer));
}

fn progress(progress: Option<veche_script::Progress>) -> Progress {
    match progress {
        Some(veche_script::Progress::Waits) => Progress::Waits,
        _ => Progress::Done,
    }
}

pub(super) fn now(shared: &Shared) -> veche_script::Now {
    veche_script::Now {
        mono_ms: shared.now.mono_ms,
        wall_ms: shared.now.wall_ms,
    }
}

fn connection(id: SessionId) -> ConnectionId {
    ConnectionId {
        index: id.index,
        generation: id.generation,
    }
}

pub(super) fn session(id: ConnectionId) -> SessionId {
    SessionId {
        index: id.index,
        generation: id.generation,
    }
}

/// A request as scripts get it.
fn copy(request: &Request<'_>) -> veche_script::Request {
    let head = request.head;
    let mut copy =
        veche_script::Request::new(head.method.as_str(), head.path, head.query, request.peer);
    for (name, value) in head.headers() {
        // Bytes that are no UTF-8 can't be a string of much use.
        copy.header(name, &String::from_utf8_lossy(value));
    }
    for (name, value) in request.params.iter() {
        copy.param(name, &value);
    }
    if let Some(user) = request.user {
        copy.set_user(user);
    }
    copy.body = request.body.to_vec();
    copy
}
