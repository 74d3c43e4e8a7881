//! A user's connections: who they are here, and the end of all of them.

use std::sync::Arc;

use crate::subscription::NONE;
use crate::{ChannelName, Hub, Mail, NameError, Outcome, Outlet, SessionId, Ticket};

impl Hub {
    /// Asks for the end of all connections of a user, on all workers. The answer, or
    /// [`Outcome::Done`], says how many there were.
    pub fn disconnect_user(
        &mut self,
        from: Option<(SessionId, Ticket)>,
        user: &str,
        code: u16,
        reason: &str,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome<u32>, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        let hash = self.channels.hash(name.as_str());
        let home = self.home(hash);
        if home == self.me {
            let found = self.channels.find(hash, name.as_str());
            let count = found.map_or(0, |index| self.disconnect(index, code, reason, outlet));
            return Ok(Outcome::Done(count));
        }
        let channel = self.channel_name(hash, name.as_str());
        let mail = Mail::DisconnectUser {
            channel,
            code,
            reason: Arc::from(reason),
            reply: from,
        };
        outlet.mail(home, mail);
        Ok(Outcome::Pending)
    }

    /// The connections of a user that are this worker's, in no order.
    pub fn sessions_of_user(&self, user: &str) -> impl Iterator<Item = SessionId> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer).ok();
        let index = name.and_then(|name| self.find(name.as_str()));
        let channel = index.map(|index| &self.channels[index]);
        let slots = channel.map_or(&[][..], |channel| channel.subscribers.as_slice());
        let slots = slots.iter().filter(|slot| **slot != NONE);
        slots.map(|slot| self.subscriptions.session(*slot))
    }

    /// Home: tells all workers with subscribers. Returns how many these are.
    pub(crate) fn disconnect(
        &mut self,
        index: u32,
        code: u16,
        reason: &str,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let channel = &self.channels[index];
        if !channel.shares.is_empty() {
            let reason: Arc<str> = Arc::from(reason);
            for share in channel.shares.as_slice() {
                let channel = channel.name.clone();
                let mail = Mail::Disconnect {
                    channel,
                    code,
                    reason: reason.clone(),
                };
                outlet.mail(share.worker, mail);
            }
        }
        self.disconnect_here(index, code, reason, outlet);
        self.channels[index].subscribers_all()
    }

    pub(crate) fn disconnect_here(
        &self,
        index: u32,
        code: u16,
        reason: &str,
        outlet: &mut impl Outlet,
    ) {
        for slot in self.channels[index].subscribers.as_slice() {
            if *slot != NONE {
                outlet.disconnect(self.subscriptions.session(*slot), code, reason);
            }
        }
    }
}
