//! The hub's limits.

/// A channel with at most so many subscribers here is served at once, in the publish call itself.
pub const IMMEDIATE_MAX: usize = 16;

/// The limits of one worker's hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Publications that may wait on one channel for a sweep. With so many, its publishers are
    /// refused until a sweep ends. At least 1.
    pub channel_queue_publications_max: usize,
    /// Bytes of payload that may wait for sweeps on this worker, all channels together; the
    /// publication that reaches it is still taken. At least 1.
    pub queue_bytes_max: usize,
    /// Subscriptions of this worker.
    pub subscriptions_max: u32,
    /// Of epochs: random, and of this hub alone. Clients see what is made of it, so it says nothing of other secrets.
    pub epoch_seed: u64,
    /// Sessions of this worker: the bound of [`ConnectionId::index`](crate::ConnectionId::index).
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
