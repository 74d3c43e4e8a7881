//! What a worker's connections have under way, by name: for tests of what must be empty once all is quiet.

use crate::context::shared::{Ports, Shared};

impl Ports {
    /// Queues and counters that are not empty, each with how much is in it. There is none once the worker has done what
    /// they ask for and all mail is finished.
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
    /// Connections that wait, not counting zeros: for their own answers to leave, or for the hub to take publications.
    pub fn waiting(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("waiting for output", self.waiting_for_output.len() as u64),
            ("waiting for credit", self.waiting_for_credit.len() as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
