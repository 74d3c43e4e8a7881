//! Epochs of new streams.

use crate::Epoch;

/// Makes epochs that differ.
#[derive(Debug)]
pub(crate) struct EpochGenerator(fastrand::Rng);

impl EpochGenerator {
    /// Two of one seed make the same ones.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next_epoch(&mut self) -> Epoch {
        Epoch::from_bits(self.0.u64(..))
    }
}
