//! The matcher: walks over the items, backtracks at quantifiers and counts every step.

use std::ops::Range;

use super::parse::{CaptureKind, DEPTH_MAX, Item, Pattern, Single};
use super::{CAPTURES_MAX, Error, StepBudget};

/// The steps that a nested call costs in addition to the steps taken in it.
const NESTED_STEPS: usize = 4;

/// A pattern applied to a subject. Positions are byte offsets from 0.
pub(crate) struct Matcher<'a> {
    pattern: &'a Pattern,
    subject: &'a [u8],
    budget: StepBudget,
    first: Option<Single>,
    /// The positions of the captures. Values left by an abandoned attempt are overwritten before they are read, because every
    /// attempt to match an item first passes the captures before it.
    starts: [usize; CAPTURES_MAX],
    ends: [usize; CAPTURES_MAX],
}

/// A capture of the last match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Text(Range<usize>),
    Position(usize),
}

/// The position at which a match ends; `None` if there is no match.
type MatchEnd = Result<Option<usize>, Error>;

impl<'a> Matcher<'a> {
    pub(crate) fn new(pattern: &'a Pattern, subject: &'a [u8], budget: StepBudget) -> Self {
        Self {
            pattern,
            subject,
            budget,
            first: pattern.required(0),
            starts: [0; CAPTURES_MAX],
            ends: [0; CAPTURES_MAX],
        }
    }

    /// Returns the first match that starts at `from` or, unless the pattern is anchored, after it.
    pub(crate) fn find(&mut self, from: usize) -> Result<Option<Range<usize>>, Error> {
        let mut start = from;
        if self.pattern.anchored {
            return Ok(self.rest(start, 0, 1)?.map(|end| start..end));
        }
        loop {
            if let Some(first) = self.first {
                match self.skip_to(first, start)? {
                    Some(at) => start = at,
                    None => return Ok(None),
                }
            }
            if let Some(end) = self.rest(start, 0, 1)? {
                return Ok(Some(start..end));
            }
            if start == self.subject.len() {
                return Ok(None);
            }
            start += 1;
        }
    }

    /// Returns the next match of a series. `next` is the first position at which that match may start: 0 for a new
    /// series, `None` if there is no further match. It is updated for the following call.
    pub(crate) fn find_next(
        &mut self,
        next: &mut Option<usize>,
    ) -> Result<Option<Range<usize>>, Error> {
        let Some(from) = *next else { return Ok(None) };
        let found = self.find(from)?;
        *next = found
            .as_ref()
            // An empty match must not be found again.
            .map(|found| found.end + usize::from(found.is_empty()))
            .filter(|&next| next <= self.subject.len() && !self.pattern.anchored);
        Ok(found)
    }

    /// Returns the number of captures in the pattern.
    pub(crate) fn captures_count(&self) -> usize {
        self.pattern.captures.len()
    }

    /// Returns the capture `index` (from 0) of the last match, whose range is `whole`. If the pattern has no captures, the
    /// whole match is capture 0.
    #[inline]
    pub(crate) fn capture(&self, index: usize, whole: &Range<usize>) -> Result<Capture, Error> {
        match self.pattern.captures.get(index) {
            Some(CaptureKind::Text) => Ok(Capture::Text(self.starts[index]..self.ends[index])),
            Some(CaptureKind::Position) => Ok(Capture::Position(self.starts[index])),
            Some(CaptureKind::Unfinished) => Err(Error::Unfinished),
            None if index == 0 => Ok(Capture::Text(whole.clone())),
            None => Err(Error::CaptureIndex),
        }
    }

    pub(super) fn subject(&self) -> &'a [u8] {
        self.subject
    }

    pub(super) fn budget(&mut self) -> &mut StepBudget {
        &mut self.budget
    }

    /// Returns the first position at or after `from` whose byte matches.
    fn skip_to(&mut self, single: Single, from: usize) -> MatchEnd {
        let bytes = &self.subject[from..];
        let skipped = match single {
            Single::Any => (!bytes.is_empty()).then_some(0),
            Single::Byte(byte) => {
                let skipped = memchr::memchr(byte, bytes);
                self.budget.spend_bulk(skipped.unwrap_or(bytes.len()))?;
                skipped
            }
            Single::Set(index) => {
                let set = &self.pattern.sets[index as usize];
                let seen = &bytes[..self.budget.cap(bytes.len())];
                let skipped = seen.iter().position(|&byte| set.has(byte));
                self.budget.spend(skipped.unwrap_or(bytes.len()))?;
                skipped
            }
        };
        Ok(skipped.map(|skipped| from + skipped))
    }

    /// Matches the items from index `item` on, at position `at`. `depth` is the nesting depth that
    /// LuaJIT's own calls would have here, which is at least the depth of this matcher's calls.
    fn rest(&mut self, mut at: usize, mut item: usize, mut depth: usize) -> MatchEnd {
        let (pattern, subject) = (self.pattern, self.subject);
        loop {
            if depth > DEPTH_MAX {
                return Err(Error::TooComplex);
            }
            self.budget.spend(1)?;
            match pattern.items[item] {
                Item::Literal { from, to } => {
                    let literal = &pattern.literals[from as usize..to as usize];
                    if !self.goes_on_with(at, literal)? {
                        return Ok(None);
                    }
                    at += literal.len();
                }
                Item::One(single) => {
                    if !self.fits(single, at) {
                        return Ok(None);
                    }
                    at += 1;
                }
                Item::Maybe(single) => {
                    if self.fits(single, at)
                        && let Some(end) = self.nested(at + 1, item + 1, depth + 1)?
                    {
                        return Ok(Some(end));
                    }
                }
                Item::Most {
                    single,
                    at_least_one,
                    then,
                } => {
                    let longest = at + self.count(single, at)?;
                    let shortest = at + usize::from(at_least_one);
                    return self.shrink(shortest, longest, then, item + 1, depth + 1);
                }
                Item::Least { single, then } => {
                    return self.grow(at, single, then, item + 1, depth + 1);
                }
                Item::Balance(open, close) => match self.balance(at, open, close)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                },
                Item::Frontier(index) => {
                    // Before the start and after the end of the subject, the byte counts as NUL.
                    let set = &pattern.sets[index as usize];
                    let before = at.checked_sub(1).map_or(0, |before| subject[before]);
                    let after = subject.get(at).copied().unwrap_or(0);
                    if set.has(before) || !set.has(after) {
                        return Ok(None);
                    }
                }
                Item::Back(index) => {
                    let index = usize::from(index);
                    let text = &subject[self.starts[index]..self.ends[index]];
                    if !self.goes_on_with(at, text)? {
                        return Ok(None);
                    }
                    at += text.len();
                }
                Item::Open(index) | Item::Position(index) => {
                    self.starts[usize::from(index)] = at;
                    depth += 1;
                }
                Item::Close(index) => {
                    self.ends[usize::from(index)] = at;
                    depth += 1;
                }
                Item::End if at < subject.len() => return Ok(None),
                Item::End => {}
                Item::Never => return Ok(None),
                Item::Fault(error) => return Err(error),
                Item::Finish => return Ok(Some(at)),
            }
            item += 1;
        }
    }

    /// Matches the rest of the pattern; if that fails, the caller may try another position.
    #[inline]
    fn nested(&mut self, at: usize, item: usize, depth: usize) -> MatchEnd {
        self.budget.spend(NESTED_STEPS)?;
        self.rest(at, item, depth)
    }

    /// Tries the longest repetition first. The byte after the repetition must match `then`, unless
    /// `then` is `None`.
    fn shrink(
        &mut self,
        shortest: usize,
        longest: usize,
        then: Option<Single>,
        item: usize,
        depth: usize,
    ) -> MatchEnd {
        let mut end = longest;
        while end >= shortest {
            if let Some(Single::Byte(byte)) = then {
                let reach = self.subject.len().min(end + 1);
                let last = memchr::memrchr(byte, &self.subject[shortest..reach]);
                let left = last.unwrap_or(0);
                self.budget.spend_bulk(reach - shortest - left)?;
                match last {
                    Some(last) => end = shortest + last,
                    None => return Ok(None),
                }
            }
            if then.is_none_or(|then| self.fits(then, end))
                && let Some(end) = self.nested(end, item, depth)?
            {
                return Ok(Some(end));
            }
            self.budget.spend(1)?;
            if end == 0 {
                break;
            }
            end -= 1;
        }
        Ok(None)
    }

    /// Tries the shortest repetition first. The byte after the repetition must match `then`, unless
    /// `then` is `None`.
    fn grow(
        &mut self,
        mut at: usize,
        single: Single,
        then: Option<Single>,
        item: usize,
        depth: usize,
    ) -> MatchEnd {
        loop {
            if let (Single::Any, Some(then)) = (single, then) {
                match self.skip_to(then, at)? {
                    Some(next) => at = next,
                    None => return Ok(None),
                }
            }
            if then.is_none_or(|then| self.fits(then, at))
                && let Some(end) = self.nested(at, item, depth)?
            {
                return Ok(Some(end));
            }
            self.budget.spend(1)?;
            if !self.fits(single, at) {
                return Ok(None);
            }
            at += 1;
        }
    }

    #[inline]
    fn fits(&self, single: Single, at: usize) -> bool {
        let Some(&byte) = self.subject.get(at) else {
            return false;
        };
        match single {
            Single::Any => true,
            Single::Byte(own) => own == byte,
            Single::Set(index) => self.pattern.sets[index as usize].has(byte),
        }
    }

    /// Returns how many consecutive bytes match, beginning at `at`.
    fn count(&mut self, single: Single, at: usize) -> Result<usize, Error> {
        let bytes = &self.subject[at..];
        let seen = &bytes[..self.budget.cap(bytes.len())];
        let other = match single {
            Single::Any => return Ok(bytes.len()),
            Single::Byte(own) => seen.iter().position(|&byte| byte != own),
            Single::Set(index) => {
                let set = &self.pattern.sets[index as usize];
                seen.iter().position(|&byte| !set.has(byte))
            }
        };
        let count = other.unwrap_or(bytes.len());
        self.budget.spend(count)?;
        Ok(count)
    }

    #[inline]
    fn goes_on_with(&mut self, at: usize, text: &[u8]) -> Result<bool, Error> {
        self.budget.spend_bulk(text.len())?;
        Ok(self.subject[at..].starts_with(text))
    }

    /// Returns the end of the balanced text that starts at `at`.
    fn balance(&mut self, at: usize, open: u8, close: u8) -> MatchEnd {
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let bytes = &self.subject[at + 1..];
        let mut unclosed = 1_usize;
        let seen = &bytes[..self.budget.cap(bytes.len())];
        let end = seen.iter().position(|&byte| {
            // If both delimiters are the same byte, it counts as the closing one.
            if byte == close {
                unclosed -= 1;
            } else if byte == open {
                unclosed += 1;
            }
            unclosed == 0
        });
        self.budget.spend(end.unwrap_or(bytes.len()))?;
        Ok(end.map(|end| at + 1 + end + 1))
    }
}
