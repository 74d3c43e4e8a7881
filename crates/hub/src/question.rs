//! Queries to a channel's home and their replies.

use crate::mail::Origin;
use crate::{
    Answer, ChannelName, ConnectionId, Engine, Hub, Mail, Outcome, Outlet, Question, Ticket,
    WorkerId,
};

impl<E: Engine> Hub<E> {
    /// Queries the home of a channel. The reply comes to the ticket if the outcome is [`Outcome::Pending`].
    pub fn ask(
        &mut self,
        (session, ticket): (ConnectionId, Ticket),
        channel: ChannelName<'_>,
        question: Question,
        outlet: &mut impl Outlet,
    ) -> Outcome<Answer> {
        let hash = self.channels.hash(channel.as_str());
        let home = self.home(hash, channel.as_str());
        if home == self.me {
            let origin = Origin {
                from: home,
                reply: Some((session, ticket)),
            };
            let answer = self.answer_to(channel.as_str(), &question, origin);
            return answer.map_or(Outcome::Pending, Outcome::Done);
        }
        let channel = self.channel_name(hash, channel.as_str());
        let mail = Mail::Ask {
            channel,
            question,
            session,
            ticket,
        };
        outlet.mail(home, mail);
        Outcome::Pending
    }

    /// Home: handles a query of another worker.
    pub(crate) fn receive_question(
        &mut self,
        from: WorkerId,
        channel: &str,
        question: &Question,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let reply = Some((session, ticket));
        let origin = Origin { from, reply };
        if let Some(answer) = self.answer_to(channel, question, origin) {
            self.reply(origin, answer, outlet);
        }
    }

    /// Home: sends a reply to the origin of a request.
    pub(crate) fn reply(
        &self,
        Origin { from, reply }: Origin,
        answer: Answer,
        outlet: &mut impl Outlet,
    ) {
        let Some((session, ticket)) = reply else {
            return;
        };
        if from == self.me {
            return outlet.answer(session, ticket, answer);
        }
        let mail = Mail::Answer {
            session,
            ticket,
            answer,
        };
        outlet.mail(from, mail);
    }

    /// Returns the reply; `None` if it comes later.
    fn answer_to(&mut self, channel: &str, question: &Question, origin: Origin) -> Option<Answer> {
        Some(match question {
            Question::History(query) => Answer::History(self.read_history(channel, query, origin)?),
            Question::RemoveHistory => Answer::HistoryRemoved(self.clear_history(channel, origin)?),
            Question::Presence => {
                Answer::Presence(self.ask_presence(channel, origin, E::presence)?)
            }
            Question::PresenceStats => {
                Answer::PresenceStats(self.ask_presence(channel, origin, E::presence_stats)?)
            }
            Question::UserStatus => Answer::UserStatus(self.user_status(channel)),
        })
    }
}
