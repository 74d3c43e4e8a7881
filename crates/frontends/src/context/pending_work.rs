//! Names and sizes of a worker's pending work, for tests that check that nothing is left when the worker is idle.

use crate::context::worker_context::{Context, Requests};

impl Requests {
    /// Returns the queues and counters that are not empty, with their sizes. There are none once the worker has
    /// processed all messages and finished its work.
    pub fn queue_lengths(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let lanes = || self.mailer.lanes.iter();
        let outgoing = lanes().map(|lane| lane.outgoing.len()).sum::<usize>();
        let unfinished: u64 = lanes().map(|lane| u64::from(lane.unfinished)).sum();
        let counted: u64 = lanes().map(|lane| u64::from(lane.outgoing_data)).sum();
        let finished: u64 = lanes().map(|lane| u64::from(lane.finished)).sum();
        [
            ("answers", self.answers.len() as u64),
            ("list requests", self.list_requests.len() as u64),
            ("disconnects", self.disconnects.len() as u64),
            ("user commands", self.user_commands.len() as u64),
            ("lost channels", self.lost_histories.len() as u64),
            (
                "finished user commands to be reported",
                self.finished_user_commands.len() as u64,
            ),
            ("relays", self.relays.len() as u64),
            ("relays to nodes", self.far_relays.len() as u64),
            ("blocks", self.blocks.len() as u64),
            ("renewals", self.renewals.len() as u64),
            ("answers of applications", self.app_answers.len() as u64),
            ("hook requests", self.hook_requests.len() as u64),
            ("hook decisions", self.hook_decisions.len() as u64),
            ("outgoing mail", outgoing as u64),
            ("outgoing data", counted),
            ("unfinished mail", unfinished),
            ("mailbox credits to be returned", finished),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}

impl Context {
    /// Returns the number of connections that wait for their output to be sent, for publication credit, or for the next
    /// turn, and of sessions whose ended handler was not continued yet; numbers that are 0 are left out.
    pub fn waiting_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("waiting for output", self.waiting_for_output.len() as u64),
            ("waiting for credit", self.waiting_for_credit.len() as u64),
            ("waiting for a turn", self.waiting_for_turn.len() as u64),
            ("ended handlers", self.app_ready.len() as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
