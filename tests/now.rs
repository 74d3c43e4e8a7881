//! The clock of tests, and of programs that measure.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "tests and benchmarks use real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
