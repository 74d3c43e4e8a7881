//! When an instruction counts as carried out: once each worker with a connection of the user has done it, and each home
//! that this concerns knows.
//!
//! The user's home passes the instruction on and tells the caller how many answers to expect. Each worker that got it calls
//! [`Hub::settle`] behind its sessions: a mail to the homes concerned, which follows the changes of membership in the same
//! lanes, so that a home has counted them when it answers the caller.

use std::sync::Arc;

use crate::mail::Origin;
use crate::{Answer, Caller, Deed, Engine, Hub, Instruction, Mail, Outlet, WorkerId};

/// The homes that an instruction concerns.
enum Reach<'i> {
    /// None: it changes nothing but sessions.
    Sessions,
    /// That of a channel.
    Channel(&'i str),
    /// Those of all channels that a session may be subscribed to.
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
    /// Home: the answers that follow when so many workers carry an instruction out.
    pub(crate) fn settlements(&self, instruction: &Instruction, workers: u32) -> u32 {
        match Reach::of(instruction) {
            Reach::Sessions | Reach::Channel(_) => workers,
            Reach::Everything => workers * u32::from(self.workers),
        }
    }

    /// The sessions of this worker have carried out an instruction, or have it on record. To be called once for each
    /// [`Outlet::instructed`].
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

    /// Home: what the worker has sent before is counted.
    pub(crate) fn settled(&mut self, caller: Caller, outlet: &mut impl Outlet) {
        let origin = Origin {
            from: caller.worker,
            reply: Some((caller.session, caller.ticket)),
        };
        self.reply(origin, Answer::Settled, outlet);
    }

    /// Local: has the sessions of a channel carry an instruction out; its caller is told behind that.
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
