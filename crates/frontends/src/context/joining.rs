//! Tells clients where an application has subscribed them.

use veche_hub::{ConnectionId, Joined};

use crate::context::shared::Shared;

impl Shared {
    /// Tells a client where an application has subscribed it, where its route tells positions, and gives it what it has
    /// missed. Whether that is all of it; `None` if it has not come back. `is_back`: it was somewhere before.
    pub fn tell_joined(
        &mut self,
        session: ConnectionId,
        channel: &str,
        joined: Option<&Joined>,
        is_back: bool,
    ) -> Option<bool> {
        let outboxes = &mut self.ports.outboxes;
        if !outboxes.tells_positions(session) {
            return is_back.then_some(false);
        }
        let Some(joined) = joined else {
            let recovered = is_back.then_some(false);
            outboxes.subscribed(session, channel, None, recovered);
            return recovered;
        };
        let is_whole = outboxes.joined(session, channel, joined);
        joined.recovered.as_ref()?;
        self.stats.recovery(is_whole);
        Some(is_whole)
    }
}
