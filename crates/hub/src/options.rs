//! Limits of a hub.

/// A channel with at most this many local subscribers is served immediately, within the publish call.
pub const IMMEDIATE_MAX: usize = 16;

/// Limits of one worker's hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of publications of a channel queued for a sweep; beyond that publishers are refused until a sweep
    /// ends. At least 1.
    pub channel_queue_publications_max: usize,
    /// Maximum payload bytes queued for sweeps on this worker, all channels together; the publication that reaches it
    /// is still accepted. At least 1.
    pub queue_bytes_max: usize,
    /// Maximum number of subscriptions on this worker.
    pub subscriptions_max: u32,
    /// Seed of the epochs: random and unique to this hub. Clients see values derived from it, so it must not be derived
    /// from another secret.
    pub epoch_seed: u64,
    /// Maximum number of sessions on this worker: the bound of [`ConnectionId::index`](crate::ConnectionId::index).
    pub sessions_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            channel_queue_publications_max: 1024,
            queue_bytes_max: 64 << 20,
            subscriptions_max: 1 << 26,
            epoch_seed: 0,
            sessions_max: 1 << 24,
        }
    }
}
