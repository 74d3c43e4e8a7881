//! What a Close frame may hold: RFC 6455, sections 5.5 and 7.4.

/// The longest reason of a Close frame in bytes.
pub const REASON_BYTES_MAX: usize = 123;

/// Returns whether a handler may close with that code.
#[must_use]
pub fn is_close_code(code: f64) -> bool {
    let code = code as u16 * u16::from(code.fract() == 0.0);
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
