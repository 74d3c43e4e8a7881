//! Lists of the channels that have subscribers.

use std::sync::Arc;

use crate::{
    ChannelList, ConnectionId, Engine, Glob, Hub, HubMessage, HubReply, Outlet, Ticket, WorkerId,
};

impl<E: Engine> Hub<E> {
    /// Lists the channels that have subscribers and whose names match a pattern. Returns the channels whose home is
    /// this worker, and the number of [`HubReply::Channels`] that will follow from other workers. Takes time
    /// proportional to the number of channels.
    pub fn list(
        &self,
        (session, ticket): (ConnectionId, Ticket),
        pattern: Glob,
        outlet: &mut impl Outlet,
    ) -> (ChannelList, u32) {
        let pattern = Arc::new(pattern);
        let others = (0..self.workers).map(WorkerId);
        for worker in others.filter(|worker| *worker != self.me) {
            let mail = HubMessage::List {
                pattern: Arc::clone(&pattern),
                session,
                ticket,
            };
            outlet.send_message(worker, mail);
        }
        (self.list_local(&pattern), u32::from(self.workers) - 1)
    }

    pub(crate) fn receive_list(
        &self,
        from: WorkerId,
        pattern: &Glob,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let answer = HubReply::Channels(self.list_local(pattern));
        let mail = HubMessage::Answer {
            session,
            ticket,
            answer,
        };
        outlet.send_message(from, mail);
    }

    fn list_local(&self, pattern: &Glob) -> ChannelList {
        let mut listing = ChannelList::default();
        for channel in self.channels.iter() {
            let is_listed = channel.home.is_local() && pattern.matches(&channel.name);
            let clients = channel.total_subscribers();
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
