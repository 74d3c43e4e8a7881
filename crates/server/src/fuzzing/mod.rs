//! Fuzz targets for a whole server: arbitrary bytes on TLS connections ([`tls_server`]), and arbitrary configurations
//! for a running server ([`reload`]).
//!
//! The targets run a real worker on a simulated network and clock, as tests of applications do. This module is built
//! only for fuzz targets and for the tests that replay their corpora.

mod reload;
#[cfg(test)]
mod tests;
mod tls;

pub use reload::reload;
pub use tls::tls_server;

/// An input, consumed from the front.
struct FuzzInput<'d>(&'d [u8]);

impl<'d> FuzzInput<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a length and that many bytes.
    fn bytes(&mut self) -> &'d [u8] {
        let length = usize::from(self.byte().unwrap_or(0));
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
