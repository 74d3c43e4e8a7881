//! When an instruction counts as carried out: once each worker with a connection of the user has done it, and each home
//! that this concerns knows.
//!
//! The user's home passes the instruction on and tells the caller how many answers to expect. Each worker that got it calls
//! [`Hub::acknowledge_command`] behind its sessions: a mail to the homes concerned, which follows the changes of membership in the same
//! lanes, so that a home has counted them when it answers the caller.

use std::sync::Arc;

use crate::publish::Origin;
use crate::{Caller, Engine, Hub, HubMessage, HubReply, Outlet, UserAction, UserCommand, WorkerId};

/// What the user's home says of an instruction that it has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandDispatch {
    /// The connections of the user, on all workers.
    pub connections: u32,
    /// How many times [`HubReply::CommandAcknowledged`] comes before it is carried out; in any order with this answer.
    pub pending_acknowledgements: u32,
}

/// The homes that an instruction concerns.
enum AffectedHomes<'i> {
    /// None: it changes nothing but sessions.
    NoHomes,
    /// That of a channel.
    Channel(&'i str),
    /// Those of all channels that a session may be subscribed to.
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
    /// Home: the answers that follow when so many workers carry an instruction out.
    pub(crate) fn expected_acknowledgements(&self, instruction: &UserCommand, workers: u32) -> u32 {
        match AffectedHomes::of(instruction) {
            AffectedHomes::NoHomes | AffectedHomes::Channel(_) => workers,
            AffectedHomes::AllHomes => workers * u32::from(self.workers),
        }
    }

    /// The sessions of this worker have carried out an instruction, or have it on record. To be called once for each
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
                let home = self.home(self.channels.hash(channel), channel);
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

    /// Home: what the worker has sent before is counted.
    pub(crate) fn command_acknowledged(&mut self, caller: Caller, outlet: &mut impl Outlet) {
        let origin = Origin {
            from: caller.worker,
            reply: Some((caller.session, caller.ticket)),
        };
        self.reply(origin, HubReply::CommandAcknowledged, outlet);
    }

    /// Local: has the sessions of a channel carry an instruction out; its caller is told behind that.
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
