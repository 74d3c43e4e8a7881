//! Defines which messages between workers also exist between nodes, and which stay within one node.

use std::sync::Arc;

use veche_hub::{Answer, Mail, Question};
use veche_nodes::{
    Answer as NodeAnswer, Caller, ChannelsQuery, Message, Reply, UserCommand, UserStatusQuery,
};
use veche_types::{ConnectionId, WorkerId};

use crate::message::WorkerMessage;

/// Prefix of a personal channel's name, followed by the user.
const PERSONAL: char = '#';

impl<M> WorkerMessage<M> {
    /// Converts to the equivalent message between nodes.
    ///
    /// # Errors
    /// The message exists only between workers of one node.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the message itself, which goes another way"
    )]
    pub fn into_node_message(self, from: WorkerId, to: WorkerId) -> Result<Message, Self> {
        match self {
            Self::Hub(mail) => mail_between_nodes(mail, from, to).map_err(Self::Hub),
            Self::Relay(relay) => Ok(Message::Relay(relay)),
            Self::Census(census) => Ok(Message::Connections(census)),
            Self::Block(command) => Ok(Message::Block(command)),
            // Its node is chosen where it is sent.
            Self::RelayTo(_, relay) => Ok(Message::Relay(relay)),
            // Applications choose their own form within a node.
            Self::App(message) => Err(Self::App(message)),
        }
    }

    /// Converts a message of another node to the equivalent message for a worker, the inverse of
    /// [`into_node_message`](Self::into_node_message).
    ///
    /// # Errors
    /// The message is for the process, not for a worker.
    pub fn from_node_message(message: Message) -> Result<Self, Message> {
        Ok(match message {
            Message::Instruct(UserCommand {
                user,
                instruction,
                caller,
            }) => Self::Hub(Mail::InstructAll {
                channel: personal(&user),
                instruction,
                reply: caller.map(|caller| (caller.session, caller.ticket)),
            }),
            Message::Connections(census) => Self::Census(census),
            Message::Channels(ChannelsQuery { pattern, caller }) => Self::Hub(Mail::List {
                pattern,
                session: caller.session,
                ticket: caller.ticket,
            }),
            Message::UserStatus(UserStatusQuery { user, caller }) => Self::Hub(Mail::Ask {
                channel: personal(&user),
                question: Question::UserStatus,
                session: caller.session,
                ticket: caller.ticket,
            }),
            Message::Answer(Reply { caller, answer }) => Self::Hub(Mail::Answer {
                session: caller.session,
                ticket: caller.ticket,
                answer: match answer {
                    NodeAnswer::Connections(all) => Answer::Connections(all),
                    NodeAnswer::Channels(all) => Answer::Channels(all),
                    NodeAnswer::UserStatus(status) => Answer::UserStatus(status),
                    NodeAnswer::Instructed { .. } | NodeAnswer::Blocked(_) => {
                        return Err(Message::Answer(Reply { caller, answer }));
                    }
                },
            }),
            Message::Relay(relay) => Self::Relay(relay),
            Message::Announce(_) | Message::Leave | Message::Block(_) | Message::App(_) => {
                return Err(message);
            }
        })
    }
}

fn personal(user: &str) -> Arc<str> {
    format!("{PERSONAL}{user}").into()
}

#[expect(
    clippy::result_large_err,
    reason = "the error is the message itself, which goes another way"
)]
fn mail_between_nodes(mail: Mail, from: WorkerId, to: WorkerId) -> Result<Message, Mail> {
    let caller = |worker: WorkerId, session: ConnectionId, ticket| Caller {
        worker,
        session,
        ticket,
    };
    Ok(match mail {
        Mail::InstructAll {
            ref channel,
            ref instruction,
            reply,
        } => match channel.strip_prefix(PERSONAL) {
            Some(user) => Message::Instruct(UserCommand {
                user: user.into(),
                instruction: Arc::clone(instruction),
                caller: reply.map(|(session, ticket)| caller(from, session, ticket)),
            }),
            None => return Err(mail),
        },
        Mail::List {
            pattern,
            session,
            ticket,
        } => Message::Channels(ChannelsQuery {
            pattern,
            caller: caller(from, session, ticket),
        }),
        Mail::Ask {
            ref channel,
            question: Question::UserStatus,
            session,
            ticket,
        } => match channel.strip_prefix(PERSONAL) {
            Some(user) => Message::UserStatus(UserStatusQuery {
                user: user.into(),
                caller: caller(from, session, ticket),
            }),
            None => return Err(mail),
        },
        Mail::Answer {
            session,
            ticket,
            answer,
        } => {
            let caller = caller(to, session, ticket);
            match answer_between_nodes(answer) {
                Ok(answer) => Message::Answer(Reply { caller, answer }),
                Err(answer) => {
                    return Err(Mail::Answer {
                        session,
                        ticket,
                        answer,
                    });
                }
            }
        }
        // Channel ordering and related mail belong to the channel's home worker on this node.
        Mail::Subscribe { .. }
        | Mail::Refused { .. }
        | Mail::Subscribed { .. }
        | Mail::Unsubscribe { .. }
        | Mail::Publish { .. }
        | Mail::Deliver { .. }
        | Mail::Ask { .. }
        | Mail::Lost { .. }
        | Mail::LogFull { .. }
        // A user command already split up within the node; other nodes send it whole.
        | Mail::Instruct { .. }
        | Mail::Settle { .. } => return Err(mail),
    })
}

fn answer_between_nodes(answer: Answer) -> Result<NodeAnswer, Answer> {
    Ok(match answer {
        Answer::Connections(all) => NodeAnswer::Connections(all),
        Answer::Channels(all) => NodeAnswer::Channels(all),
        Answer::UserStatus(status) => NodeAnswer::UserStatus(status),
        Answer::Subscribed(_)
        | Answer::Published(_)
        | Answer::Failed
        | Answer::History(_)
        | Answer::HistoryRemoved(_)
        | Answer::Presence(_)
        | Answer::PresenceStats(_)
        | Answer::Instructed(_)
        | Answer::Settled
        | Answer::Partial { .. } => return Err(answer),
    })
}
