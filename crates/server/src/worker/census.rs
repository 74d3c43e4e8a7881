//! Which connections there are, for a back end that asks: each worker says it of its own.

use veche_frontends::Census;
use veche_hub::{Mail, Outlet as _};
use veche_mailbox::Class;

use super::Rest;
use super::mail::Letter;

impl Rest {
    /// What this worker was asked to ask.
    pub(super) fn begin_censuses(&mut self) {
        for census in std::mem::take(&mut self.shared.ports.censuses) {
            for to in 0..self.shared.ports.post.lanes.len() {
                if to != self.me {
                    let letter = Letter::Census(census.clone());
                    let posted = self.mailbox.post(to, Class::Control, letter);
                    debug_assert!(posted.is_ok(), "control mail has room");
                }
            }
            self.take_census(&census);
        }
    }

    pub(super) fn take_census(&mut self, census: &Census) {
        let slots = &self.slots;
        let answer = census.take(&self.shared, |id| {
            slots.look(id).map(|slot| &slot.connection)
        });
        let (worker, session, ticket) = census.from;
        let ports = &mut self.shared.ports;
        if usize::from(worker.0) == self.me {
            return ports.answer(session, ticket, answer);
        }
        let mail = Mail::Answer {
            session,
            ticket,
            answer,
        };
        ports.mail(worker, mail);
    }
}
