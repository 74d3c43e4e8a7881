//! Loads JSON files, which contain a list of objects or an object with such a list, and NDJSON files, with one object per line.

use super::fault::{LoadFault, Sink};
use super::object::{Cursor, Objects, Stop, is_space};
use super::row_batch::RowBatch;
use super::window::Window;
use crate::table::job::FilePosition;
use crate::table::schema::Schema;

/// Maximum nesting depth of skipped values.
const DEPTH_MAX: usize = 128;

pub(super) struct JsonReader<'a, 'b> {
    pub(super) window: Window<'a>,
    objects: Objects<'b>,
    list: Option<&'b str>,
    rows: u64,
}

fn bad<T>(at: u64, why: impl Into<String>) -> Result<T, LoadFault> {
    Err(LoadFault::Text(FilePosition::Byte(at), why.into()))
}

impl<'a, 'b> JsonReader<'a, 'b> {
    pub(super) fn new(window: Window<'a>, schema: &'b Schema, list: Option<&'b str>) -> Self {
        Self {
            window,
            objects: Objects::new(schema),
            list,
            rows: 0,
        }
    }

    /// Skips whitespace and returns the next byte. Fails at the end of the file.
    fn next(&mut self) -> Result<u8, LoadFault> {
        match self.window.skip(is_space)? {
            Some(byte) => Ok(byte),
            None => bad(self.window.offset(), "unexpected end of file"),
        }
    }

    fn nothing_follows(&mut self) -> Result<(), LoadFault> {
        match self.window.skip(is_space)? {
            None => Ok(()),
            Some(_) => bad(
                self.window.offset(),
                "unexpected data after the end of the JSON value",
            ),
        }
    }

    /// Loads a whole file.
    pub(super) fn file(
        &mut self,
        batch: &mut RowBatch,
        sink: &mut Sink<'_>,
    ) -> Result<(), LoadFault> {
        self.window.skip_mark()?;
        match self.next()? {
            b'[' => {
                self.window.take(1);
                self.elements(batch, sink)?;
            }
            b'{' => {
                self.window.take(1);
                self.fields(batch, sink)?;
            }
            _ => return bad(self.window.offset(), "expected a list or an object"),
        }
        self.nothing_follows()
    }

    /// Parses a top-level object, one field of which is the list of rows.
    fn fields(&mut self, batch: &mut RowBatch, sink: &mut Sink<'_>) -> Result<(), LoadFault> {
        let begin = self.window.offset();
        let mut found: Option<String> = None;
        let mut is_first = true;
        loop {
            match self.next()? {
                b'}' if is_first => {
                    self.window.take(1);
                    break;
                }
                _ => is_first = false,
            }
            let name = self.name()?;
            if self.next()? != b':' {
                return bad(self.window.offset(), "expected \":\"");
            }
            self.window.take(1);
            let is_list = self.next()? == b'[';
            match self.list {
                Some(list) if list != name => self.pass()?,
                Some(_) if !is_list => {
                    return bad(self.window.offset(), format!("\"{name}\" is not a list"));
                }
                None if !is_list => self.pass()?,
                _ => {
                    if let Some(other) = found {
                        let why = format!(
                            "there are two lists, \"{other}\" and \"{name}\": choose one with the option \"list\""
                        );
                        return bad(self.window.offset(), why);
                    }
                    found = Some(name);
                    self.window.take(1);
                    self.elements(batch, sink)?;
                }
            }
            match self.next()? {
                b',' => self.window.take(1),
                b'}' => {
                    self.window.take(1);
                    break;
                }
                _ => return bad(self.window.offset(), "expected \",\" or \"}\""),
            }
        }
        match (found, self.list) {
            (Some(_), _) => Ok(()),
            (None, Some(list)) => bad(begin, format!("the object has no list \"{list}\"")),
            (None, None) => bad(
                begin,
                "none of the object's fields is a list; one must contain the rows",
            ),
        }
    }

    fn name(&mut self) -> Result<String, LoadFault> {
        loop {
            let mut cursor = Cursor::new(self.window.rest());
            let at = self.window.offset();
            let name = cursor.string();
            let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
            let len = cursor.at;
            match name {
                Ok(name) => {
                    self.window.take(len);
                    return Ok(name);
                }
                Err(Stop::More) => {
                    if !self.window.more()? {
                        return bad(at, "unexpected end of file");
                    }
                }
                Err(Stop::Bad(place, why)) => return bad(at + place as u64, why),
            }
        }
    }

    /// Skips a value. Only the nesting of brackets and the ends of strings are checked.
    fn pass(&mut self) -> Result<(), LoadFault> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            let byte = self.next()?;
            match byte {
                b'"' => {
                    self.name()?;
                }
                b'{' | b'[' => {
                    if open.len() == DEPTH_MAX {
                        return bad(self.window.offset(), "too deep");
                    }
                    open.push(if byte == b'{' { b'}' } else { b']' });
                    self.window.take(1);
                    continue;
                }
                b'}' | b']' => {
                    if open.pop() != Some(byte) {
                        return bad(self.window.offset(), "mismatched bracket");
                    }
                    self.window.take(1);
                }
                b',' | b':' if !open.is_empty() => {
                    self.window.take(1);
                    continue;
                }
                b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E' => {
                    self.window.skip(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
                    })?;
                }
                _ => return bad(self.window.offset(), "expected a value"),
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Parses the objects of a list, whose opening bracket has been consumed.
    fn elements(&mut self, batch: &mut RowBatch, sink: &mut Sink<'_>) -> Result<(), LoadFault> {
        if self.next()? == b']' {
            self.window.take(1);
            return Ok(());
        }
        loop {
            self.next()?;
            self.object(batch)?;
            if batch.is_full() {
                sink(batch)?;
            }
            match self.next()? {
                b',' => self.window.take(1),
                b']' => {
                    self.window.take(1);
                    return Ok(());
                }
                _ => return bad(self.window.offset(), "expected \",\" or \"]\""),
            }
        }
    }

    fn object(&mut self, batch: &mut RowBatch) -> Result<(), LoadFault> {
        loop {
            let row = self.rows + 1;
            let at = self.window.offset();
            match self.objects.read(self.window.rest(), batch) {
                Ok(len) => {
                    batch.end(FilePosition::Row(row, at));
                    self.window.take(len);
                    self.rows = row;
                    return Ok(());
                }
                Err(Stop::More) => {
                    if !self.window.more()? {
                        return Err(LoadFault::Text(
                            FilePosition::Row(row, at),
                            "unexpected end of file".to_owned(),
                        ));
                    }
                }
                Err(Stop::Bad(place, why)) => {
                    return Err(LoadFault::Text(
                        FilePosition::Row(row, at + place as u64),
                        why,
                    ));
                }
            }
        }
    }

    /// Loads one object per line; skips empty lines.
    pub(super) fn lines(
        &mut self,
        batch: &mut RowBatch,
        sink: &mut Sink<'_>,
    ) -> Result<(), LoadFault> {
        self.window.skip_mark()?;
        let mut line = 0;
        let mut looked = 0;
        loop {
            let rest = self.window.rest();
            let end = memchr::memchr(b'\n', &rest[looked..]).map(|end| end + looked);
            let (len, taken) = match end {
                Some(end) => (end, end + 1),
                None => {
                    looked = rest.len();
                    if self.window.more()? {
                        continue;
                    }
                    let all = self.window.rest().len();
                    if all == 0 {
                        return Ok(());
                    }
                    (all, all)
                }
            };
            looked = 0;
            line += 1;
            let text = &self.window.rest()[..len];
            if !text.trim_ascii().is_empty() {
                let wrong = |why: String| LoadFault::Text(FilePosition::Line(line), why);
                let read = match self.objects.read(text, batch) {
                    Ok(read) => read,
                    Err(Stop::More) => return Err(wrong("unexpected end of file".to_owned())),
                    Err(Stop::Bad(_, why)) => return Err(wrong(why)),
                };
                if !text[read..].trim_ascii().is_empty() {
                    return Err(wrong("unexpected data after the object".to_owned()));
                }
                batch.end(FilePosition::Line(line));
            }
            self.window.take(taken);
            if batch.is_full() {
                sink(batch)?;
            }
        }
    }
}
