//! What has come of questions, by kind; read by `/metrics`.

use veche_frontends::hooks::HookKind;
use veche_outbound::{LatencyHistogram, SharedCounter};

/// How a question has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// So be it.
    Granted,
    /// With an error for the client.
    Error,
    /// With the end of the connection.
    Disconnect,
    /// With no answer of use.
    Failed,
    /// With no answer in time.
    TimedOut,
    /// It was not asked: the back end is left alone for now.
    Paused,
    /// It was not asked: too many wait already.
    Crowded,
    /// It was not asked: it had queued for too long.
    Expired,
}

impl WebhookOutcome {
    /// All of them, with the labels in the metrics.
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

/// Of one kind.
#[derive(Debug, Default)]
pub struct KindMetrics {
    /// Questions by how they ended.
    pub asked: [SharedCounter; WebhookOutcome::ALL.len()],
    /// Questions that are out.
    pub waiting: SharedCounter,
    /// How long answers took, whatever they were.
    pub took: LatencyHistogram,
}

impl KindMetrics {
    pub(super) fn count(&self, how: WebhookOutcome) {
        self.asked[how as usize].add(1);
    }

    /// Counts questions that have left the queue without being asked.
    pub(super) fn not_asked(&self, how: WebhookOutcome, count: usize) {
        self.asked[how as usize].add(count as u64);
        self.waiting.sub(count as u64);
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct HookMetrics([KindMetrics; HookKind::ALL.len()]);

impl HookMetrics {
    /// Returns the figures of one kind of question.
    pub fn of(&self, kind: HookKind) -> &KindMetrics {
        &self.0[kind as usize]
    }
}
