//! Epochs of new streams.

use crate::Epoch;

/// Makes epochs that differ.
#[derive(Debug)]
pub(crate) struct Epochs(fastrand::Rng);

impl Epochs {
    /// Two of one seed make the same ones.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn make(&mut self) -> Epoch {
        Epoch::from_bits(self.0.u64(..))
    }
}
