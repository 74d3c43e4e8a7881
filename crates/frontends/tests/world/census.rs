//! What a worker asks of its connections that the other helpers do not: lists of them, renewals, word of slow ones.

use veche_frontends::{Census, NotRenewed};
use veche_hub::{Answer, ConnectionId};

use super::super::{Peer, World};

impl World {
    /// Has all workers answer what a worker wants to know of their connections.
    pub fn take_censuses(&mut self) {
        for me in 0..self.workers.len() {
            let censuses = std::mem::take(&mut self.workers[me].shared.ports.censuses);
            for census in censuses {
                assert_eq!(usize::from(census.from.0.0), me);
                for worker in 0..self.workers.len() {
                    self.answer_census(worker, &census);
                }
            }
        }
        self.settle();
    }

    fn answer_census(&mut self, worker: usize, census: &Census) {
        let at = &self.workers[worker];
        let find = |id: ConnectionId| {
            let client = at.client(id)?;
            self.clients[client].connection.as_ref()
        };
        let answer: Answer = census.take(&at.shared, find);
        let (home, session, ticket) = census.from;
        if let Some(peer) = self.workers[usize::from(home.0)].client(session) {
            self.with(peer, |connection, id, shared| {
                connection.answered(id, ticket, answer, shared)
            });
        }
    }
}

impl World {
    /// An application hands in another token for a client's session.
    pub fn renew(
        &mut self,
        Peer(peer): Peer,
        token: &str,
    ) -> Option<Result<Option<u64>, NotRenewed>> {
        let mut renewed = None;
        self.with(peer, |connection, id, shared| {
            renewed = Some(connection.renew(id, token, shared));
        });
        renewed
    }

    /// A client has begun to miss what it may miss.
    pub fn fell_behind(&mut self, Peer(peer): Peer) {
        self.with(peer, |connection, id, shared| {
            connection.fell_behind(id, shared)
        });
    }
}
