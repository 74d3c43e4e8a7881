//! Which channels there are.

use std::sync::Arc;

use crate::{Answer, ConnectionId, Engine, Glob, Hub, Mail, Outlet, Ticket, WorkerId};

/// The most channels that are listed at once.
pub const LISTED_MAX: usize = 10_000;

/// Channels with subscribers, and how many each has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    channels: Vec<(Arc<str>, u32)>,
    is_too_long: bool,
}

impl Listing {
    /// Those of another worker as well.
    pub fn add(&mut self, more: Self) {
        self.channels.extend(more.channels);
        self.is_too_long |= more.is_too_long || self.channels.len() > LISTED_MAX;
    }

    /// All of them, in no order; `None` if there are more than [`LISTED_MAX`].
    pub fn channels(&self) -> Option<&[(Arc<str>, u32)]> {
        (!self.is_too_long).then_some(&self.channels)
    }
}

impl<E: Engine> Hub<E> {
    /// Lists channels with subscribers whose names fit a pattern. Returns those with their home here, and how many
    /// [`Answer::Channels`] of others will come. Takes longer the more there are.
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
            if listing.channels.len() == LISTED_MAX {
                listing.is_too_long = true;
                break;
            }
            listing.channels.push((Arc::clone(&channel.name), clients));
        }
        listing
    }
}
