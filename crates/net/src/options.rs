//! Options of a driver, with defaults.

/// Limits and sizes of one driver, which belongs to one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size in bytes of the buffer that all receiving calls share. It limits the length of the
    /// `Received` event of one such call, and the bytes that a turn receives from one transport.
    /// Default 64 KiB, which is small enough to stay in the core's cache until the bytes are
    /// forwarded. With 128 to 512 KiB, bulk data costs 1.6 times as much per byte.
    pub receive_bytes: usize,
    /// Maximum number of sockets served in a turn, each with at most one receive. Default 64, so
    /// that the received bytes of a turn and the replies fit into the core's cache.
    pub receives_max: usize,
    /// Maximum number of connections that one listener accepts in a turn. Default 64.
    pub accepts_max: usize,
    /// Maximum number of timers that fire in a turn. Default 64, as for receives: a timer may close
    /// its connection, which costs as much as a receive.
    pub timers_max: usize,
    /// The low-water mark in unsent bytes, at which `Drained` is reported. Default 16 KiB.
    pub low_water_bytes: usize,
    /// How long a listener backs off after descriptors ran out, in milliseconds. Default 100.
    pub accept_retry_ms: u64,
    /// io_uring: number of buffers into which the kernel receives without a system call, a power of
    /// two from 1 to 4,096. While all are full, bytes are received by system calls, as with epoll.
    /// Default 8, so that all buffers fit into the core's cache.
    pub ring_buffers: u16,
    /// io_uring: size of each buffer in bytes, which is also the maximum length of a `Received`
    /// event. Default 64 KiB.
    pub ring_buffer_bytes: usize,
    /// io_uring: whether consecutive receives share a buffer, if the kernel supports it (Linux
    /// 6.12). Otherwise each receive uses a whole buffer, and there are eight times as many buffers
    /// of an eighth of the size. Default `true`.
    pub ring_shares_buffers: bool,
    /// io_uring: size of the completion queue, a power of two of at least 512. The kernel stores
    /// further completions less efficiently. Default 8,192.
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
