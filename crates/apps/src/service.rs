//! The lifecycle of an instance of a service: its start, end and restart.
//!
//! An instance is a [`RunningApp`] without clients on one worker. Each start uses a new VM, so no state survives a
//! failure. Two runs of an instance never overlap: after a reload the new code starts when the older code has ended.

use tracing::{error, info, warn};
use veche_config::RestartPolicy;
use veche_frontends::{AppId, Context};
use veche_runtime::{Event, Runtime, ServiceState};

use super::app_hosts::{AppHosts, LOG, RunningApp};

/// The delay before the first restart of an instance, in milliseconds; it doubles with each further restart.
const BACK_OFF_MS: u64 = 200;
/// The maximum restart delay in milliseconds.
const BACK_OFF_MS_MAX: u64 = 30_000;
/// A run of at least this duration, in milliseconds, resets the restart delay.
const RAN_WELL_MS: u64 = 30_000;

/// The lifecycle state of a service's instance.
#[derive(Debug)]
pub(super) struct Lifecycle {
    restart: RestartPolicy,
    state: LifecycleState,
    /// The number of restarts since the last run of at least [`RAN_WELL_MS`].
    early_ends: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifecycleState {
    /// The instance has not run yet; it starts as soon as older code has ended.
    New,
    /// The instance has ended and restarts at this time, in monotonic milliseconds.
    Due {
        at_ms: u64,
    },
    Runs {
        since_ms: u64,
    },
    Over,
}

/// Whether the services of a worker may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServicePhase {
    /// Services must not start yet, because those of another process of this server may still be
    /// running.
    Held,
    Open,
    /// Services have been requested to stop; those still running at `until_ms`, in monotonic milliseconds, are aborted.
    Stopping {
        until_ms: u64,
    },
    /// All services have ended, and none will be started.
    Over,
}

impl Lifecycle {
    pub(super) fn new(restart: RestartPolicy) -> Self {
        Self {
            restart,
            state: LifecycleState::New,
            early_ends: 0,
        }
    }

    /// Returns the restart delay in milliseconds after a run of the given duration.
    fn restart_delay_ms(&mut self, ran_ms: u64) -> u64 {
        if ran_ms >= RAN_WELL_MS {
            self.early_ends = 0;
        }
        let wait_ms = BACK_OFF_MS << self.early_ends.min(16);
        self.early_ends += 1;
        wait_ms.min(BACK_OFF_MS_MAX)
    }
}

impl RunningApp {
    /// Returns whether the application is a service, whether or not it is still configured.
    pub(super) fn is_service(&self) -> bool {
        self.bundle.slot.is_some()
    }

    /// Returns whether the service, its older code, or a coroutine of either is still running.
    fn is_busy(&self) -> bool {
        let runs = self.is_running() || self.exit.is_some();
        let has_work = runs && !self.runtime.is_idle();
        has_work || self.runtime.is_stopping() || !self.runtime.is_older_idle()
    }

    /// Returns whether the application is a running service.
    pub(super) fn is_running(&self) -> bool {
        self.lifecycle.is_some() && self.runtime.service_state() == ServiceState::Runs
    }

    /// Returns the time at which [`AppHosts::advance_service`] has to be called, in monotonic milliseconds; `u64::MAX`:
    /// never.
    pub(super) fn lifecycle_due_ms(&self) -> u64 {
        match self.lifecycle.as_ref().map(|lifecycle| lifecycle.state) {
            Some(LifecycleState::New) if !self.runtime.has_older() => 0,
            Some(LifecycleState::Due { at_ms }) => at_ms,
            Some(LifecycleState::Runs { .. })
                if self.runtime.service_state() != ServiceState::Runs =>
            {
                0
            }
            _ => u64::MAX,
        }
    }
}

impl AppHosts {
    /// Prevents services from starting until [`Self::start_services`].
    pub fn hold_services(&mut self) {
        self.phase = ServicePhase::Held;
    }

    /// Allows services to start after [`Self::hold_services`], unless they have been requested to stop.
    pub fn start_services(&mut self) {
        if self.phase == ServicePhase::Held {
            self.phase = ServicePhase::Open;
        }
    }

    /// Returns whether the application is a service and this worker's services have not started yet or have all ended.
    pub(super) fn is_idle(&self, app: &RunningApp) -> bool {
        app.is_service() && matches!(self.phase, ServicePhase::Held | ServicePhase::Over)
    }

    /// Requests services to stop. Those still running at `until_ms`, in monotonic milliseconds, are aborted.
    pub(super) fn shut_down_services(&mut self, until_ms: u64, shared: &mut Context) {
        match &mut self.phase {
            // No service has started.
            ServicePhase::Held => self.phase = ServicePhase::Over,
            ServicePhase::Open => {
                self.phase = ServicePhase::Stopping { until_ms };
                for id in self.services() {
                    self.run(id, None, shared, |app, now| app.stop(now));
                }
                self.end_services(shared);
            }
            ServicePhase::Stopping { until_ms: until } => *until = until_ms.min(*until),
            ServicePhase::Over => {}
        }
    }

    /// Ends the services that were requested to stop, once all are idle or the time limit has
    /// passed.
    pub(super) fn end_services(&mut self, shared: &mut Context) {
        let ServicePhase::Stopping { until_ms } = self.phase else {
            return;
        };
        let is_late = shared.now.mono_ms >= until_ms;
        let is_busy = |app: &RunningApp| app.is_service() && app.is_busy();
        if !is_late && self.apps.iter().flatten().any(is_busy) {
            return;
        }
        for id in self.services() {
            self.run(id, None, shared, |app, _| {
                if app.is_busy() {
                    let (name, tasks) = (app.bundle.name(), app.runtime.tasks());
                    warn!(target: LOG, app = name, tasks, "the service did not stop in time: ending it");
                }
                app.runtime.abort();
            });
        }
        self.phase = ServicePhase::Over;
    }

    fn services(&self) -> Vec<AppId> {
        let apps = self.apps.iter().enumerate();
        let services = apps.filter(|(_, app)| app.as_ref().is_some_and(RunningApp::is_service));
        services.map(|(index, _)| AppId(index as u16)).collect()
    }

    /// Starts or restarts a service when it is due, and handles its end. Does nothing for other applications.
    pub(super) fn advance_service(&mut self, id: AppId, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        if self.phase != ServicePhase::Open {
            return;
        }
        let Some(app) = self.app(id).filter(|app| app.lifecycle_due_ms() <= now_ms) else {
            return;
        };
        let Some(state) = app.lifecycle.as_ref().map(|lifecycle| lifecycle.state) else {
            return;
        };
        match state {
            LifecycleState::New => self.begin_service(id, shared),
            LifecycleState::Due { .. } => self.restart_service(id, shared),
            LifecycleState::Runs { since_ms } => {
                let has_failed = app.runtime.service_state() == ServiceState::Failed;
                app.runtime.abort();
                self.execute_effects(id, None, shared);
                self.service_ended(id, has_failed, now_ms - since_ms, shared);
            }
            LifecycleState::Over => {}
        }
    }

    fn restart_service(&mut self, id: AppId, shared: &mut Context) {
        let Some(app) = self.app(id) else { return };
        let result = app.runtime.restart(&app.bundle.program);
        match result.map_err(|error| app.bundle.start_error(&error)) {
            Ok(()) => {
                shared.stats.service_restarts.add(1);
                self.begin_service(id, shared);
            }
            Err(words) => {
                error!(target: LOG, "{words}");
                self.service_ended(id, true, 0, shared);
            }
        }
    }

    pub(super) fn begin_service(&mut self, id: AppId, shared: &mut Context) {
        let since_ms = shared.now.mono_ms;
        self.run(id, None, shared, |app, now| {
            if let Some(lifecycle) = &mut app.lifecycle {
                lifecycle.state = LifecycleState::Runs { since_ms };
            }
            // A new VM must have had a turn before its first call.
            app.runtime.turn(now);
            app.runtime.handle_event(Event::Run, now);
        });
    }

    /// Handles the end of an instance and schedules its restart, if any.
    fn service_ended(&mut self, id: AppId, has_failed: bool, ran_ms: u64, shared: &Context) {
        let now_ms = shared.now.mono_ms;
        let Some(app) = self.app(id) else { return };
        let (Some(lifecycle), name) = (&mut app.lifecycle, app.bundle.name()) else {
            return;
        };
        let again = match lifecycle.restart {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => has_failed,
            RestartPolicy::Never => false,
        };
        let how = if has_failed { "failed" } else { "has finished" };
        if !again {
            info!(target: LOG, app = name, "the service {how}");
            lifecycle.state = LifecycleState::Over;
            return;
        }
        let wait_ms = lifecycle.restart_delay_ms(ran_ms);
        let at_ms = now_ms + wait_ms;
        lifecycle.state = LifecycleState::Due { at_ms };
        if has_failed {
            warn!(target: LOG, app = name, "the service {how}: restarting in {wait_ms} ms");
        } else {
            info!(target: LOG, app = name, "the service {how}: restarting in {wait_ms} ms");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_longer_each_time_until_it_has_run_well() {
        let mut lifecycle = Lifecycle::new(RestartPolicy::OnFailure);
        let waits: Vec<u64> = (0..10).map(|_| lifecycle.restart_delay_ms(5)).collect();
        let expected = [
            200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
        ];
        assert_eq!(waits, expected);
        assert_eq!(lifecycle.restart_delay_ms(RAN_WELL_MS - 1), 30_000);
        assert_eq!(lifecycle.restart_delay_ms(RAN_WELL_MS), 200);
        assert_eq!(lifecycle.restart_delay_ms(0), 400);
    }
}
