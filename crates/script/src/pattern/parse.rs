//! Compiles a pattern's text into items. Compiling never fails: a malformed part becomes an item that fails when it is
//! reached, because Lua too reports only errors in parts of a pattern that it reaches.

use super::set::Set;
use super::{CAPTURES_MAX, Error};

/// The longest pattern in bytes; unlike in LuaJIT, longer ones are rejected as too complex. This bounds the time and memory of
/// compiling: at most 20 bytes for each byte of text, and 32 for each set.
pub(super) const TEXT_BYTES_MAX: usize = 32 << 10;

/// The maximum depth, as in LuaJIT: each quantifier and each end of a capture makes the rest of the pattern one level
/// deeper. It also bounds the matcher's recursion.
pub(super) const DEPTH_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Pattern {
    /// The items, ending with [`Item::Finish`] or [`Item::Fault`].
    pub(super) items: Vec<Item>,
    pub(super) sets: Vec<Set>,
    /// The bytes of all [`Item::Literal`].
    pub(super) literals: Vec<u8>,
    /// The kind that each capture has after a complete match.
    pub(super) captures: Vec<CaptureKind>,
    pub(super) anchored: bool,
    /// The length of the text of the longest set in brackets.
    pub(super) set_bytes_max: usize,
    /// The length of the whole text.
    pub(super) bytes: usize,
}

/// The meaning of `^` at the beginning of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caret {
    /// `^` is an anchor, as in `find`, `match` and `gsub`: the pattern is tried only at the first position.
    Anchors,
    /// `^` is a plain character, as in `gmatch`.
    IsPlain,
}

/// The kind of a capture, which is known from the pattern alone, since the language has no
/// alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureKind {
    Text,
    Position,
    Unfinished,
}

/// An item that matches one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Single {
    Any,
    Byte(u8),
    /// An index of [`Pattern::sets`].
    Set(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// A range of [`Pattern::literals`].
    Literal {
        from: u32,
        to: u32,
    },
    One(Single),
    /// An optional single character: `?`.
    Maybe(Single),
    /// A single character, repeated as often as possible: `*` and `+`.
    Most {
        single: Single,
        at_least_one: bool,
        then: Option<Single>,
    },
    /// A single character, repeated as rarely as possible: `-`.
    Least {
        single: Single,
        then: Option<Single>,
    },
    /// A balanced pair of bytes: `%b`.
    Balance(u8, u8),
    /// `%f`, with an index of [`Pattern::sets`]
    Frontier(u32),
    /// A reference to a capture, such as `%1`.
    Back(u8),
    /// A back reference to a position capture. It never matches, since such a capture has no text to compare with.
    Never,
    Open(u8),
    Close(u8),
    /// A position capture, written `()`.
    Position(u8),
    /// The end of the subject: `$`.
    End,
    Fault(Error),
    Finish,
}

// The field `then` of a quantifier is the item that the byte after the repetition must match, if that is known. It lets
// the matcher skip positions at which the rest of the pattern would fail.
const _: () = assert!(size_of::<Item>() <= 20);

impl Pattern {
    /// Compiles a pattern. As in LuaJIT, the pattern ends at the first NUL byte; `%z` matches a NUL byte.
    pub(crate) fn new(text: &[u8], caret: Caret) -> Self {
        let mut text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
        let anchored = caret == Caret::Anchors && text.first() == Some(&b'^');
        if anchored {
            text = &text[1..];
        }
        let pattern = Self {
            items: Vec::with_capacity(text.len().min(64) + 1),
            sets: Vec::new(),
            literals: Vec::new(),
            captures: Vec::new(),
            anchored,
            set_bytes_max: 1,
            bytes: text.len(),
        };
        let mut parser = Parser {
            text,
            at: 0,
            pattern,
        };
        let last = match parser.items() {
            Ok(()) => Item::Finish,
            Err(error) => Item::Fault(error),
        };
        let mut pattern = parser.pattern;
        pattern.items.push(last);
        pattern.look_ahead();
        pattern
    }

    /// Returns a condition for the items from index `at` on: they match only if the next byte of the subject matches the
    /// returned item. `None` if no condition is known, or if the items may match the empty string.
    pub(super) fn required(&self, at: usize) -> Option<Single> {
        let first = self.items[at..]
            .iter()
            .find(|item| !matches!(item, Item::Open(_) | Item::Close(_) | Item::Position(_)))?;
        match *first {
            Item::Literal { from, .. } => Some(Single::Byte(self.literals[from as usize])),
            Item::One(single)
            | Item::Most {
                single,
                at_least_one: true,
                ..
            } => Some(single),
            Item::Balance(open, _) => Some(Single::Byte(open)),
            _ => None,
        }
    }

    /// Sets the field `then` of the quantifiers. Leaves it unset if the nesting depth could reach its
    /// limit, because the matcher must then not skip the attempt that fails with [`Error::TooComplex`].
    fn look_ahead(&mut self) {
        if self.items.len() >= DEPTH_MAX {
            return;
        }
        for at in 0..self.items.len() {
            let required = match self.items[at] {
                Item::Most { .. } | Item::Least { .. } => self.required(at + 1),
                _ => continue,
            };
            if let Item::Most { then, .. } | Item::Least { then, .. } = &mut self.items[at] {
                *then = required;
            }
        }
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    pattern: Pattern,
}

impl Parser<'_> {
    fn items(&mut self) -> Result<(), Error> {
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(Error::TooComplex);
        }
        while let Some(&byte) = self.text.get(self.at) {
            match (byte, self.peek(1)) {
                (b'(', Some(b')')) => self.open(CaptureKind::Position, 2)?,
                (b'(', _) => self.open(CaptureKind::Unfinished, 1)?,
                (b')', _) => self.close()?,
                (b'$', None) => self.push(Item::End, 1),
                (b'%', Some(b'b')) => match (self.peek(2), self.peek(3)) {
                    (Some(open), Some(close)) => self.push(Item::Balance(open, close), 4),
                    _ => return Err(Error::Unbalanced),
                },
                (b'%', Some(b'f')) => {
                    if self.peek(2) != Some(b'[') {
                        return Err(Error::FrontierWithoutSet);
                    }
                    let (set, end) = self.set(self.at + 2)?;
                    self.push(Item::Frontier(set), end - self.at);
                }
                (b'%', Some(digit @ b'0'..=b'9')) => self.back(digit)?,
                _ => self.repeatable()?,
            }
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn push(&mut self, item: Item, bytes: usize) {
        self.pattern.items.push(item);
        self.at += bytes;
    }

    fn open(&mut self, kind: CaptureKind, bytes: usize) -> Result<(), Error> {
        let index = self.pattern.captures.len();
        if index == CAPTURES_MAX {
            return Err(Error::TooManyCaptures);
        }
        self.pattern.captures.push(kind);
        self.push(
            match kind {
                CaptureKind::Position => Item::Position(index as u8),
                _ => Item::Open(index as u8),
            },
            bytes,
        );
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let captures = &mut self.pattern.captures;
        let index = captures
            .iter()
            .rposition(|&kind| kind == CaptureKind::Unfinished)
            .ok_or(Error::NothingToClose)?;
        captures[index] = CaptureKind::Text;
        self.push(Item::Close(index as u8), 1);
        Ok(())
    }

    fn back(&mut self, digit: u8) -> Result<(), Error> {
        let index = digit.checked_sub(b'1').ok_or(Error::CaptureIndex)?;
        let item = match self.pattern.captures.get(usize::from(index)) {
            Some(CaptureKind::Text) => Item::Back(index),
            Some(CaptureKind::Position) => Item::Never,
            Some(CaptureKind::Unfinished) | None => return Err(Error::CaptureIndex),
        };
        self.push(item, 2);
        Ok(())
    }

    /// Parses a single-byte item and the quantifier after it.
    fn repeatable(&mut self) -> Result<(), Error> {
        let (single, end) = self.single()?;
        let item = match self.text.get(end) {
            Some(b'?') => Item::Maybe(single),
            Some(quantifier @ (b'*' | b'+')) => Item::Most {
                single,
                at_least_one: *quantifier == b'+',
                then: None,
            },
            Some(b'-') => Item::Least { single, then: None },
            _ => {
                self.at = end;
                self.push_one(single);
                return Ok(());
            }
        };
        self.push(item, end + 1 - self.at);
        Ok(())
    }

    fn push_one(&mut self, single: Single) {
        let Single::Byte(byte) = single else {
            return self.push(Item::One(single), 0);
        };
        self.pattern.literals.push(byte);
        let end = self.pattern.literals.len() as u32;
        match self.pattern.items.last_mut() {
            Some(Item::Literal { to, .. }) => *to = end,
            _ => self.push(
                Item::Literal {
                    from: end - 1,
                    to: end,
                },
                0,
            ),
        }
    }

    /// Parses a single-byte item and returns where its text ends.
    fn single(&mut self) -> Result<(Single, usize), Error> {
        Ok(match self.text[self.at] {
            b'.' => (Single::Any, self.at + 1),
            b'[' => {
                let (set, end) = self.set(self.at)?;
                (Single::Set(set), end)
            }
            b'%' => {
                let letter = self.peek(1).ok_or(Error::EndsWithPercent)?;
                let single = match Set::class(letter) {
                    Some(class) => Single::Set(self.keep(class)),
                    None => Single::Byte(letter),
                };
                (single, self.at + 2)
            }
            byte => (Single::Byte(byte), self.at + 1),
        })
    }

    /// Parses the set whose `[` is at `open`. Returns its index and the end of its text.
    fn set(&mut self, open: usize) -> Result<(u32, usize), Error> {
        let text = self.text;
        let negated = text.get(open + 1) == Some(&b'^');
        let first = open + 1 + usize::from(negated);
        let close = close_of_set(text, first)?;

        let mut set = Set::EMPTY;
        let mut at = first;
        while at < close {
            match text[at] {
                // If this `%` follows a range that ends with `%`, as in `[+-%%]`, the byte after it
                // can be the closing bracket.
                b'%' => {
                    at += 1;
                    match Set::class(text[at]) {
                        Some(class) => set.insert_all(class),
                        None => set.insert(text[at]),
                    }
                }
                from if text[at + 1] == b'-' && at + 2 < close => {
                    at += 2;
                    (from..=text[at]).for_each(|byte| set.insert(byte));
                }
                byte => set.insert(byte),
            }
            at += 1;
        }
        if negated {
            set = set.complement();
        }
        self.pattern.set_bytes_max = self.pattern.set_bytes_max.max(close - open);
        Ok((self.keep(set), close + 1))
    }

    fn keep(&mut self, set: Set) -> u32 {
        self.pattern.sets.push(set);
        (self.pattern.sets.len() - 1) as u32
    }
}

/// Returns the position of the `]` that ends the set whose members start at `first`. A `]` that is
/// the first member, or is escaped, does not end the set.
fn close_of_set(text: &[u8], first: usize) -> Result<usize, Error> {
    let mut at = first;
    loop {
        at += match (text.get(at), text.get(at + 1)) {
            (None, _) => return Err(Error::SetWithoutEnd),
            (Some(b'%'), Some(_)) => 2,
            _ => 1,
        };
        if text.get(at) == Some(&b']') {
            return Ok(at);
        }
    }
}
