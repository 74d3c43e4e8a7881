//! Validation of close codes that scripts pass as numbers.

use veche_types::codes::is_sendable;

/// Returns whether a handler may close a connection with a code.
#[must_use]
pub fn is_close_code(code: f64) -> bool {
    let code = code as u16 * u16::from(code.fract() == 0.0);
    is_sendable(code)
}
