//! The properties of a simulated cluster, which are derived from a seed.

use fastrand::Rng;

use super::link::FeedFaults;

/// The properties of a simulated cluster, which are derived from `seed`.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    /// The number of workers on each node.
    pub(super) workers: u16,
    pub(super) clients: usize,
    pub(super) feed: FeedFaults,
    /// Whether the store may lose what it has acknowledged. If not, no subscriber may be notified of a loss.
    pub(super) can_lose: bool,
}

impl Setup {
    pub(super) fn new(seed: u64) -> Self {
        let random = &mut Rng::with_seed(seed ^ 0x5e7_0b5);
        Self {
            seed,
            nodes: random.usize(2..=10),
            workers: random.u16(1..=2),
            clients: random.usize(3..=16),
            feed: FeedFaults {
                reorders: random.bool(),
                repeats: random.bool(),
                loses: random.bool(),
            },
            can_lose: random.u8(..3) > 0,
        }
    }
}
