//! Listing of channels.

use std::sync::Arc;

use crate::{Answer, ConnectionId, Engine, Glob, Hub, Listing, Mail, Outlet, Ticket, WorkerId};

impl<E: Engine> Hub<E> {
    /// Lists channels with subscribers whose names match a pattern. Returns those homed here, and the number of
    /// [`Answer::Channels`] that will come from other workers. Takes time proportional to the number of channels.
    pub fn list(
        &self,
        (session, ticket): (ConnectionId, Ticket),
        pattern: Glob,
        outlet: &mut impl Outlet,
    ) -> (Listing, u32) {
        let pattern = Arc::new(pattern);
        let others = (0..self.workers).map(WorkerId);
        for worker in others.filter(|worker| *worker != self.me) {
            let mail = Mail::List {
                pattern: Arc::clone(&pattern),
                session,
                ticket,
            };
            outlet.mail(worker, mail);
        }
        (self.list_here(&pattern), u32::from(self.workers) - 1)
    }

    pub(crate) fn receive_list(
        &self,
        from: WorkerId,
        pattern: &Glob,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let answer = Answer::Channels(self.list_here(pattern));
        let mail = Mail::Answer {
            session,
            ticket,
            answer,
        };
        outlet.mail(from, mail);
    }

    fn list_here(&self, pattern: &Glob) -> Listing {
        let mut listing = Listing::default();
        for channel in self.channels.iter() {
            let is_listed = channel.home.is_here() && pattern.fits(&channel.name);
            let clients = channel.subscribers_all();
            if !is_listed || clients == 0 {
                continue;
            }
            if !listing.push(Arc::clone(&channel.name), clients) {
                break;
            }
        }
        listing
    }
}
