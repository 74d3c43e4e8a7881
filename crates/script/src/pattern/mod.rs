//! Lua's string patterns with a bounded cost.
//!
//! The language is that of Lua 5.1 as LuaJIT 2.1 has it, its error texts included. What differs: every step of the
//! matching is counted and [`Error::TooCostly`] ends it, so that no pattern and no subject can hold a worker. Bytes
//! in, ranges of bytes out; this module knows neither Lua values nor the functions that use it (`modules::string`).

mod cost;
mod matcher;
mod parse;
mod set;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use cost::harmless_searched_bytes;
pub(crate) use matcher::{Capture, Matcher};
pub(crate) use parse::{Caret, Pattern};

/// Captures of one pattern at most.
pub(crate) const CAPTURES_MAX: usize = 32;

/// Bytes that are searched, compared or copied in bulk for one step.
const BULK_BYTES: usize = 16;

/// Why a pattern can't be matched, in LuaJIT's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The budget ran out. The text is the caller's, who knows its size.
    TooCostly,
    /// The result of a replacement became too large. As with `TooCostly`, the numbers are the caller's.
    TooLarge,
    /// A lone `%` at the end.
    EndsWithPercent,
    /// `[` without `]`
    SetWithoutEnd,
    /// `%f` without a set
    FrontierWithoutSet,
    /// `%b` without two characters
    Unbalanced,
    /// `)` without `(`
    NothingToClose,
    /// `(` without `)`
    Unfinished,
    /// `%1` for what is no whole capture
    CaptureIndex,
    /// More than [`CAPTURES_MAX`].
    TooManyCaptures,
    /// Nested too deep, or too long a pattern.
    TooComplex,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooCostly => "pattern too costly",
            Self::TooLarge => "resulting string too large",
            Self::EndsWithPercent => "malformed pattern (ends with '%')",
            Self::SetWithoutEnd => "malformed pattern (missing ']')",
            Self::FrontierWithoutSet => "missing '[' after '%f' in pattern",
            Self::Unbalanced => "unbalanced pattern",
            Self::NothingToClose => "invalid pattern capture",
            Self::Unfinished => "unfinished capture",
            Self::CaptureIndex => "invalid capture index",
            Self::TooManyCaptures => "too many captures",
            Self::TooComplex => "pattern too complex",
        })
    }
}

impl std::error::Error for Error {}

/// Steps that matching may still take: one for each character or item tried, one for each [`BULK_BYTES`] searched,
/// compared or copied at once. A step is in the order of a nanosecond.
#[derive(Debug)]
pub(crate) struct Budget {
    steps_left: u64,
}

impl Budget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { steps_left: steps }
    }

    #[inline]
    fn spend(&mut self, steps: usize) -> Result<(), Error> {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => {
                self.steps_left = 0;
                Err(Error::TooCostly)
            }
        }
    }

    fn spend_bulk(&mut self, bytes: usize) -> Result<(), Error> {
        self.spend(bytes / BULK_BYTES)
    }

    /// As many of `bytes` as may be looked at one by one.
    fn cap(&self, bytes: usize) -> usize {
        usize::try_from(self.steps_left).map_or(bytes, |left| left.min(bytes))
    }
}

/// Whether `find` has to match `text`, which otherwise is just looked for.
pub(crate) fn has_specials(text: &[u8]) -> bool {
    let is_special = |&byte: &u8| {
        matches!(
            byte,
            b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b'[' | b'%' | b'-'
        )
    };
    text.iter().any(is_special)
}

/// Where `needle` is in `subject` from `from` on. Linear in both lengths, at a speed that needs no budget.
pub(crate) fn find_plain(subject: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let at = match needle {
        [byte] => memchr::memchr(*byte, &subject[from..]),
        _ => memchr::memmem::find(&subject[from..], needle),
    };
    at.map(|at| from + at)
}
