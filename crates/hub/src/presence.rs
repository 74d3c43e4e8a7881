//! The members of channels. The home tracks them and announces joins and leaves to subscribers.
//!
//! A member is a subscription made with a [`ClientInfo`]. If the namespace has a `leave_delay`, a user's last
//! connection stays a member for that time after it was closed, even if the channel has no other member. So reloading
//! a page is neither a leave nor a join.

use std::sync::Arc;

use crate::channel_members::{ChannelMembers, LeaveEffect};
use crate::engine::{EngineReply, LocalMembers, MemberChange, QueryContext};
use crate::message::Origin;
use crate::{ClientInfo, Engine, FeedEvent, Hub, PresenceError};

/// Maximum number of users per home whose leave delay is running; further users leave at once.
const LEAVING_MAX: usize = 100_000;

impl<E: Engine> Hub<E> {
    /// At the channel's home: handles a subscriber that was just counted. `client` is `None` if the
    /// subscriber does not appear among the channel's members.
    pub(crate) fn member_joined(&mut self, index: u32, client: Option<&Arc<ClientInfo>>) {
        let Some(client) = client else { return };
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        if !namespace.has_members() {
            return;
        }
        let presence = &mut self.presence;
        let channel_members = presence.channels.entry(Arc::clone(name)).or_default();
        let is_by_user = namespace.leave_delay_ms > 0;
        let arrival = channel_members.join(client, is_by_user);
        let returned = arrival
            .was_leaving
            .and_then(|key| presence.leaving.remove(&key));
        let name = Arc::clone(name);
        if let Some((_, gone)) = returned {
            // The user stays a member and only its connection changes, so nothing is announced.
            self.member_changed(&name, FeedEvent::Left, &gone, is_by_user, false);
        }
        self.member_changed(
            &name,
            FeedEvent::Joined,
            client,
            is_by_user,
            arrival.is_announced,
        );
    }

    /// At the channel's home: handles a subscriber that has unsubscribed. `client` is `None` if the
    /// subscriber did not appear among the channel's members.
    pub(crate) fn member_left(&mut self, index: u32, client: Option<&Arc<ClientInfo>>) {
        let Some(client) = client else { return };
        let name = &self.channels[index].name;
        let namespace = self.namespaces.of(name);
        let presence = &mut self.presence;
        let Some(channel_members) = presence.channels.get_mut(name) else {
            return;
        };
        presence.serial += 1;
        let due_ms = self.now.mono_ms + namespace.leave_delay_ms;
        let key = (due_ms, presence.serial);
        let may_return = namespace.has_members()
            && namespace.leave_delay_ms > 0
            && presence.leaving.len() < LEAVING_MAX;
        let departure = channel_members.leave(client, may_return.then_some(key));
        if channel_members.is_empty() {
            presence.channels.remove(name);
        }
        match departure {
            LeaveEffect::Unknown => {}
            LeaveEffect::Delayed => {
                let absent = (Arc::clone(name), Arc::clone(client));
                presence.leaving.insert(key, absent);
            }
            // `Unannounced`: the user has other connections, and only users are announced.
            LeaveEffect::Unannounced | LeaveEffect::Announced => {
                let name = Arc::clone(name);
                let is_by_user = namespace.leave_delay_ms > 0;
                let is_news = departure == LeaveEffect::Announced;
                self.member_changed(&name, FeedEvent::Left, client, is_by_user, is_news);
            }
        }
    }

    /// At the channel's home: reports a member change to the engine, and announces the change if
    /// the engine requests this.
    fn member_changed(
        &mut self,
        channel: &Arc<str>,
        event: FeedEvent,
        client: &Arc<ClientInfo>,
        is_by_user: bool,
        is_news: bool,
    ) {
        let change = MemberChange {
            channel,
            client,
            event,
            is_by_user,
            is_announced: is_news,
        };
        match self.engine.member_changed(change) {
            EngineReply::Ready(true) if is_news => self.announce_member(channel, event, client),
            EngineReply::Ready(_) | EngineReply::Deferred => {}
        }
    }

    /// At the channel's home: removes the members whose leave delay has ended.
    pub(crate) fn expire_leaves(&mut self) {
        let now_ms = self.now.mono_ms;
        while let Some(entry) = self.presence.leaving.first_entry()
            && entry.key().0 <= now_ms
        {
            let (name, client) = entry.remove();
            self.finish_leave(&name, &client);
        }
    }

    /// At the channel's home: ends all running leave delays of a channel at once.
    pub(crate) fn expire_leaves_of(&mut self, channel: &Arc<str>) {
        let channel_members = self.presence.channels.get(channel);
        for key in channel_members.map_or_else(Vec::new, ChannelMembers::leaving) {
            if let Some((_, client)) = self.presence.leaving.remove(&key) {
                self.finish_leave(channel, &client);
            }
        }
    }

    fn finish_leave(&mut self, channel: &Arc<str>, client: &Arc<ClientInfo>) {
        let all_members = &mut self.presence.channels;
        let Some(channel_members) = all_members.get_mut(channel) else {
            return;
        };
        channel_members.expire(client);
        if channel_members.is_empty() {
            all_members.remove(channel);
        }
        self.member_changed(channel, FeedEvent::Left, client, true, true);
    }

    /// At the channel's home: announces a member change to subscribers and, if configured, to the back end.
    pub(crate) fn announce_member(
        &mut self,
        channel: &Arc<str>,
        event: FeedEvent,
        client: &Arc<ClientInfo>,
    ) {
        self.record_member(channel, event, client);
        if self.namespaces.of(channel).join_leave {
            self.join_leave_queue
                .push(channel, event, Arc::clone(client));
        }
    }

    /// At the channel's home: queries the engine with `ask` for the members of a channel or for their number. Returns
    /// `None` if the reply follows in a report of the engine.
    pub(crate) fn query_presence<T>(
        &mut self,
        channel: &str,
        origin: Origin,
        ask: impl FnOnce(
            &mut E,
            LocalMembers<'_>,
            QueryContext,
        ) -> EngineReply<Result<T, PresenceError>>,
    ) -> Option<Result<T, PresenceError>> {
        if !self.namespaces.of(channel).presence {
            return Some(Err(PresenceError::Off));
        }
        let channel_members = self.presence.channels.get(channel);
        let here = LocalMembers {
            channel,
            members: channel_members,
        };
        match ask(&mut self.engine, here, QueryContext(origin)) {
            EngineReply::Ready(answer) => Some(answer),
            EngineReply::Deferred => None,
        }
    }
}
