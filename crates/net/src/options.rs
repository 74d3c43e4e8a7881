//! What a driver can be told, with defaults that are good.

/// Limits and sizes of one driver, that is of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the one buffer that all transports receive into by a call; the longest
    /// `Received` there, and what a turn tells of one transport. Default 64 KiB: small enough to stay in the core's cache while
    /// it is sent on; 128 to 512 KiB cost 1.6 times as much per byte of bulk.
    pub receive_bytes: usize,
    /// Most sockets looked at in a turn, each with at most one receive.
    /// Default 64: what a turn receives, and the answers to it, should fit the
    /// core's own cache.
    pub receives_max: usize,
    /// Most connections that one listener accepts in a turn. Default 64.
    pub accepts_max: usize,
    /// Most timers that fire in a turn. Default 64: a timer may close its connection, which costs as much as a receive.
    pub timers_max: usize,
    /// Where `Drained` fires. Default 16 KiB.
    pub low_water_bytes: usize,
    /// Pause of a listener after descriptors ran out. Default 100 ms.
    pub accept_retry_ms: u64,
    /// io_uring: buffers that the kernel receives into before anybody has asked, a power of two from 1 to 4,096. What
    /// comes while all are full is received by a call, as with epoll. Default 8: all of them should fit the core's own cache.
    pub ring_buffers: u16,
    /// io_uring: the size of each, and the longest `Received`. Default 64 KiB.
    pub ring_buffer_bytes: usize,
    /// io_uring: receives share a buffer, one behind the other, where the kernel can (Linux 6.12). Else each takes a
    /// whole one, and there are eight times as many of an eighth of the size. Default `true`.
    pub ring_shares_buffers: bool,
    /// io_uring: what the kernel has done and we have not looked at yet, a power of two from 512 on; more than that the
    /// kernel keeps at a price. Default 8,192.
    pub ring_completions: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_bytes: 64 * 1024,
            receives_max: 64,
            accepts_max: 64,
            timers_max: 64,
            low_water_bytes: 16 * 1024,
            accept_retry_ms: 100,
            ring_buffers: 8,
            ring_buffer_bytes: 64 * 1024,
            ring_shares_buffers: true,
            ring_completions: 8192,
        }
    }
}
