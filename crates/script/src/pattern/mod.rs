//! Lua's string patterns with bounded cost.
//!
//! The language, including its error texts, is that of Lua 5.1 as in LuaJIT 2.1. The difference is
//! that steps of matching are counted, and a search that takes too many steps fails with
//! [`Error::TooCostly`], so no pattern and no subject can block a worker. The input is bytes; the
//! output is ranges of bytes. The caller (`modules::string`) converts Lua values, and determines
//! when a search has to end.

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
pub(crate) use template::append;

/// The maximum number of captures of one pattern.
pub(crate) const CAPTURES_MAX: usize = 32;

/// The number of bytes that are searched, compared or copied in bulk for the cost of one step.
const BULK_BYTES: usize = 16;

/// Steps between two calls of [`IsOver`]: a fraction of a millisecond.
const STEPS_PER_LOOK: u64 = 1 << 12;

/// Bytes searched for a plain text between two calls of [`IsOver`].
const SEARCHED_PER_LOOK: usize = 256 << 10;

/// The maximum length of the head of a needle. Only the head is searched for; the rest is compared
/// where the head is found.
const HEAD_BYTES: usize = 64 << 10;

/// Returns whether a search has to be aborted.
pub(crate) type IsOver = fn() -> bool;

/// The reason why a pattern can't be matched. The error texts are LuaJIT's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The budget is used up. The caller adds the error text, which contains the caller's limit.
    TooCostly,
    /// The result of a replacement is too large. As with `TooCostly`, the caller adds the error text.
    TooLarge,
    /// The match was stopped: [`IsOver`] returned true.
    Stopped,
    /// A lone `%` at the end.
    EndsWithPercent,
    /// A set without its end: `[` without `]`.
    SetWithoutEnd,
    /// `%f` without a set
    FrontierWithoutSet,
    /// `%b` without two characters
    Unbalanced,
    /// No capture to close: `)` without `(`.
    NothingToClose,
    /// An unfinished capture: `(` without `)`.
    Unfinished,
    /// `%1` without a complete capture of that number
    CaptureIndex,
    /// More than [`CAPTURES_MAX`] captures.
    TooManyCaptures,
    /// The pattern is nested too deeply or too long.
    TooComplex,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooCostly => "pattern too costly",
            Self::TooLarge => "resulting string too large",
            Self::Stopped => "stopped",
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

/// The remaining steps of matching. Each character or item that is tried costs one step, and so do [`BULK_BYTES`] that are
/// searched, compared or copied in bulk. A step takes about a nanosecond.
#[derive(Debug)]
pub(crate) struct StepBudget {
    /// Steps until the next call of `is_over`.
    steps_left: u64,
    /// The steps that the budget has beyond those in `steps_left`.
    steps_later: u64,
    is_over: IsOver,
}

impl StepBudget {
    pub(crate) fn new(steps: u64, is_over: IsOver) -> Self {
        let steps_left = steps.min(STEPS_PER_LOOK);
        Self {
            steps_left,
            steps_later: steps - steps_left,
            is_over,
        }
    }

    #[inline]
    fn spend(&mut self, steps: usize) -> Result<(), Error> {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => self.look_and_spend(steps as u64),
        }
    }

    #[cold]
    fn look_and_spend(&mut self, steps: u64) -> Result<(), Error> {
        if (self.is_over)() {
            return Err(Error::Stopped);
        }
        let left = self.left().checked_sub(steps);
        let all = left.unwrap_or(0);
        self.steps_left = all.min(STEPS_PER_LOOK);
        self.steps_later = all - self.steps_left;
        left.map(drop).ok_or(Error::TooCostly)
    }

    fn left(&self) -> u64 {
        self.steps_left + self.steps_later
    }

    fn spend_bulk(&mut self, bytes: usize) -> Result<(), Error> {
        self.spend(bytes / BULK_BYTES)
    }

    /// Returns how many of `bytes` bytes the remaining steps suffice for, at one step per byte.
    fn cap(&self, bytes: usize) -> usize {
        usize::try_from(self.left()).map_or(bytes, |left| left.min(bytes))
    }
}

/// Returns whether `find` has to match `text` as a pattern, rather than search for it.
pub(crate) fn has_specials(text: &[u8], is_over: IsOver) -> Result<bool, Error> {
    let is_special = |&byte: &u8| {
        matches!(
            byte,
            b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b'[' | b'%' | b'-'
        )
    };
    for part in text.chunks(SEARCHED_PER_LOOK) {
        if part.iter().any(is_special) {
            return Ok(true);
        }
        if part.len() == SEARCHED_PER_LOOK && is_over() {
            return Err(Error::Stopped);
        }
    }
    Ok(false)
}

/// Returns the first position of `needle` in `subject`, not before `from`. Linear in both lengths
/// for needles of up to [`HEAD_BYTES`]; for a longer needle each occurrence of its head costs a
/// comparison.
pub(crate) fn find_plain(
    subject: &[u8],
    needle: &[u8],
    from: usize,
    is_over: IsOver,
) -> Result<Option<usize>, Error> {
    let head = &needle[..needle.len().min(HEAD_BYTES)];
    let finder = memchr::memmem::Finder::new(head);
    let mut at = from;
    loop {
        // The searched parts overlap, so that a match of `head` is never split.
        let end = subject.len().min(at + SEARCHED_PER_LOOK + head.len());
        match finder.find(&subject[at..end]) {
            Some(skipped) if subject[at + skipped..].starts_with(needle) => {
                return Ok(Some(at + skipped));
            }
            Some(skipped) => at += skipped + 1,
            None if end == subject.len() => return Ok(None),
            None => at = end + 1 - head.len(),
        }
        if is_over() {
            return Err(Error::Stopped);
        }
    }
}
