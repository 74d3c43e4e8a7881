//! The hub's effects: everything that it wants done.

use std::sync::Arc;

use crate::{Answer, Caller, Class, ConnectionId, Delivery, Instruction, Mail, Ticket, WorkerId};

/// Where the hub's effects go. The worker implements it over its mailbox and its connections.
///
/// No method may re-enter the hub: note what is to be done and do it after the call. Sessions
/// that have ended meanwhile are the implementor's to recognise by their generation.
pub trait Outlet {
    /// Sends `mail`. Data mail is sent only after [`has_credit`](Self::has_credit) said yes in the
    /// same call of the hub, and takes that credit.
    fn mail(&mut self, to: WorkerId, mail: Mail);

    /// Whether a mail of this class can be sent to that worker now. Asked for data only. A yes for
    /// [`Class::Deliver`] is good for two mails: one for those who are subscribed to the channel, one
    /// for those who hear it [among others](crate::Wildcards).
    fn has_credit(&self, to: WorkerId, class: Class) -> bool;

    /// A data mail from that worker is finished: its credit of this class goes back.
    fn mail_done(&mut self, from: WorkerId, class: Class);

    /// Gives a publication to a subscriber.
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>);

    /// Answers a ticket. It may be a session that never subscribed to anything.
    fn answer(&mut self, session: ConnectionId, ticket: Ticket, answer: Answer);

    /// Has something done to a session, if it is meant. Where it is closed, [`Hub::close`](crate::Hub::close) follows
    /// later.
    fn instruct(&mut self, session: ConnectionId, instruction: &Arc<Instruction>);

    /// A session may have missed publications of a channel, and can't be given them: its state is insufficient, and it has
    /// to subscribe again. An engine within one process never has it come to this.
    fn lost(&mut self, _session: ConnectionId, _channel: &Arc<str>) {}

    /// All sessions of this worker that an instruction is for have been named. Once they have carried it out,
    /// [`Hub::settle`](crate::Hub::settle) tells the caller.
    fn instructed(&mut self, caller: Caller, instruction: &Arc<Instruction>);
}
