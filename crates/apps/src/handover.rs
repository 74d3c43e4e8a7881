//! How applications change and end: newer code takes over at a reload, what is no more in the configuration goes, and at
//! the server's end all are told.
//!
//! Whoever ends is told first (`app.stop`), and then has a limited time for what is under way.

use std::sync::Arc;

use tracing::{error, info, warn};
use veche_frontends::{AppId, Context};
use veche_runtime::{Event, Replacement, Runtime};
use veche_types::codes::CloseCode;

use super::app_hosts::{AppHosts, LOG, RunningApp};
use super::hooks::update_hook_kinds;
use super::registry::{AppBundle, AppSet};
use super::service::ServicePhase;

/// Handlers of older code have so long to end after a reload, and so has an application that was taken out.
const RETIREMENT_MS: u64 = 10_000;

/// What `app.stop` publishes gets so long to reach its clients before they are closed.
const LAST_WORDS_MS: u64 = 50;
/// `app.stop` may take so long before they are closed all the same.
const LAST_WORDS_MS_MAX: u64 = RETIREMENT_MS / 2;

/// How far an application is that was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShutdownState {
    since_ms: u64,
    /// Its clients were told.
    is_told: bool,
}

impl AppHosts {
    /// New code for the applications where it is another. Connections stay; handlers that wait end in the code they
    /// began in.
    pub fn reload(&mut self, shelf: &AppSet, shared: &mut Context) {
        if self.is_stopping {
            return;
        }
        let count = self.apps.len().max(shelf.len());
        self.apps.resize_with(count, || None);
        for index in 0..count {
            let id = AppId(index as u16);
            let volume = shelf.get(index).and_then(Option::as_ref);
            match volume.filter(|volume| self.is_assigned(volume)) {
                Some(volume) => self.replace_code(id, volume, shared),
                None => self.remove(id, shared),
            }
            self.execute_effects(id, None, shared);
        }
    }

    fn replace_code(&mut self, id: AppId, volume: &Arc<AppBundle>, shared: &mut Context) {
        let index = usize::from(id.0);
        let stays = |app: &RunningApp| app.exit.is_none() && app.volume.is_same(volume);
        if self.apps[index].as_ref().is_some_and(stays) {
            return;
        }
        let worker = self.worker;
        let now = shared.now;
        let result = match &mut self.apps[index] {
            None => self.load(volume).map(|app| self.apps[index] = Some(app)),
            Some(app) => {
                let stops = app.runs_stop_handler();
                let mut hooks = self.questions.unstarted(id);
                let replacement = Replacement {
                    stops,
                    until_ms: now.mono_ms + RETIREMENT_MS,
                    hooks: &mut hooks,
                    now,
                };
                let result = app.runtime.replace(&volume.program, replacement);
                result
                    .map_err(|error| volume.start_error(&error))
                    .map(|()| {
                        update_hook_kinds(&app.runtime, &volume.kinds);
                        app.volume = Arc::clone(volume);
                        app.life = volume.lifecycle();
                        app.exit = None;
                        info!(target: LOG, app = volume.name(), worker, "reloaded");
                    })
            }
        };
        if let Err(words) = result {
            // It was tried before: this is a script that fails now and then.
            error!(target: LOG, worker, "not reloaded: {words}");
        }
    }

    /// A VM that is far above its limit of memory ends: a new one with the same code takes over its connections.
    /// Handlers that wait in the old one end there.
    pub(super) fn replace_broken(&mut self, id: AppId, shared: &mut Context) {
        let worker = self.worker;
        let Some(app) = self.app(id).filter(|app| app.runtime.is_broken()) else {
            return;
        };
        let volume = Arc::clone(&app.volume);
        let (name, memory) = (volume.name(), app.runtime.memory_bytes());
        error!(target: LOG, app = name, worker, memory, "its VM took far more memory than it may: another one takes over");
        let is_service = app.life.is_some();
        let result = app.runtime.restart(&volume.program);
        self.execute_effects(id, None, shared);
        match result {
            Ok(()) if is_service && self.phase == ServicePhase::Open => {
                self.begin_service(id, shared)
            }
            Ok(()) => {}
            Err(error) => {
                let words = volume.start_error(&error);
                error!(target: LOG, worker, "no other VM: {words}");
            }
        }
    }

    /// Tells an application that is no more wanted, and its clients.
    fn remove(&mut self, id: AppId, shared: &mut Context) {
        let worker = self.worker;
        let Some(app) = self.app(id).filter(|app| app.exit.is_none()) else {
            return;
        };
        info!(target: LOG, app = app.volume.name(), worker, "no more in the configuration: it ends");
        app.stop(shared.now);
        app.life = None;
        app.exit = Some(ShutdownState {
            since_ms: shared.now.mono_ms,
            is_told: false,
        });
    }

    /// The way out of an application that was dismissed: its clients are closed, and it goes once nothing of it is
    /// left or its time is over.
    pub(super) fn continue_shutdown(&mut self, id: AppId, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let Some(app) = self.app(id) else { return };
        let due_ms = app.shutdown_due_ms();
        let Some(exit) = &mut app.exit else { return };
        if !exit.is_told && now_ms >= due_ms {
            exit.is_told = true;
            let (code, reason) = CloseCode::ApplicationGone.parts();
            let clients = app.runtime.connections().into_iter();
            let kicks = clients.map(|client| (client, code, reason.to_owned()));
            shared.requests.disconnects.extend(kicks);
            return;
        }
        let runtime = &app.runtime;
        let is_over = !runtime.has_older() && runtime.is_idle() && runtime.has_no_clients();
        if !is_over && now_ms < exit.since_ms + RETIREMENT_MS {
            return;
        }
        app.runtime.fail_waiting();
        self.execute_effects(id, None, shared);
        self.apps[usize::from(id.0)] = None;
    }

    /// Ends what older code has left, once that is nothing or its time is over.
    pub(super) fn retire(&mut self, id: AppId, shared: &mut Context) {
        let Some(app) = self.app(id) else { return };
        for tasks in app.runtime.retire(shared.now) {
            warn!(target: LOG, app = app.volume.name(), tasks, "coroutines of older code are ended");
        }
    }

    /// The server ends: applications are told, and go on as far as the time of the drain lasts. Services are told later.
    pub(super) fn stop_all(&mut self, shared: &mut Context) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        for index in 0..self.apps.len() {
            let id = AppId(index as u16);
            if let Some(app) = self.app(id).filter(|app| !app.is_service()) {
                app.stop(shared.now);
            }
            self.execute_effects(id, None, shared);
        }
    }

    /// Whether all applications that were told have done what they had to.
    pub(super) fn have_all_stopped(&self) -> bool {
        let mut apps = self.apps.iter().flatten().filter(|app| !app.is_service());
        self.is_stopping && !apps.any(|app| app.runtime.is_stopping())
    }
}

impl RunningApp {
    /// When the next step out is due, in monotonic milliseconds.
    pub(super) fn shutdown_due_ms(&self) -> u64 {
        match self.exit {
            None => u64::MAX,
            Some(exit) if exit.is_told => exit.since_ms + RETIREMENT_MS,
            Some(exit) if self.runtime.is_stopping() => exit.since_ms + LAST_WORDS_MS_MAX,
            Some(exit) => exit.since_ms + LAST_WORDS_MS,
        }
    }

    /// Calls `app.stop`; not of a service that does not run.
    pub(super) fn stop(&mut self, now: veche_types::Now) {
        if self.runs_stop_handler() {
            self.runtime.handle_event(Event::Stop, now);
        }
    }

    fn runs_stop_handler(&self) -> bool {
        self.life.is_none() || self.is_running()
    }
}
