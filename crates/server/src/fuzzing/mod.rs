//! What fuzzers do with a whole server: any bytes to connections under TLS ([`sealed`]), any configurations to a server
//! that runs ([`reload`]).
//!
//! One real worker on a simulated network and clock, as in tests of applications. It is built for fuzzers and for the
//! tests that replay their corpora only.

mod reload;
#[cfg(test)]
mod tests;
mod tls;

pub use reload::reload;
pub use tls::sealed;

/// An input, read from its front.
struct FuzzInput<'d>(&'d [u8]);

impl<'d> FuzzInput<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number and so many bytes.
    fn bytes(&mut self) -> &'d [u8] {
        let length = usize::from(self.byte().unwrap_or(0));
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
