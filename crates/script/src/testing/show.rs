//! Formats values for a test's report: as Lua, in a fixed order, one value a line.
//!
//! Values count as equal if their texts are equal, so nothing that distinguishes values may be omitted: strings are
//! quoted, and numbers have all their digits.

use std::cmp::Ordering;

use mlua::{Table, Value};

/// The maximum nesting depth of tables; the content of deeper tables is not shown.
const DEPTH_MAX: usize = 64;

/// The maximum number of lines of one value; the rest is not examined.
const LINES_MAX: usize = 20_000;

/// Formats a value as lines of text.
pub(super) fn lines(value: &Value) -> mlua::Result<Vec<String>> {
    let mut writer = Writer {
        lines: vec![String::new()],
        above: Vec::new(),
    };
    writer.value(value)?;
    Ok(writer.lines)
}

struct Writer {
    /// The lines; the last one is incomplete.
    lines: Vec<String>,
    /// The tables that contain the value that is being written.
    above: Vec<*const std::ffi::c_void>,
}

impl Writer {
    fn put(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.push_str(text);
        }
    }

    fn new_line(&mut self) {
        self.lines.push("  ".repeat(self.above.len()));
    }

    fn value(&mut self, value: &Value) -> mlua::Result<()> {
        match value {
            Value::Nil => self.put("nil"),
            Value::Boolean(value) => self.put(if *value { "true" } else { "false" }),
            Value::Integer(value) => self.put(&number(*value as f64)),
            Value::Number(value) => self.put(&number(*value)),
            Value::String(text) => self.put(&quoted(&text.as_bytes())),
            Value::LightUserData(data) if data.0.is_null() => self.put("null"),
            Value::Table(table) => return self.table(table),
            Value::Function(_) => self.put(&format!("<function {:p}>", value.to_pointer())),
            other => self.put(&format!("<{} {:p}>", other.type_name(), other.to_pointer())),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> mlua::Result<()> {
        if let Ok(Value::String(words)) = table.raw_get("\0shown") {
            self.put(&words.to_string_lossy());
            return Ok(());
        }
        let place = table.to_pointer();
        if let Some(depth) = self.above.iter().position(|above| *above == place) {
            let levels = self.above.len() - depth;
            let unit = if levels == 1 { "level" } else { "levels" };
            self.put(&format!("<the enclosing table {levels} {unit} up>"));
            return Ok(());
        }
        let pairs = table.pairs::<Value, Value>();
        let mut pairs = pairs.collect::<mlua::Result<Vec<_>>>()?;
        if pairs.is_empty() {
            self.put("{}");
            return Ok(());
        }
        if self.above.len() == DEPTH_MAX || self.lines.len() > LINES_MAX {
            self.put("{ … }");
            return Ok(());
        }
        pairs.sort_by(|(one, _), (other, _)| order(one, other));
        self.put("{");
        self.above.push(place);
        let mut next = 1.0;
        for (key, value) in &pairs {
            self.new_line();
            if is_number(key, next) {
                next += 1.0;
            } else {
                self.key(key)?;
            }
            self.value(value)?;
            self.put(",");
        }
        self.above.pop();
        self.new_line();
        self.put("}");
        Ok(())
    }

    fn key(&mut self, key: &Value) -> mlua::Result<()> {
        if let Value::String(name) = key
            && is_name(&name.as_bytes())
        {
            self.put(&name.to_string_lossy());
        } else {
            self.put("[");
            self.value(key)?;
            self.put("]");
        }
        self.put(" = ");
        Ok(())
    }
}

fn is_number(key: &Value, expected: f64) -> bool {
    match key {
        Value::Integer(key) => *key as f64 == expected,
        Value::Number(key) => *key == expected,
        _ => false,
    }
}

/// Orders numbers before strings before other keys.
fn order(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Integer(_) | Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Boolean(_) => 2,
        _ => 3,
    };
    let as_number = |value: &Value| match value {
        Value::Integer(value) => *value as f64,
        Value::Number(value) => *value,
        Value::Boolean(value) => f64::from(u8::from(*value)),
        _ => 0.0,
    };
    let (left, right) = (as_number(one), as_number(other));
    let equal = left.partial_cmp(&right).unwrap_or(Ordering::Equal);
    rank(one).cmp(&rank(other)).then(match (one, other) {
        (Value::String(one), Value::String(other)) => (*one.as_bytes()).cmp(&*other.as_bytes()),
        _ => equal,
    })
}

fn number(number: f64) -> String {
    if number != 0.0 && (number.abs() >= 1e17 || number.abs() < 1e-5) {
        format!("{number:e}")
    } else {
        format!("{number}")
    }
}

fn is_name(bytes: &[u8]) -> bool {
    const WORDS: [&str; 22] = [
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if",
        "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
    ];
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = bytes.first().is_some_and(|byte| !byte.is_ascii_digit());
    begins
        && bytes.iter().all(|byte| is_letter(*byte))
        && !WORDS.iter().any(|word| word.as_bytes() == bytes)
}

/// Quotes a string as in Lua; invalid UTF-8 and invisible characters are escaped as numbers.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                control if control.is_control() => {
                    let mut units = [0; 4];
                    for byte in control.encode_utf8(&mut units).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                other => out.push(other),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}
