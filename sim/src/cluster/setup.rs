//! The properties of a cluster that its seed determines, in addition to its actions.

use fastrand::Rng;

use super::link::FeedFaults;

/// The properties of a cluster that its seed determines, other than its actions.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    /// The number of nodes, and of workers on each.
    pub(super) nodes: usize,
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
