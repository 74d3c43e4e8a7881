//! Options of a driver, with defaults.

/// Limits and sizes of one driver, which belongs to one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the buffer shared by all receiving calls; the longest `Received` of such a call, and the maximum per
    /// transport and turn. Default 64 KiB: small enough to stay in the core's cache while it is sent on; 128 to 512 KiB
    /// cost 1.6 times as much per byte of bulk data.
    pub receive_bytes: usize,
    /// Maximum number of sockets served in a turn, each with at most one receive. Default 64: the received bytes of a
    /// turn and the replies should fit the core's own cache.
    pub receives_max: usize,
    /// Maximum number of connections that one listener accepts in a turn. Default 64.
    pub accepts_max: usize,
    /// Maximum number of timers that fire in a turn. Default 64: a timer may close its connection, which costs as much
    /// as a receive.
    pub timers_max: usize,
    /// Threshold of `Drained`. Default 16 KiB.
    pub low_water_bytes: usize,
    /// Back-off of a listener after descriptors ran out. Default 100 ms.
    pub accept_retry_ms: u64,
    /// io_uring: number of buffers into which the kernel receives by itself, a power of two from 1 to 4,096. While all
    /// are full, bytes are received by a call, as with epoll. Default 8: all of them should fit the core's own cache.
    pub ring_buffers: u16,
    /// io_uring: size of each buffer, and the longest `Received`. Default 64 KiB.
    pub ring_buffer_bytes: usize,
    /// io_uring: whether receives share a buffer, one after the other, if the kernel supports it (Linux 6.12).
    /// Otherwise each receive uses a whole buffer, and there are eight times as many of an eighth of the size. Default
    /// `true`.
    pub ring_shares_buffers: bool,
    /// io_uring: size of the completion queue, a power of two from 512 on; the kernel stores further completions at a
    /// cost. Default 8,192.
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
