//! Generates the epochs of new streams.

use crate::Epoch;

#[derive(Debug)]
pub(crate) struct EpochGenerator(fastrand::Rng);

impl EpochGenerator {
    /// Returns a generator. Equal seeds generate equal sequences of epochs.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next_epoch(&mut self) -> Epoch {
        Epoch::from_bits(self.0.u64(..))
    }
}
