//! What a driver can be told, with defaults that are good.

/// Limits and sizes of one driver, that is of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the one buffer that all transports receive into; the longest
    /// `Received`. Default 64 KiB: small enough to stay in the core's cache while
    /// it is sent on; 128 to 512 KiB cost 1.6 times as much per byte of bulk.
    pub receive_bytes: usize,
    /// Most sockets looked at in a turn, each with at most one receive.
    /// Default 64: what a turn receives, and the answers to it, should fit the
    /// core's own cache.
    pub receives_max: usize,
    /// Most connections that one listener accepts in a turn. Default 64.
    pub accepts_max: usize,
    /// Most timers that fire in a turn. Default 1,024.
    pub timers_max: usize,
    /// Where `Drained` fires. Default 16 KiB.
    pub low_water_bytes: usize,
    /// Pause of a listener after descriptors ran out. Default 100 ms.
    pub accept_retry_ms: u64,
    /// io_uring: buffers that the kernel receives into before anybody has asked, a power of two from 1 to 32,768. When
    /// all are in use receiving waits until one is given back. Default 64: with the
    /// size below what a core's own cache holds.
    pub ring_buffers: u16,
    /// io_uring: the size of each, and the longest `Received`. Default 8 KiB.
    pub ring_buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_bytes: 64 * 1024,
            receives_max: 64,
            accepts_max: 64,
            timers_max: 1024,
            low_water_bytes: 16 * 1024,
            accept_retry_ms: 100,
            ring_buffers: 64,
            ring_buffer_bytes: 8 * 1024,
        }
    }
}
