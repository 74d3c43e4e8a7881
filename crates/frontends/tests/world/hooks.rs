//! Lets a test act as the hooks: it receives the hook requests and makes the decisions.

#[path = "token_renewals.rs"]
mod token_renewals;

use veche_frontends::hooks::{HookDecision, HookRequest};
use veche_frontends::identity::IdentityResult;

use super::{Peer, World};

impl World {
    /// Takes the hook requests of the sessions on a worker.
    pub fn hook_requests(&mut self, worker: usize) -> Vec<HookRequest> {
        let worker = &mut self.workers[worker];
        let mut asked = std::mem::take(&mut worker.asked);
        asked.append(&mut worker.record.borrow_mut().asked);
        // Requests of the current turn are still in the worker's context.
        asked.extend(worker.shared_mut().requests.hook_requests.drain(..));
        asked
    }

    /// Makes a decision, which the session receives in the worker's next turn.
    pub fn deliver_decision(
        &mut self,
        worker: usize,
        request: &HookRequest,
        decision: HookDecision,
    ) {
        let ports = &mut self.workers[worker].shared_mut().requests;
        let decision = (request.session, request.id, decision);
        ports.hook_decisions.push_back(decision);
    }

    /// Passes the result of an authentication to a client's connection.
    pub fn found(&mut self, Peer(peer): Peer, identity_result: IdentityResult) {
        let client = &self.clients[peer];
        let (worker, id) = (client.worker, client.id);
        self.workers[worker]
            .worker
            .handle_identity(id, identity_result);
        self.settle();
    }
}
