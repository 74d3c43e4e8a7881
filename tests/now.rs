//! The monotonic clock for tests and benchmark programs.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "tests and benchmarks use real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
