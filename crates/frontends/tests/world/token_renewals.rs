//! Token renewals by applications.

use veche_frontends::RenewError;
use veche_frontends::worker_context::TokenRenewal;

use super::super::apps::SCRIPTED;
use super::super::{Peer, World};

impl World {
    /// Provides a new token for a client's session, as an application does; returns the result.
    pub fn renew(
        &mut self,
        Peer(peer): Peer,
        token: &str,
    ) -> Option<Result<Option<u64>, RenewError>> {
        let client = &self.clients[peer];
        let (worker, session) = (client.worker, client.id);
        let at = &mut self.workers[worker];
        at.shared_mut().requests.renewals.push(TokenRenewal {
            session,
            credential: token.to_owned(),
            app: SCRIPTED,
            ticket: 1,
        });
        self.settle();
        self.workers[worker].record.borrow_mut().renewed.pop()
    }
}
