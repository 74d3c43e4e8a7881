//! Simulates the hooks: the back end, and an application on each worker. They answer late and in any order, or
//! report a failure.
//!
//! The decision on a command is recorded at the [client](crate::client_decisions), which compares its reply with the
//! decision.

use std::collections::BTreeSet;

use serde_json::Value;
use veche_frontends::hooks::{HookKind, HookRequest, HookRequestId, HookTarget};
use veche_hub::ConnectionId;

use crate::coverage::CoverageEvent;
use crate::data::number_in_text;
use crate::failure::{PromiseResult, promise};
use crate::hook_outcome::{CommandDecision, HookOutcome};
use crate::ledger::Ledger;
use crate::phase::Phase;
use crate::world::{WALL_MS, World};

/// The hook requests since the start of the simulated process.
#[derive(Default)]
pub(crate) struct HookRequests {
    /// Hook requests that wait for a decision, each with its worker, oldest first.
    open: Vec<(usize, HookRequest)>,
    asked: BTreeSet<(usize, ConnectionId, u32)>,
    /// Clients whose end was reported to an application.
    gone: BTreeSet<Box<str>>,
    /// Clients that were connected to an application when the world was last at rest.
    connected: BTreeSet<Box<str>>,
}

/// Returns whether a client waits for the reply to a request of this kind.
fn is_command(kind: HookKind) -> bool {
    matches!(
        kind,
        HookKind::Connect | HookKind::Subscribe | HookKind::Publish | HookKind::Rpc
    )
}

impl World {
    /// Collects the hook requests of a worker's sessions.
    pub(crate) fn take_hook_requests(&mut self, worker: usize) -> PromiseResult {
        for (request, fate) in self.process.workers[worker].take_hook_requests() {
            let (session, HookRequestId(id)) = (request.session, request.id);
            promise!(
                self.decisions.asked.insert((worker, session, id)),
                "a hook is called once",
                "{request:?}"
            );
            if request.kind == HookKind::Disconnect {
                self.ledger.seen.note(CoverageEvent::GoneTold);
                promise!(
                    self.decisions.gone.insert(request.caller.client.clone()),
                    "an application is notified once of a disconnect",
                    "{request:?}"
                );
                continue;
            }
            let mut open = self.decisions.open.iter();
            let other = open
                .find(|(of, one)| *of == worker && one.session == session && is_command(one.kind));
            promise!(
                other.is_none() || !is_command(request.kind),
                "hooks of a client are called one at a time",
                "{request:?} while {other:?} is open"
            );
            match fate {
                Some(fate) => self.note_decision(worker, &request, fate)?,
                None => self.decisions.open.push((worker, request)),
            }
        }
        Ok(())
    }

    /// Answers one of the open requests. Returns whether there was one.
    pub(crate) fn decide(&mut self, number: usize, salt: u32) -> Result<bool, crate::Failure> {
        let count = self.decisions.open.len();
        let Some(place) = number.checked_rem(count) else {
            return Ok(false);
        };
        if place > 0 {
            self.ledger.seen.note(CoverageEvent::DecidedBeforeOlder);
        }
        let (worker, request) = self.decisions.open.remove(place);
        let fate = HookOutcome::new(salt, request.kind);
        let decision = fate.decision(&request, (WALL_MS + self.now_ms) / 1_000);
        self.note_decision(worker, &request, fate)?;
        let now = self.now();
        self.process.workers[worker].deliver_decision(&request, decision, now);
        Ok(true)
    }

    /// Answers all open requests. Returns whether there were any.
    pub(crate) fn decide_all(&mut self) -> Result<bool, crate::Failure> {
        let mut moved = false;
        let salt = self.decisions.asked.len() as u32;
        while self.decide(0, salt.wrapping_mul(0x9e37_79b9) >> 8)? {
            moved = true;
        }
        Ok(moved)
    }

    /// Records a decision in the simulated client that made the request, if that client still exists.
    fn note_decision(
        &mut self,
        worker: usize,
        request: &HookRequest,
        fate: HookOutcome,
    ) -> PromiseResult {
        let HookRequest { session, kind, .. } = *request;
        self.ledger.seen.note(match (fate, request.target) {
            (HookOutcome::Granted(_), HookTarget::BackEnd(_)) => CoverageEvent::Granted,
            (HookOutcome::Granted(_), HookTarget::App { .. }) => CoverageEvent::GrantedByApp,
            _ => CoverageEvent::Denied,
        });
        if matches!(kind, HookKind::Refresh | HookKind::SubRefresh) {
            self.ledger.seen.note(CoverageEvent::Renewed);
        }
        let number = match (kind, &request.data) {
            (HookKind::Publish, Some(data)) => self.ledger.decide(data_of(&data.bytes)?, fate),
            (HookKind::Rpc, Some(data)) => {
                let data: Value = serde_json::from_slice(&data.bytes).unwrap_or_default();
                data["rpc"].as_u64().unwrap_or(u64::MAX)
            }
            _ => 0,
        };
        let link = self.network.of(worker, session);
        let clients = &mut self.peers.clients;
        let client = clients
            .iter_mut()
            .find(|one| link.is_some() && one.link == link);
        let Some(client) = client else {
            self.ledger.seen.note(CoverageEvent::DecidedTooLate);
            return Ok(());
        };
        let decided = CommandDecision {
            kind,
            channel: request.channel.clone(),
            number,
            fate,
        };
        client.note_decided(decided, self.now_ms);
        Ok(())
    }

    /// Checks the hooks' decisions while nothing is in progress. If `is_end`, all clients have gone.
    pub(crate) fn check_decisions(&mut self, is_end: bool) -> PromiseResult {
        let open = self.decisions.open.first();
        promise!(open.is_none(), "every request is answered", "{open:?}");
        for client in &self.peers.clients {
            client.check_decided()?;
            if client.is_of_app() && client.phase == Phase::Online && client.reads {
                let name = client.name.as_str();
                self.decisions.connected.insert(name.into());
            }
        }
        let HookRequests {
            connected, gone, ..
        } = &self.decisions;
        let untold = connected.difference(gone).next();
        promise!(
            !is_end || untold.is_none(),
            "an application is notified once of a disconnect",
            "it was not notified that {untold:?} disconnected"
        );
        Ok(())
    }
}

impl Ledger {
    /// Records whether a publication was allowed; returns its number.
    fn decide(&mut self, (channel, number): (usize, u64), fate: HookOutcome) -> u64 {
        if let HookOutcome::Granted(_) = fate {
            self.allowed(channel, number);
        }
        number
    }
}

fn data_of(bytes: &[u8]) -> Result<(usize, u64), crate::Failure> {
    number_in_text(&String::from_utf8_lossy(bytes))
}
