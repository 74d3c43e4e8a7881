//! Queries to a channel's home and their replies.

use crate::message::Origin;
use crate::{
    ChannelName, ChannelQuery, ConnectionId, Engine, Hub, HubMessage, HubReply, Outlet,
    RequestOutcome, Ticket, WorkerId,
};

impl<E: Engine> Hub<E> {
    /// Queries the home of a channel. If the outcome is [`RequestOutcome::Pending`], the reply arrives later, with
    /// `ticket`.
    pub fn query(
        &mut self,
        (session, ticket): (ConnectionId, Ticket),
        channel: ChannelName<'_>,
        query: ChannelQuery,
        outlet: &mut impl Outlet,
    ) -> RequestOutcome<HubReply> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.channels.home(hash, channel.as_str(), &self.namespaces);
        if home == self.me {
            let origin = Origin {
                from: home,
                reply: Some((session, ticket)),
            };
            let answer = self.answer_query(channel.as_str(), &query, origin);
            return answer.map_or(RequestOutcome::Pending, RequestOutcome::Done);
        }
        let channel = self.channel_name(hash, channel.as_str());
        let mail = HubMessage::Query {
            channel,
            query,
            session,
            ticket,
        };
        outlet.send_message(home, mail);
        RequestOutcome::Pending
    }

    /// At the channel's home: handles a query of another worker.
    pub(crate) fn receive_query(
        &mut self,
        from: WorkerId,
        channel: &str,
        query: &ChannelQuery,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let reply = Some((session, ticket));
        let origin = Origin { from, reply };
        if let Some(answer) = self.answer_query(channel, query, origin) {
            self.reply(origin, answer, outlet);
        }
    }

    /// At the channel's home: sends the reply to a request to the worker that made it. Does nothing if no session waits
    /// for a reply.
    pub(crate) fn reply(
        &self,
        Origin { from, reply }: Origin,
        answer: HubReply,
        outlet: &mut impl Outlet,
    ) {
        let Some((session, ticket)) = reply else {
            return;
        };
        if from == self.me {
            return outlet.send_reply(session, ticket, answer);
        }
        let mail = HubMessage::Answer {
            session,
            ticket,
            answer,
        };
        outlet.send_message(from, mail);
    }

    /// At the channel's home: returns the reply to a query; `None` if the reply follows later.
    fn answer_query(
        &mut self,
        channel: &str,
        query: &ChannelQuery,
        origin: Origin,
    ) -> Option<HubReply> {
        Some(match query {
            ChannelQuery::History(query) => {
                HubReply::History(self.read_history(channel, query, origin)?)
            }
            ChannelQuery::RemoveHistory => {
                HubReply::HistoryRemoved(self.clear_history(channel, origin)?)
            }
            ChannelQuery::Presence => {
                HubReply::Presence(self.query_presence(channel, origin, E::presence)?)
            }
            ChannelQuery::PresenceStats => {
                HubReply::PresenceStats(self.query_presence(channel, origin, E::presence_stats)?)
            }
            ChannelQuery::UserStatus => HubReply::UserStatus(self.user_status(channel)),
        })
    }
}
