//! Completion of user commands: a command is complete once each worker with a connection of the user has executed it
//! and each affected home knows the effect.
//!
//! The user's home dispatches the command and tells the caller how many acknowledgements to expect. After its sessions,
//! each worker calls [`Hub::settle`], which sends a message to the affected homes. It follows the membership changes in
//! the same lanes, so a home has counted them when it acknowledges the command to the caller.

use std::sync::Arc;

use crate::mail::Origin;
use crate::{Answer, Caller, Deed, Engine, Hub, Instruction, Mail, Outlet, WorkerId};

/// The homes affected by a command.
enum Reach<'i> {
    /// None: the command changes only sessions.
    Sessions,
    /// The home of one channel.
    Channel(&'i str),
    /// The homes of all channels to which a session may be subscribed.
    Everything,
}

impl Reach<'_> {
    fn of(instruction: &Instruction) -> Reach<'_> {
        match &instruction.deed {
            Deed::Subscribe(wanted) => Reach::Channel(&wanted.channel),
            Deed::Unsubscribe { channel } => Reach::Channel(channel),
            Deed::Disconnect { .. }
            | Deed::Refresh {
                is_expired: true, ..
            } => Reach::Everything,
            Deed::Refresh { .. } => Reach::Sessions,
        }
    }
}

impl<E: Engine> Hub<E> {
    /// Home: returns the number of acknowledgements that follow if this many workers execute the command.
    pub(crate) fn settlements(&self, instruction: &Instruction, workers: u32) -> u32 {
        match Reach::of(instruction) {
            Reach::Sessions | Reach::Channel(_) => workers,
            Reach::Everything => workers * u32::from(self.workers),
        }
    }

    /// Acknowledges a command after the sessions of this worker have executed or recorded it. To be called once for
    /// each [`Outlet::instructed`].
    pub fn settle(&mut self, caller: Caller, instruction: &Instruction, outlet: &mut impl Outlet) {
        match Reach::of(instruction) {
            Reach::Sessions => self.settled(caller, outlet),
            Reach::Channel(channel) => {
                let home = self.home(self.channels.hash(channel), channel);
                self.settle_at(home, caller, outlet);
            }
            Reach::Everything => {
                for worker in 0..self.workers {
                    self.settle_at(WorkerId(worker), caller, outlet);
                }
            }
        }
    }

    fn settle_at(&mut self, home: WorkerId, caller: Caller, outlet: &mut impl Outlet) {
        match home == self.me {
            true => self.settled(caller, outlet),
            false => outlet.mail(home, Mail::Settle { caller }),
        }
    }

    /// Home: everything the worker sent before is counted.
    pub(crate) fn settled(&mut self, caller: Caller, outlet: &mut impl Outlet) {
        let origin = Origin {
            from: caller.worker,
            reply: Some((caller.session, caller.ticket)),
        };
        self.reply(origin, Answer::Settled, outlet);
    }

    /// Local: makes the sessions of a channel execute a command; its caller is notified after that.
    pub(crate) fn begin_instruction(
        &mut self,
        channel: &str,
        instruction: &Arc<Instruction>,
        caller: Option<Caller>,
        outlet: &mut impl Outlet,
    ) {
        self.carry_out(channel, instruction, outlet);
        if let Some(caller) = caller {
            outlet.instructed(caller, instruction);
        }
    }
}
