//! Defines which messages between workers also exist between nodes, and which stay within one node.

use std::sync::Arc;

use veche_hub::{ChannelQuery, HubMessage, HubReply};
use veche_nodes::{
    Caller, ChannelsQuery, NodeAnswer, NodeMessage, NodeReply, UserCommandRequest, UserStatusQuery,
};
use veche_types::{ConnectionId, WorkerId};

use crate::message::WorkerMessage;

/// Prefix of a personal channel's name; the user's name follows.
const PERSONAL: char = '#';

impl<M> WorkerMessage<M> {
    /// Converts the message to the equivalent message between nodes.
    ///
    /// # Errors
    /// The message exists only between workers of one node.
    #[expect(
        clippy::result_large_err,
        reason = "the error contains the message itself, so it can't be smaller"
    )]
    pub fn into_node_message(self, from: WorkerId, to: WorkerId) -> Result<NodeMessage, Self> {
        match self {
            Self::Hub(mail) => handle_node_mail(mail, from, to).map_err(Self::Hub),
            Self::Relay(relay) => Ok(NodeMessage::Relay(relay)),
            Self::ListConnections(list_request) => Ok(NodeMessage::Connections(list_request)),
            Self::Block(command) => Ok(NodeMessage::Block(command)),
            // The node's id only determines where the message is sent; it is not part of the message.
            Self::RelayTo(_, relay) => Ok(NodeMessage::Relay(relay)),
            // Messages of applications exist only within a node.
            Self::App(message) => Err(Self::App(message)),
        }
    }

    /// Converts a message from another node to the equivalent message for a worker. The inverse of
    /// [`into_node_message`](Self::into_node_message).
    ///
    /// # Errors
    /// Returns the message if it is for the process as a whole, not for a worker.
    pub fn from_node_message(message: NodeMessage) -> Result<Self, NodeMessage> {
        Ok(match message {
            NodeMessage::Instruct(UserCommandRequest {
                user,
                instruction,
                caller,
            }) => Self::Hub(HubMessage::CommandUser {
                channel: personal(&user),
                instruction,
                reply: caller.map(|caller| (caller.session, caller.ticket)),
            }),
            NodeMessage::Connections(list_request) => Self::ListConnections(list_request),
            NodeMessage::Channels(ChannelsQuery { pattern, caller }) => {
                Self::Hub(HubMessage::List {
                    pattern,
                    session: caller.session,
                    ticket: caller.ticket,
                })
            }
            NodeMessage::UserStatus(UserStatusQuery { user, caller }) => {
                Self::Hub(HubMessage::Query {
                    channel: personal(&user),
                    query: ChannelQuery::UserStatus,
                    session: caller.session,
                    ticket: caller.ticket,
                })
            }
            NodeMessage::Answer(NodeReply { caller, answer }) => Self::Hub(HubMessage::Answer {
                session: caller.session,
                ticket: caller.ticket,
                answer: match answer {
                    NodeAnswer::Connections(all) => HubReply::Connections(all),
                    NodeAnswer::Channels(all) => HubReply::Channels(all),
                    NodeAnswer::UserStatus(status) => HubReply::UserStatus(status),
                    NodeAnswer::Instructed { .. } | NodeAnswer::Blocked(_) => {
                        return Err(NodeMessage::Answer(NodeReply { caller, answer }));
                    }
                },
            }),
            NodeMessage::Relay(relay) => Self::Relay(relay),
            NodeMessage::Announce(_)
            | NodeMessage::Leave
            | NodeMessage::Block(_)
            | NodeMessage::App(_) => {
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
    reason = "the error contains the message itself, so it can't be smaller"
)]
fn handle_node_mail(
    mail: HubMessage,
    from: WorkerId,
    to: WorkerId,
) -> Result<NodeMessage, HubMessage> {
    let caller = |worker: WorkerId, session: ConnectionId, ticket| Caller {
        worker,
        session,
        ticket,
    };
    Ok(match mail {
        HubMessage::CommandUser {
            ref channel,
            ref instruction,
            reply,
        } => match channel.strip_prefix(PERSONAL) {
            Some(user) => NodeMessage::Instruct(UserCommandRequest {
                user: user.into(),
                instruction: Arc::clone(instruction),
                caller: reply.map(|(session, ticket)| caller(from, session, ticket)),
            }),
            None => return Err(mail),
        },
        HubMessage::List {
            pattern,
            session,
            ticket,
        } => NodeMessage::Channels(ChannelsQuery {
            pattern,
            caller: caller(from, session, ticket),
        }),
        HubMessage::Query {
            ref channel,
            query: ChannelQuery::UserStatus,
            session,
            ticket,
        } => match channel.strip_prefix(PERSONAL) {
            Some(user) => NodeMessage::UserStatus(UserStatusQuery {
                user: user.into(),
                caller: caller(from, session, ticket),
            }),
            None => return Err(mail),
        },
        HubMessage::Answer {
            session,
            ticket,
            answer,
        } => {
            let caller = caller(to, session, ticket);
            match answer_node_request(answer) {
                Ok(answer) => NodeMessage::Answer(NodeReply { caller, answer }),
                Err(answer) => {
                    return Err(HubMessage::Answer {
                        session,
                        ticket,
                        answer,
                    });
                }
            }
        }
        // The ordering of a channel stays on its node, because each node has a home worker for the channel.
        HubMessage::Subscribe { .. }
        | HubMessage::Refused { .. }
        | HubMessage::Subscribed { .. }
        | HubMessage::Unsubscribe { .. }
        | HubMessage::Publish { .. }
        | HubMessage::Deliver { .. }
        | HubMessage::Query { .. }
        | HubMessage::Lost { .. }
        | HubMessage::LogFull { .. }
        // Parts of a user command that was split among the workers of the node; other nodes get the whole command.
        | HubMessage::Command { .. }
        | HubMessage::Acknowledge { .. } => return Err(mail),
    })
}

fn answer_node_request(answer: HubReply) -> Result<NodeAnswer, HubReply> {
    Ok(match answer {
        HubReply::Connections(all) => NodeAnswer::Connections(all),
        HubReply::Channels(all) => NodeAnswer::Channels(all),
        HubReply::UserStatus(status) => NodeAnswer::UserStatus(status),
        HubReply::Subscribed(_)
        | HubReply::Published(_)
        | HubReply::Failed
        | HubReply::History(_)
        | HubReply::HistoryRemoved(_)
        | HubReply::Presence(_)
        | HubReply::PresenceStats(_)
        | HubReply::CommandDispatched(_)
        | HubReply::CommandAcknowledged
        | HubReply::Partial { .. } => return Err(answer),
    })
}
