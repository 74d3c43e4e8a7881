//! Close codes as Lua's numbers.

use veche_types::codes::is_sendable;

/// Whether a script may close with that code.
pub(crate) fn is_close_code(code: f64) -> bool {
    let code = code as u16 * u16::from(code.fract() == 0.0);
    is_sendable(code)
}
