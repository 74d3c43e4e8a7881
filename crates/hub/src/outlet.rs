//! The effects of a hub.

use std::sync::Arc;

use crate::{
    Caller, ConnectionId, Delivery, HubMessage, HubMessageClass, HubReply, Ticket, UserCommand,
    WorkerId,
};

/// Receives the hub's effects. The worker implements it over its mailbox and its connections.
///
/// No method may re-enter the hub: record the effect and perform it after the call. The implementor recognises sessions
/// that have ended meanwhile by their generation.
pub trait Outlet {
    /// Sends a message. Data messages are sent only after [`has_credit`](Self::has_credit) returned true in the same
    /// call of the hub, and take that credit.
    fn send_message(&mut self, to: WorkerId, mail: HubMessage);

    /// Returns whether a message of this class can be sent to the worker now; called only for data messages. True for
    /// [`HubMessageClass::Deliver`] covers two messages: one for the subscribers of the channel, one for those of its [wildcard
    /// channel](crate::Wildcards).
    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool;

    /// Returns the credit of a data message of this class after it has been processed.
    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass);

    /// Delivers a publication to a subscriber.
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>);

    /// Replies to a ticket, possibly of a session without any subscription.
    fn send_reply(&mut self, session: ConnectionId, ticket: Ticket, answer: HubReply);

    /// Executes a command for a session if it applies to it. If the session is closed,
    /// [`Hub::close`](crate::Hub::close) follows later.
    fn execute_command(&mut self, session: ConnectionId, instruction: &Arc<UserCommand>);

    /// Publications of a channel may be missing and can't be recovered: the session's state is insufficient and it has
    /// to subscribe again. Does not occur with an engine within one process.
    fn publications_lost(&mut self, _session: ConnectionId, _channel: &Arc<str>) {}

    /// All local sessions of a command were passed to [`execute_command`](Self::execute_command). Once they have executed it,
    /// [`Hub::acknowledge_command`](crate::Hub::acknowledge_command) notifies the caller.
    fn command_dispatched(&mut self, caller: Caller, instruction: &Arc<UserCommand>);
}
