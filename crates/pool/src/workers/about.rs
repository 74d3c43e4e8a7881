//! The client and the process of a log line.

use veche_runtime::{LogContext, LogProcess};
use veche_types::ConnectionId;

use super::*;

/// The client that sent a command of Centrifugo's protocol, with the fields that log lines contain.
#[derive(Debug)]
pub(super) struct LoggedClient {
    connection: Box<str>,
    user: Box<str>,
}

impl LoggedClient {
    /// Returns the number and the client of a hook request; `None` for any other event.
    pub(super) fn of(event: &Event<'_>) -> Option<(u64, Self)> {
        let Event::Hook { number, request } = event else {
            return None;
        };
        let caller = Self {
            connection: request.caller.id.into(),
            user: request.caller.user.into(),
        };
        Some((*number, caller))
    }
}

impl Workers {
    /// Returns the fields of log lines about an event: its client, and the process; `None` if both are unknown.
    pub(super) fn about(
        &self,
        origin: EventOrigin,
        process: Option<LogProcess>,
    ) -> Option<Box<LogContext>> {
        let (connection, user) = match origin {
            EventOrigin::Handshake(of) | EventOrigin::Connection(of) | EventOrigin::Request(of) => {
                let known = self.connections.get(&of);
                let user = known.and_then(|one| one.user.as_deref());
                (Some(self.name_of(of)), user.map(str::to_owned))
            }
            EventOrigin::Hook(number) => {
                let caller = self.hook_callers.get(&number);
                let user = caller.map(|caller| caller.user.to_string());
                let user = user.filter(|user| !user.is_empty());
                (caller.map(|caller| caller.connection.to_string()), user)
            }
            EventOrigin::Worker => (None, None),
        };
        if connection.is_none() && process.is_none() {
            return None;
        }
        Some(Box::new(LogContext {
            connection,
            user,
            process,
            ..LogContext::default()
        }))
    }

    /// Returns the name of a connection of this server thread, as handlers see it.
    fn name_of(&self, id: ConnectionId) -> String {
        let place = WorkerConnection {
            worker: self.worker,
            connection: id,
        };
        place.to_string()
    }

    /// Names the client of a handler in the log lines among the effects from index `since` on, unless they already name
    /// one.
    pub(super) fn name_in_log(&mut self, since: usize, origin: EventOrigin) {
        let unnamed = |effect: &Effect| matches!(effect, Effect::Log { about: None, .. });
        if !self.effects.list[since..].iter().any(unnamed) {
            return;
        }
        let named = self.about(origin, None);
        for effect in &mut self.effects.list[since..] {
            if let Effect::Log { about, .. } = effect {
                *about = about.take().or_else(|| named.clone());
            }
        }
    }
}
