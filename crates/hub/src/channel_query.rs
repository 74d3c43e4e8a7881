//! What is asked of a channel's home, and how the answer comes back.

use crate::publish::Origin;
use crate::{
    ChannelName, ConnectionId, Engine, HistoryQuery, Hub, HubMessage, HubReply, Outlet,
    RequestOutcome, Ticket, WorkerId,
};

/// What somebody wants to know of a channel, or have done to it, by its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelQuery {
    /// A part of its history: [`HubReply::History`].
    History(HistoryQuery),
    /// Its publications are to be let go of; its position stays: [`HubReply::HistoryRemoved`].
    RemoveHistory,
    /// Who is there: [`HubReply::Presence`].
    Presence,
    /// How many are there: [`HubReply::PresenceStats`].
    PresenceStats,
    /// Whether the user is there whose channel it is: [`HubReply::UserStatus`].
    UserStatus,
}

impl<E: Engine> Hub<E> {
    /// Asks the home of a channel. The answer comes to the ticket if the outcome is [`RequestOutcome::Pending`].
    pub fn query(
        &mut self,
        (session, ticket): (ConnectionId, Ticket),
        channel: ChannelName<'_>,
        question: ChannelQuery,
        outlet: &mut impl Outlet,
    ) -> RequestOutcome<HubReply> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.home(hash, channel.as_str());
        if home == self.me {
            let origin = Origin {
                from: home,
                reply: Some((session, ticket)),
            };
            let answer = self.answer_query(channel.as_str(), &question, origin);
            return answer.map_or(RequestOutcome::Pending, RequestOutcome::Done);
        }
        let channel = self.channel_name(hash, channel.as_str());
        let mail = HubMessage::Query {
            channel,
            question,
            session,
            ticket,
        };
        outlet.send_message(home, mail);
        RequestOutcome::Pending
    }

    /// Home: somebody on another worker asks.
    pub(crate) fn receive_query(
        &mut self,
        from: WorkerId,
        channel: &str,
        question: &ChannelQuery,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let reply = Some((session, ticket));
        let origin = Origin { from, reply };
        if let Some(answer) = self.answer_query(channel, question, origin) {
            self.reply(origin, answer, outlet);
        }
    }

    /// Home: hands somebody an answer.
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

    /// `None`: it comes later.
    fn answer_query(
        &mut self,
        channel: &str,
        question: &ChannelQuery,
        origin: Origin,
    ) -> Option<HubReply> {
        Some(match question {
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
