//! The way of a publication: publisher → home → engine → feed → workers.

use crate::payload::Source;
use crate::{
    ChannelName, Class, Hub, Mail, Outcome, Outlet, Payload, PayloadRef, SessionId, Ticket,
    WorkerId,
};

/// A publication can't be taken now, for lack of credit or of room in a queue. Nothing of it was
/// done: the caller pauses its source and tries again after [`Hub::credit_returned`] or
/// [`Hub::sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channel can't take a publication now")]
pub struct NoCredit;

/// What keeps a publication from being ordered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// An earlier one of its channel is stalled.
    Behind,
    /// A worker with subscribers can't be sent to, or an earlier stalled one needs that lane.
    Lane,
    /// The channel's queue here, or this worker's queues together, are full.
    Queue,
}

impl Hub {
    /// Publishes to a channel. With `from`, [`Answer::Published`](crate::Answer::Published) comes
    /// if the outcome is [`Outcome::Pending`].
    ///
    /// A refused publication has no place in any queue: of several local sources that publish to
    /// one channel, the one that tries first is first.
    pub fn publish(
        &mut self,
        from: Option<(SessionId, Ticket)>,
        channel: ChannelName<'_>,
        payload: PayloadRef<'_>,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome, NoCredit> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.home(hash);
        if home != self.me {
            if !outlet.has_credit(home, Class::Publish) {
                return Err(NoCredit);
            }
            let channel = self.channel_name(hash, channel.as_str());
            let payload = payload.to_payload();
            outlet.mail(
                home,
                Mail::Publish {
                    channel,
                    payload,
                    reply: from,
                },
            );
            return Ok(Outcome::Pending);
        }
        let Some(index) = self.channels.find(hash, channel.as_str()) else {
            return Ok(Outcome::Handed(0));
        };
        if self.blocked(index, outlet).is_some() {
            return Err(NoCredit);
        }
        Ok(Outcome::Handed(self.order(
            index,
            Source::Borrowed(payload),
            outlet,
        )))
    }

    /// Home: a publication of another worker's client.
    pub(crate) fn receive_publish(
        &mut self,
        from: WorkerId,
        channel: &str,
        payload: Payload,
        reply: Option<(SessionId, Ticket)>,
        outlet: &mut impl Outlet,
    ) {
        match self.find(channel) {
            None => finish(from, reply, 0, outlet),
            Some(index) => match self.blocked(index, outlet) {
                None => {
                    let handed = self.order(index, Source::Kept(payload), outlet);
                    finish(from, reply, handed, outlet);
                }
                Some(blocked) => self.stall(index, blocked, from, payload, reply),
            },
        }
    }

    /// Home: whether a publication of this channel must wait, and for what.
    pub(crate) fn blocked(&self, index: u32, outlet: &impl Outlet) -> Option<Blocked> {
        if self.channels[index].waiting > 0 {
            return Some(Blocked::Behind);
        }
        self.blocked_by_room(index, outlet)
    }

    pub(crate) fn blocked_by_room(&self, index: u32, outlet: &impl Outlet) -> Option<Blocked> {
        let channel = &self.channels[index];
        for share in channel.shares.as_slice() {
            let is_free = !self.stalled.reserves(share.worker)
                && outlet.has_credit(share.worker, Class::Deliver);
            if !is_free {
                return Some(Blocked::Lane);
            }
        }
        if !self.has_queue_room(channel) {
            return Some(Blocked::Queue);
        }
        None
    }

    /// Gives a publication its place in the channel's order.
    ///
    /// This is the seam of the engine. The memory engine orders by the order of these calls, so
    /// the feed follows at once. An engine that is elsewhere, or that is durable, takes the
    /// publication as `Append` here and ends this step; the [`feed`](Self::feed) is then entered
    /// by what the engine sends back (`Durable`, with its position), in the engine's order. Where
    /// the feed turns out to have a gap, the channel is marked as gapped and its subscribers are
    /// told "insufficient state" from there instead of getting the publication.
    pub(crate) fn order(
        &mut self,
        index: u32,
        payload: Source<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        self.feed(index, payload, outlet)
    }

    /// Sends an ordered publication to every worker with subscribers, this one included. Returns
    /// the registered subscribers of all. The credits were looked at by [`blocked`](Self::blocked).
    fn feed(&mut self, index: u32, mut payload: Source<'_>, outlet: &mut impl Outlet) -> u32 {
        let channel = &self.channels[index];
        let handed = channel.subscribers_all();
        for share in channel.shares.as_slice() {
            let channel = channel.name.clone();
            outlet.mail(
                share.worker,
                Mail::Deliver {
                    channel,
                    payload: payload.keep(),
                },
            );
        }
        self.fan_out(index, payload, None, outlet);
        self.handed += u64::from(handed);
        handed
    }
}

/// Answers a publication of another worker and gives its credit back.
pub(crate) fn finish(
    from: WorkerId,
    reply: Option<(SessionId, Ticket)>,
    handed: u32,
    outlet: &mut impl Outlet,
) {
    if let Some((session, ticket)) = reply {
        outlet.mail(
            from,
            Mail::Published {
                session,
                ticket,
                handed,
            },
        );
    }
    outlet.mail_done(from, Class::Publish);
}
