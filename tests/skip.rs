//! Says that a test can't run on this machine, for the last lines of `tests/run`, which counts it as skipped.

use std::fmt::Display;
use std::io::Write as _;

/// Reports the running test as skipped. Goes past the capture of a test's output, which hides that of one that passes.
pub(crate) fn skip(why: impl Display) {
    let thread = std::thread::current();
    let line = format!(
        "\nSKIPPED test {}: {why}\n",
        thread.name().unwrap_or("of no name")
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}
