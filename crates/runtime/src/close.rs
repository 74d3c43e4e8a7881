//! Close codes as numbers of scripts.

use veche_types::codes::is_sendable;

/// Returns whether a handler may close with that code.
#[must_use]
pub fn is_close_code(code: f64) -> bool {
    let code = code as u16 * u16::from(code.fract() == 0.0);
    is_sendable(code)
}
