//! Determines at intervals which messages have exceeded their time limit.

use crate::clock::MILLISECOND;
use crate::engine::EngineState;

/// Maximum time between two checks for expired messages.
const INTERVAL_NS_MAX: u64 = 100 * MILLISECOND;

/// Schedules checks of messages in flight.
#[derive(Debug, Default)]
pub(super) struct ExpiryTimer {
    next_ns: u64,
}

impl ExpiryTimer {
    /// Returns the limit of the send time: messages sent earlier have expired. Returns `None`
    /// between checks, and after the measured time.
    pub(super) fn limit_ns(&mut self, net: &EngineState) -> Option<u64> {
        let (now, timeout_ns) = (net.now_ns, net.plan.timeout_ns);
        if now < self.next_ns || now >= net.until_ns {
            return None;
        }
        self.next_ns = now + (timeout_ns / 10).clamp(MILLISECOND, INTERVAL_NS_MAX);
        Some(now.saturating_sub(timeout_ns))
    }
}
