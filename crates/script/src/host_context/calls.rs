//! The calls of a VM that are in progress, and the bytes that they hold outside of the VM's memory until they complete.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use veche_runtime::Token;

/// Limit of the data that a VM's calls in progress send, in bytes. It is needed because any number
/// of coroutines may send the same long string, which Lua stores once. A single call may exceed the
/// limit.
const BYTES_MAX: usize = 64 << 20;

/// The calls in progress, with the bytes that each sends.
#[derive(Default)]
pub(crate) struct OpenCalls {
    sizes: HashMap<Token, usize, RandomState>,
    bytes: usize,
}

impl OpenCalls {
    /// Adds a call that holds a number of bytes; returns `false` if there is no room for it.
    pub(crate) fn begin(&mut self, token: Token, bytes: usize) -> bool {
        if bytes > 0 && self.bytes > 0 && self.bytes.saturating_add(bytes) > BYTES_MAX {
            return false;
        }
        self.sizes.insert(token, bytes);
        self.bytes += bytes;
        true
    }

    /// Removes a call; returns whether it was in progress.
    pub(crate) fn end(&mut self, token: Token) -> bool {
        let bytes = self.sizes.remove(&token);
        self.bytes -= bytes.unwrap_or(0);
        bytes.is_some()
    }

    /// Returns the tokens of all calls.
    pub(crate) fn into_tokens(self) -> impl Iterator<Item = Token> {
        self.sizes.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_room_until_their_bytes_reach_the_limit() {
        let mut calls = OpenCalls::default();
        assert!(calls.begin(Token(1), 2 * BYTES_MAX), "a single call");
        assert!(!calls.begin(Token(2), 1));
        assert!(calls.begin(Token(3), 0), "one without data");
        assert!(calls.end(Token(1)) && !calls.end(Token(1)) && !calls.end(Token(2)));
        assert!(calls.begin(Token(4), BYTES_MAX - 1) && calls.begin(Token(5), 1));
        assert!(!calls.begin(Token(6), 1));
        assert!(calls.end(Token(5)) && calls.begin(Token(6), 1));
        assert_eq!(calls.into_tokens().count(), 3);
    }
}
