//! What fuzzers do with a whole server: any bytes to connections under TLS ([`sealed`]), any configurations to a server
//! that runs ([`reload`]).
//!
//! One real worker on a simulated network and clock, as in tests of applications. It is built for fuzzers and for the
//! tests that replay their corpora only.

mod reload;
mod sealed;
mod stage;
#[cfg(test)]
mod tests;

pub use reload::reload;
pub use sealed::sealed;

/// An input, read from its front.
#[derive(Debug)]
pub struct Script<'d>(pub &'d [u8]);

impl<'d> Script<'d> {
    /// The next byte, if there is one.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// So many bytes, or as many as there are.
    pub fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A number, and so many bytes.
    pub fn counted(&mut self) -> &'d [u8] {
        let count = usize::from(self.byte().unwrap_or(0));
        self.bytes(count)
    }
}
