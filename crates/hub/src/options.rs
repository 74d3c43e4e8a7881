//! Limits of a hub.

/// Maximum number of subscribers on a worker for which a publication is delivered immediately,
/// within the publish call.
pub const IMMEDIATE_MAX: usize = 16;

/// Limits of one worker's hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of publications of one channel that wait for [`Hub::sweep`](crate::Hub::sweep). When it is
    /// reached, publishers are refused until a sweep ends. At least 1.
    pub channel_queue_publications_max: usize,
    /// Maximum payload bytes that wait for [`Hub::sweep`](crate::Hub::sweep) on this worker, for
    /// all channels together. The publication that reaches the limit is still accepted. At least 1.
    pub queue_bytes_max: usize,
    /// Maximum number of subscriptions on this worker; further ones fail with [`Full`](crate::SubscribeError::Full).
    pub subscriptions_max: u32,
    /// The seed of the epochs: random and unique to this hub. Epochs are derived from the seed and visible to clients,
    /// so the seed must not be derived from another secret.
    pub epoch_seed: u64,
    /// Maximum number of sessions on this worker. Subscriptions of a session whose [index](crate::ConnectionId::index)
    /// is not below this number fail with [`Full`](crate::SubscribeError::Full).
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
