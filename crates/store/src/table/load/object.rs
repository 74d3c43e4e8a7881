//! Parses a JSON object into a row.
//!
//! The object, or its available part, is contiguous in memory. An incomplete object is parsed again from its beginning when
//! more data is available. Such repetitions are rare, because objects are short compared with a read. They avoid a search
//! for the end of each object.

use std::borrow::Cow;

use super::row_batch::RowBatch;
use super::value;
use crate::table::cell::InputValue;
use crate::table::schema::{Column, Schema};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The object is incomplete.
    More,
    /// The object is invalid at this offset.
    Bad(usize, String),
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// A cursor over JSON text.
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    pub(super) at: usize,
}

/// Parses objects whose fields are a table's columns.
pub(super) struct Objects<'a> {
    schema: &'a Schema,
    /// The columns in the order of the last object's fields. The next object usually has the same order, so its columns are
    /// found at once.
    order: Vec<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn bad<T>(&self, why: impl Into<String>) -> Result<T, Stop> {
        Err(Stop::Bad(self.at, why.into()))
    }

    /// Returns the current byte.
    #[inline]
    fn peek(&self) -> Result<u8, Stop> {
        self.text.get(self.at).copied().ok_or(Stop::More)
    }

    /// Skips whitespace, and returns the next byte without consuming it.
    #[inline]
    fn skip(&mut self) -> Result<u8, Stop> {
        loop {
            let byte = self.peek()?;
            if !is_space(byte) {
                return Ok(byte);
            }
            self.at += 1;
        }
    }

    /// Parses a string from its opening quote.
    pub(super) fn string(&mut self) -> Result<Cow<'a, [u8]>, Stop> {
        if self.skip()? != b'"' {
            return self.bad("expected a string");
        }
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.text.get(end) {
                None => return Err(Stop::More),
                Some(b'"') => {
                    self.at = end + 1;
                    return Ok(Cow::Borrowed(&self.text[start..end]));
                }
                Some(b'\\') => return self.escaped(start, end),
                Some(0..0x20) => {
                    return Err(Stop::Bad(
                        end,
                        "a string contains a control character".to_owned(),
                    ));
                }
                Some(_) => end += 1,
            }
        }
    }

    /// Parses a string with escapes, the first of which is at `at`.
    fn escaped(&mut self, start: usize, mut at: usize) -> Result<Cow<'a, [u8]>, Stop> {
        let mut text = self.text[start..at].to_vec();
        let next = |at: usize| self.text.get(at).copied().ok_or(Stop::More);
        loop {
            match next(at)? {
                b'"' => break,
                0..0x20 => {
                    return Err(Stop::Bad(
                        at,
                        "a string contains a control character".to_owned(),
                    ));
                }
                b'\\' => {
                    let byte = match next(at + 1)? {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => {
                            let (letter, len) = self.letter(at)?;
                            text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                            at += len;
                            continue;
                        }
                        _ => return Err(Stop::Bad(at, "unknown escape sequence".to_owned())),
                    };
                    text.push(byte);
                    at += 2;
                }
                byte => {
                    text.push(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Ok(Cow::Owned(text))
    }

    /// Returns the character of an escape such as \u00e9, or of a surrogate pair, and its length.
    fn letter(&self, at: usize) -> Result<(char, usize), Stop> {
        let unit = |at: usize| match self.text.get(at + 2..at + 6) {
            None => Err(Stop::More),
            Some(digits) => digits
                .iter()
                .try_fold(0, |unit, digit| {
                    Some(unit << 4 | char::from(*digit).to_digit(16)?)
                })
                .ok_or_else(|| Stop::Bad(at, "expected four hexadecimal digits".to_owned())),
        };
        let first = unit(at)?;
        if let Some(letter) = char::from_u32(first) {
            return Ok((letter, 6));
        }
        let lone = || Stop::Bad(at, "unpaired surrogate".to_owned());
        if first >= 0xdc00 {
            return Err(lone());
        }
        match self.text.get(at + 6..at + 8) {
            None => return Err(Stop::More),
            Some(b"\\u") => {}
            Some(_) => return Err(lone()),
        }
        let second = unit(at + 6)?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone());
        }
        let letter = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(letter)
            .map(|letter| (letter, 12))
            .ok_or_else(lone)
    }

    fn word(
        &mut self,
        word: &'static [u8],
        given: InputValue<'static>,
    ) -> Result<InputValue<'a>, Stop> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(given);
        }
        match word.starts_with(rest) {
            true => Err(Stop::More),
            false => self.bad("expected a value"),
        }
    }

    fn digits(&mut self) -> Result<usize, Stop> {
        let start = self.at;
        while self.peek()?.is_ascii_digit() {
            self.at += 1;
        }
        match self.at - start {
            0 => self.bad("expected a digit"),
            count => Ok(count),
        }
    }

    fn number(&mut self) -> Result<InputValue<'a>, Stop> {
        let start = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let is_zero = self.peek()? == b'0';
        let count = self.digits()?;
        if is_zero && count > 1 {
            return self.bad("a number can't have a leading zero");
        }
        let mut is_whole = true;
        if self.peek()? == b'.' {
            self.at += 1;
            self.digits()?;
            is_whole = false;
        }
        if matches!(self.peek()?, b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
            is_whole = false;
        }
        let text = &self.text[start..self.at];
        Ok(value::number(text, is_whole))
    }
}

impl<'a> Objects<'a> {
    pub(super) fn new(schema: &'a Schema) -> Self {
        Self {
            schema,
            order: Vec::new(),
        }
    }

    /// Parses an object, from its opening brace, into a new row. Returns the length of the object in bytes.
    pub(super) fn read(&mut self, text: &[u8], batch: &mut RowBatch) -> Result<usize, Stop> {
        let mut cursor = Cursor::new(text);
        batch.begin();
        if cursor.skip()? != b'{' {
            return cursor.bad("expected an object");
        }
        cursor.at += 1;
        let mut field = 0;
        if cursor.skip()? == b'}' {
            cursor.at += 1;
        } else {
            loop {
                self.field(field, &mut cursor, batch)?;
                field += 1;
                match cursor.skip()? {
                    b',' => cursor.at += 1,
                    b'}' => {
                        cursor.at += 1;
                        break;
                    }
                    _ => return cursor.bad("expected \",\" or \"}\""),
                }
            }
        }
        if field < self.schema.visible().len() {
            value::fill(self.schema, batch).map_err(|error| Stop::Bad(0, error.to_string()))?;
        }
        Ok(cursor.at)
    }

    fn field(
        &mut self,
        field: usize,
        cursor: &mut Cursor<'_>,
        batch: &mut RowBatch,
    ) -> Result<(), Stop> {
        cursor.skip()?;
        let begin = cursor.at;
        let name = cursor.string()?;
        let columns = self.schema.visible();
        let is_it = |column: &Column| column.name.as_bytes() == &*name;
        let place = match self.order.get(field) {
            Some(place) if is_it(&columns[*place]) => *place,
            _ => {
                let place = columns.iter().position(is_it);
                let place = place.ok_or_else(|| {
                    let name = String::from_utf8_lossy(&name);
                    Stop::Bad(begin, format!("there is no column \"{name}\""))
                })?;
                self.order.truncate(field);
                self.order.push(place);
                place
            }
        };
        let column = &columns[place];
        if batch.is_set(place) {
            return Err(Stop::Bad(begin, format!("{} occurs twice", column.name)));
        }
        if cursor.skip()? != b':' {
            return cursor.bad("expected \":\"");
        }
        cursor.at += 1;
        let first = cursor.skip()?;
        let start = cursor.at;
        let text;
        let given = match first {
            b'"' => {
                text = cursor.string()?;
                InputValue::Text(&text)
            }
            b'-' | b'0'..=b'9' => cursor.number()?,
            b't' => cursor.word(b"true", InputValue::Bool(true))?,
            b'f' => cursor.word(b"false", InputValue::Bool(false))?,
            b'n' => cursor.word(b"null", InputValue::Null)?,
            b'[' => InputValue::Other("list"),
            b'{' => InputValue::Other("object"),
            _ => return cursor.bad("expected a value"),
        };
        value::set(column, place, given, batch).map_err(|error| Stop::Bad(start, error.to_string()))
    }
}
