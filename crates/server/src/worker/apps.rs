//! Applications in a worker's turn: their timers, what they answered since, and connections that waited for them.

use veche_frontends::{NotRenewed, Shared};
use veche_net::Driver;

use super::Rest;
use crate::apps::{Here, Shelf};

impl Rest {
    /// New code is in force.
    pub(super) fn reload_apps(&mut self, shelf: &Shelf) {
        self.with_here(|here, shared| here.reload(shelf, shared));
    }

    /// Calls what the front ends don't know of applications.
    pub(super) fn with_here<R>(&mut self, call: impl FnOnce(&mut Here, &mut Shared) -> R) -> R {
        let result = self.shared.with_apps(|apps, shared| {
            let apps: &mut dyn std::any::Any = apps;
            apps.downcast_mut::<Here>().map(|here| call(here, shared))
        });
        let result = result.flatten();
        result.expect("every worker has its applications")
    }

    /// Lets the applications work, and goes on with what waited for them. What that brings about in turn is taken up
    /// next turn, so that two applications that answer each other at once can't hold the worker.
    pub(super) fn turn_apps<D: Driver>(&mut self, driver: &mut D) {
        if self
            .shared
            .with_apps(|apps, shared| apps.turn(shared))
            .is_none()
        {
            return;
        }
        if self.shared.ports.outboxes.has_drained() {
            let mut sessions = std::mem::take(&mut self.sessions);
            self.shared.ports.outboxes.take_drained(&mut sessions);
            for id in sessions.drain(..) {
                self.with(driver, id, |connection, shared| {
                    connection.drained(id, shared)
                });
            }
            self.sessions = sessions;
        }
        for _ in 0..self.shared.ports.app_answers.len() {
            if let Some((id, answer)) = self.shared.ports.app_answers.pop_front() {
                self.with(driver, id, |connection, shared| {
                    connection.app_answered(id, answer, shared)
                });
            }
        }
        for renewal in std::mem::take(&mut self.shared.ports.renewals) {
            let id = renewal.session;
            let mut result = Err(NotRenewed::Closed);
            self.with(driver, id, |connection, shared| {
                result = connection.renew(id, &renewal.credential, shared);
            });
            self.with_here(|here, shared| here.renewed(&renewal, result, shared));
        }
        if !self.shared.app_ready.is_empty() {
            let mut sessions = std::mem::take(&mut self.sessions);
            sessions.append(&mut self.shared.app_ready);
            for id in sessions.drain(..) {
                self.with(driver, id, |connection, shared| {
                    connection.app_ready(id, shared)
                });
            }
            self.sessions = sessions;
        }
    }

    /// When the applications have something to do, in milliseconds from now; `None` for never.
    pub(super) fn apps_due_in_ms(&self) -> Option<u64> {
        let apps = self.shared.apps.as_ref()?;
        let shared = &self.shared;
        if !shared.app_ready.is_empty()
            || !shared.ports.app_answers.is_empty()
            || shared.ports.outboxes.has_drained()
            || !shared.ports.renewals.is_empty()
        {
            return Some(0);
        }
        match apps.deadline_ms() {
            u64::MAX => None,
            deadline_ms => Some(deadline_ms.saturating_sub(shared.now.mono_ms)),
        }
    }
}
