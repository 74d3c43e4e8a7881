//! Counters of hook requests by kind, for `/metrics`.

use veche_frontends::hooks::HookKind;
use veche_outbound::{AtomicCounter, LatencyHistogram};

/// The outcome of a hook request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The back end granted the request.
    Granted,
    /// The back end returned an error for the client.
    Error,
    /// The back end disconnects the client.
    Disconnect,
    /// The request failed, or its response was invalid.
    Failed,
    /// No response arrived in time.
    TimedOut,
    /// The request was not sent: requests are suspended after failures.
    Paused,
    /// The request was not sent: too many requests were waiting.
    Crowded,
    /// The request was not sent: it was queued for too long.
    Expired,
}

impl WebhookOutcome {
    /// All outcomes with their metric labels.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Granted, "granted"),
        (Self::Error, "error"),
        (Self::Disconnect, "disconnect"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timeout"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
        (Self::Expired, "expired"),
    ];
}

/// The counters of one kind.
#[derive(Debug, Default)]
pub struct KindMetrics {
    /// Number of requests by [`WebhookOutcome`].
    pub asked: [AtomicCounter; WebhookOutcome::ALL.len()],
    /// The number of pending requests.
    pub waiting: AtomicCounter,
    /// The response times, of any outcome.
    pub took: LatencyHistogram,
}

impl KindMetrics {
    pub(super) fn count(&self, how: WebhookOutcome) {
        self.asked[how as usize].add(1);
    }

    /// Counts queued requests that were not sent.
    pub(super) fn not_asked(&self, how: WebhookOutcome, count: usize) {
        self.asked[how as usize].add(count as u64);
        self.waiting.sub(count as u64);
    }
}

/// The counters of all kinds.
#[derive(Debug, Default)]
pub struct HookMetrics([KindMetrics; HookKind::ALL.len()]);

impl HookMetrics {
    /// Returns the counters of one kind.
    pub fn of(&self, kind: HookKind) -> &KindMetrics {
        &self.0[kind as usize]
    }
}
