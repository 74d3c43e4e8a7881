//! Pending work of a worker's connections by name, for tests that check that everything is empty when idle.

use crate::context::shared::{Ports, Shared};

impl Ports {
    /// Returns nonempty queues and counters with their sizes. There are none once the worker has finished its work and
    /// all mail is processed.
    pub fn under_way(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let lanes = || self.post.lanes.iter();
        let outgoing = lanes().map(|lane| lane.outgoing.len()).sum::<usize>();
        let unfinished: u64 = lanes().map(|lane| u64::from(lane.unfinished)).sum();
        let counted: u64 = lanes().map(|lane| u64::from(lane.outgoing_data)).sum();
        let finished: u64 = lanes().map(|lane| u64::from(lane.finished)).sum();
        [
            ("answers", self.answers.len() as u64),
            ("censuses", self.censuses.len() as u64),
            ("kicks", self.kicks.len() as u64),
            ("instructions", self.instructions.len() as u64),
            ("lost channels", self.lost.len() as u64),
            ("instructions to settle", self.settling.len() as u64),
            ("relays", self.relays.len() as u64),
            ("relays to nodes", self.far_relays.len() as u64),
            ("blocks", self.blocks.len() as u64),
            ("renewals", self.renewals.len() as u64),
            ("answers of applications", self.app_answers.len() as u64),
            ("questions", self.questions.len() as u64),
            ("verdicts", self.verdicts.len() as u64),
            ("outgoing mail", outgoing as u64),
            ("outgoing data", counted),
            ("unfinished mail", unfinished),
            ("credits to give back", finished),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}

impl Shared {
    /// Returns the numbers of connections that wait for their output to be sent or for publication credit, without
    /// zeros.
    pub fn waiting(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("waiting for output", self.waiting_for_output.len() as u64),
            ("waiting for credit", self.waiting_for_credit.len() as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
