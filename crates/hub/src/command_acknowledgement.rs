//! Completion of user commands. A command is complete once each worker with a connection of the user has executed it,
//! and each affected home has counted the resulting changes of membership.
//!
//! The user's home dispatches the command to the workers, and reports to the caller how many acknowledgements to
//! expect. When its sessions have executed the command, each worker calls [`Hub::acknowledge_command`], which sends a
//! message to the affected homes. This message follows the worker's membership changes in the same lanes, so a home has
//! counted them when it acknowledges the command to the caller.

use std::sync::Arc;

use crate::message::Origin;
use crate::{Caller, Engine, Hub, HubMessage, HubReply, Outlet, UserAction, UserCommand, WorkerId};

/// The homes affected by a command.
enum AffectedHomes<'i> {
    /// The command affects only sessions and no home. Each worker acknowledges it directly to the caller.
    NoHomes,
    /// The home of one channel.
    Channel(&'i str),
    /// All homes, because the command may end subscriptions to any channel.
    AllHomes,
}

impl AffectedHomes<'_> {
    fn of(instruction: &UserCommand) -> AffectedHomes<'_> {
        match &instruction.action {
            UserAction::Subscribe(wanted) => AffectedHomes::Channel(&wanted.channel),
            UserAction::Unsubscribe { channel } => AffectedHomes::Channel(channel),
            UserAction::Disconnect { .. }
            | UserAction::Refresh {
                is_expired: true, ..
            } => AffectedHomes::AllHomes,
            UserAction::Refresh { .. } => AffectedHomes::NoHomes,
        }
    }
}

impl<E: Engine> Hub<E> {
    /// At the channel's home: returns the number of acknowledgements that follow if `workers` workers execute the
    /// command.
    pub(crate) fn expected_acknowledgements(&self, instruction: &UserCommand, workers: u32) -> u32 {
        match AffectedHomes::of(instruction) {
            AffectedHomes::NoHomes | AffectedHomes::Channel(_) => workers,
            AffectedHomes::AllHomes => workers * u32::from(self.workers),
        }
    }

    /// Acknowledges a command after the sessions of this worker have executed it. Must be called once for each
    /// [`Outlet::command_dispatched`].
    pub fn acknowledge_command(
        &mut self,
        caller: Caller,
        instruction: &UserCommand,
        outlet: &mut impl Outlet,
    ) {
        match AffectedHomes::of(instruction) {
            AffectedHomes::NoHomes => self.command_acknowledged(caller, outlet),
            AffectedHomes::Channel(channel) => {
                let home = self.home_of_name(channel);
                self.acknowledge_at(home, caller, outlet);
            }
            AffectedHomes::AllHomes => {
                for worker in 0..self.workers {
                    self.acknowledge_at(WorkerId(worker), caller, outlet);
                }
            }
        }
    }

    fn acknowledge_at(&mut self, home: WorkerId, caller: Caller, outlet: &mut impl Outlet) {
        match home == self.me {
            true => self.command_acknowledged(caller, outlet),
            false => outlet.send_message(home, HubMessage::Acknowledge { caller }),
        }
    }

    /// At the channel's home: acknowledges a command to its caller. By now this home has handled
    /// all earlier messages of the worker that executed the command.
    pub(crate) fn command_acknowledged(&mut self, caller: Caller, outlet: &mut impl Outlet) {
        let origin = Origin {
            from: caller.worker,
            reply: Some((caller.session, caller.ticket)),
        };
        self.reply(origin, HubReply::CommandAcknowledged, outlet);
    }

    /// On the subscriber's worker: makes the sessions subscribed to a channel execute a command.
    /// The caller is notified after the sessions have executed it.
    pub(crate) fn execute_for_sessions(
        &mut self,
        channel: &str,
        instruction: &Arc<UserCommand>,
        caller: Option<Caller>,
        outlet: &mut impl Outlet,
    ) {
        self.execute_locally(channel, instruction, outlet);
        if let Some(caller) = caller {
            outlet.command_dispatched(caller, instruction);
        }
    }
}
