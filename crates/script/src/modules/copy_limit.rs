//! Limits what a call copies out of Lua. A list may repeat one long string: Lua stores it once, but
//! a list in Rust stores a copy for each occurrence.

use std::cell::Cell;

use mlua::{LuaString, Value};

use super::go_on;

/// The maximum number of bytes that one call copies. The data of messages and responses does not count.
pub(super) const COPIED_BYTES_MAX: usize = 16 << 20;

/// The memory of a list entry in addition to its text, in bytes.
pub(super) const ENTRY_BYTES: usize = 64;

/// The maximum number of bytes of an option's name that are compared and shown; all valid names are
/// shorter.
const NAME_BYTES_MAX: usize = 128;

/// Counts the bytes that a call copies.
pub(super) struct CopyLimit {
    left: Cell<usize>,
}

impl CopyLimit {
    pub(super) fn new(bytes_max: usize) -> Self {
        let left = Cell::new(bytes_max);
        Self { left }
    }

    /// Counts bytes before they are copied. Returns `false` if they exceed the limit, so that the caller can raise its own
    /// error.
    ///
    /// # Errors
    /// Fails if the run of the script was ended, for example for its CPU time.
    pub(super) fn take(&self, bytes: usize) -> mlua::Result<bool> {
        go_on()?;
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        Ok(left.is_some())
    }

    /// Returns the number of bytes that may still be copied.
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }
}

/// Returns the length of a string; 0 for other values, whose texts are short.
pub(super) fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    }
}

/// Returns the name of an option, shortened if it is longer than all valid names.
pub(super) fn option_name(name: &LuaString) -> String {
    let name = name.as_bytes();
    String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_up_to_the_limit() {
        let limit = CopyLimit::new(10);
        assert!(limit.take(4).expect("no run") && limit.take(6).expect("no run"));
        assert_eq!(limit.left(), 0);
        assert!(!limit.take(1).expect("no run"));
        assert!(!CopyLimit::new(10).take(11).expect("no run"));
    }
}
