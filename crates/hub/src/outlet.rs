//! The interface through which a hub's effects leave it.

use std::sync::Arc;

use crate::{
    Caller, ConnectionId, Delivery, HubMessage, HubMessageClass, HubReply, Ticket, UserCommand,
    WorkerId,
};

/// Receives the hub's effects. The worker implements it with its mailbox and its connections.
///
/// No method may call the hub: it must record the effect, which is performed after the hub's method
/// has returned. A session may have ended in the meantime, which the implementation recognises by
/// the generation in the session's [`ConnectionId`].
pub trait Outlet {
    /// Sends a message to another worker. A data message (of a class other than [`HubMessageClass::Control`]) uses a
    /// credit, so it is sent only after [`has_credit`](Self::has_credit) has returned `true` in the same call of the
    /// hub.
    fn send_message(&mut self, to: WorkerId, mail: HubMessage);

    /// Returns whether a message of this class can be sent to the worker now. Called only for data messages. For
    /// [`HubMessageClass::Deliver`], `true` must cover two messages: one for the subscribers of the channel, and one
    /// for those of its [wildcard channel](crate::Wildcards).
    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool;

    /// Returns the credit of a data message of this class to its sender, because the message was processed.
    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass);

    /// Delivers a publication to the session of a subscriber.
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>);

    /// Sends the reply to a session's ticket. The session need not have a subscription.
    fn send_reply(&mut self, session: ConnectionId, ticket: Ticket, answer: HubReply);

    /// Makes a session execute a command, unless the command excludes the session. If the command closes the session,
    /// [`Hub::close`](crate::Hub::close) must be called later.
    fn execute_command(&mut self, session: ConnectionId, instruction: &Arc<UserCommand>);

    /// Notifies a session that publications of a channel may be missing and can't be recovered, so the client has to
    /// subscribe again. Never called with the [memory engine](crate::MemoryEngine).
    fn publications_lost(&mut self, _session: ConnectionId, _channel: &Arc<str>) {}

    /// Called when all local sessions concerned by a command were passed to [`execute_command`](Self::execute_command).
    /// Once they have executed it, [`Hub::acknowledge_command`](crate::Hub::acknowledge_command) must be called to
    /// notify the caller.
    fn command_dispatched(&mut self, caller: Caller, instruction: &Arc<UserCommand>);
}
