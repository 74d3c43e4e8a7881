//! Replacement and removal of applications: at a reload newer code takes over, applications that are no longer
//! configured shut down, and when the server stops, all applications are stopped.
//!
//! In each case `app.stop` is called first; the handlers that are running then have a limited time to finish.

use std::sync::Arc;

use tracing::{error, info, warn};
use veche_frontends::{AppId, Context};
use veche_runtime::{Event, Replacement, Runtime};
use veche_types::codes::CloseCode;

use super::app_hosts::{AppHosts, LOG, RunningApp};
use super::hooks::update_hook_kinds;
use super::registry::{AppBundle, AppSet};
use super::service::ServicePhase;

/// The time in milliseconds that running handlers have to finish: those of older code after a
/// reload, and those of an application after its removal.
const RETIREMENT_MS: u64 = 10_000;

/// The minimum time from the removal of an application until its clients are closed, in milliseconds. It lets
/// publications of `app.stop` reach them.
const LAST_WORDS_MS: u64 = 50;
/// The time in milliseconds after an application's removal at which its clients are closed even if `app.stop` runs.
const LAST_WORDS_MS_MAX: u64 = RETIREMENT_MS / 2;

/// The progress of a removed application's shutdown.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShutdownState {
    since_ms: u64,
    /// Whether the connections of the application's clients have been closed.
    has_closed_clients: bool,
}

impl AppHosts {
    /// Replaces the code of applications whose code has changed. Connections stay open; suspended handlers finish in
    /// the code that they started in.
    pub fn reload(&mut self, app_set: &AppSet, shared: &mut Context) {
        if self.is_stopping {
            return;
        }
        let count = self.apps.len().max(app_set.len());
        self.apps.resize_with(count, || None);
        for index in 0..count {
            let id = AppId(index as u16);
            let bundle = app_set.get(index).and_then(Option::as_ref);
            match bundle.filter(|bundle| self.is_assigned(bundle)) {
                Some(bundle) => self.replace_code(id, bundle, shared),
                None => self.remove(id, shared),
            }
            self.execute_effects(id, None, shared);
        }
    }

    fn replace_code(&mut self, id: AppId, bundle: &Arc<AppBundle>, shared: &mut Context) {
        let index = usize::from(id.0);
        let stays = |app: &RunningApp| app.exit.is_none() && app.bundle.is_same(bundle);
        if self.apps[index].as_ref().is_some_and(stays) {
            return;
        }
        let worker = self.worker.0;
        let now = shared.now;
        let result = match &mut self.apps[index] {
            None => self.load(bundle).map(|app| self.apps[index] = Some(app)),
            Some(app) => {
                let stops = app.runs_stop_handler();
                let mut hooks = self.pending_hooks.unstarted(id);
                let replacement = Replacement {
                    stops,
                    until_ms: now.mono_ms + RETIREMENT_MS,
                    hooks: &mut hooks,
                    now,
                };
                let result = app.runtime.replace(&bundle.program, replacement);
                result
                    .map_err(|error| bundle.start_error(&error))
                    .map(|()| {
                        update_hook_kinds(&app.runtime, &bundle.kinds);
                        app.bundle = Arc::clone(bundle);
                        app.lifecycle = bundle.lifecycle();
                        app.exit = None;
                        info!(target: LOG, app = bundle.name(), worker, "the application was reloaded");
                    })
            }
        };
        if let Err(words) = result {
            // The code was loaded successfully in the check before the reload, so this failure is not deterministic.
            error!(target: LOG, worker, "can't load the new code of an application: {words}");
        }
    }

    /// Replaces a VM that is far above its memory limit with a new one that runs the same code and takes over the
    /// connections. Suspended handlers of the old VM are ended.
    pub(super) fn replace_broken(&mut self, id: AppId, shared: &mut Context) {
        let worker = self.worker.0;
        let Some(app) = self.app(id).filter(|app| app.runtime.is_broken()) else {
            return;
        };
        let bundle = Arc::clone(&app.bundle);
        let (name, memory) = (bundle.name(), app.runtime.memory_bytes());
        error!(target: LOG, app = name, worker, memory, "the VM of the application far exceeded its memory limit: replacing the VM");
        let is_service = app.lifecycle.is_some();
        let result = app.runtime.restart(&bundle.program);
        self.execute_effects(id, None, shared);
        match result {
            Ok(()) if is_service && self.phase == ServicePhase::Open => {
                self.begin_service(id, shared)
            }
            Ok(()) => {}
            Err(error) => {
                let words = bundle.start_error(&error);
                error!(target: LOG, worker, "can't start the replacement VM: {words}");
            }
        }
    }

    /// Starts the shutdown of an application that is no longer configured.
    fn remove(&mut self, id: AppId, shared: &mut Context) {
        let worker = self.worker.0;
        let Some(app) = self.app(id).filter(|app| app.exit.is_none()) else {
            return;
        };
        info!(target: LOG, app = app.bundle.name(), worker, "the application was removed from the configuration: ending it");
        app.stop(shared.now);
        app.lifecycle = None;
        app.exit = Some(ShutdownState {
            since_ms: shared.now.mono_ms,
            has_closed_clients: false,
        });
    }

    /// Continues the shutdown of a removed application: first closes its clients, then drops the application once it is
    /// idle or its time limit has passed.
    pub(super) fn continue_shutdown(&mut self, id: AppId, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let Some(app) = self.app(id) else { return };
        let due_ms = app.shutdown_due_ms();
        let Some(exit) = &mut app.exit else { return };
        if !exit.has_closed_clients && now_ms >= due_ms {
            exit.has_closed_clients = true;
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

    /// Drops the older code of an application once that code is idle or its time limit has passed.
    pub(super) fn retire(&mut self, id: AppId, shared: &mut Context) {
        let Some(app) = self.app(id) else { return };
        for tasks in app.runtime.retire(shared.now) {
            warn!(target: LOG, app = app.bundle.name(), tasks, "ended coroutines that still ran the code from before a reload");
        }
    }

    /// Calls `app.stop` of all applications but services, because the server is shutting down. The applications keep
    /// running during the drain; services are stopped later.
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

    /// Returns whether the stop handlers of all applications have finished.
    pub(super) fn have_all_stopped(&self) -> bool {
        let mut apps = self.apps.iter().flatten().filter(|app| !app.is_service());
        self.is_stopping && !apps.any(|app| app.runtime.is_stopping())
    }
}

impl RunningApp {
    /// Returns the time at which the next step of the shutdown is due, in monotonic milliseconds.
    pub(super) fn shutdown_due_ms(&self) -> u64 {
        match self.exit {
            None => u64::MAX,
            Some(exit) if exit.has_closed_clients => exit.since_ms + RETIREMENT_MS,
            Some(exit) if self.runtime.is_stopping() => exit.since_ms + LAST_WORDS_MS_MAX,
            Some(exit) => exit.since_ms + LAST_WORDS_MS,
        }
    }

    /// Calls `app.stop`, unless the application is a service that isn't running.
    pub(super) fn stop(&mut self, now: veche_types::Now) {
        if self.runs_stop_handler() {
            self.runtime.handle_event(Event::Stop, now);
        }
    }

    fn runs_stop_handler(&self) -> bool {
        self.lifecycle.is_none() || self.is_running()
    }
}
