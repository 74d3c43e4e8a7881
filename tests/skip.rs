//! Reports that a test can't run on this machine. `tests/run` counts and lists it as skipped.

use std::fmt::Display;
use std::io::Write as _;

/// Reports the running test as skipped. Writes directly to standard error, since the captured
/// output of a passing test is not shown.
pub(crate) fn skip(why: impl Display) {
    let thread = std::thread::current();
    let line = format!(
        "\nSKIPPED test {}: {why}\n",
        thread.name().unwrap_or("of no name")
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}
