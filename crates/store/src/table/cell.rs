//! Values of rows: validation, and conversion to the form in which columns store them.

use super::error::TableError;
use super::schema::{Column, Type};

/// A validated value. The column's [`Type`] defines the meaning of the bits. A boolean is 0 or 1. A signed integer is
/// sign-extended to 64 bits. A floating-point number of either size is an `f64`. An enum value is the index of its
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// No value, as in SQL.
    Null,
    /// A value of a fixed-size type.
    Bits(u64),
    /// A string or bytes.
    Text(&'a [u8]),
}

impl<'a> Cell<'a> {
    /// Returns the string; empty for any other value.
    #[inline]
    pub(super) fn text(self) -> &'a [u8] {
        match self {
            Self::Text(text) => text,
            Self::Null | Self::Bits(_) => b"",
        }
    }

    /// Returns the length of the string in bytes.
    #[inline]
    pub(super) fn text_bytes(self) -> usize {
        self.text().len()
    }
}

/// An owned value, independent of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnedCell {
    Null,
    Bits(u64),
    Text(Box<[u8]>),
}

impl OwnedCell {
    pub(super) fn new(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Bits(bits) => Self::Bits(bits),
            Cell::Text(text) => Self::Text(text.into()),
        }
    }

    pub(super) fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Bits(bits) => Cell::Bits(*bits),
            Self::Text(text) => Cell::Text(text),
        }
    }
}

/// An input value before validation against a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InputValue<'a> {
    /// No value, as in SQL.
    Null,
    /// A value that is true or false.
    Bool(bool),
    /// An integer of any supported size.
    Whole(i128),
    /// A number as a double.
    Number(f64),
    /// A string or bytes.
    Text(&'a [u8]),
    /// A value of another type, with the type's name.
    Other(&'static str),
}

impl std::fmt::Display for InputValue<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => out.write_str("nothing"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Whole(value) => write!(out, "{value}"),
            Self::Number(value) => write!(out, "{value}"),
            Self::Other(name) => write!(out, "a {name}"),
            Self::Text(text) => {
                const SHOWN_MAX: usize = 40;
                // Decodes only the beginning of the text: at most one character more than is
                // displayed. A character has at most four bytes.
                let begin = &text[..text.len().min(4 * SHOWN_MAX + 4)];
                let text = String::from_utf8_lossy(begin);
                match text.char_indices().nth(SHOWN_MAX) {
                    Some((end, _)) => write!(out, "\"{}…\"", &text[..end]),
                    None => write!(out, "\"{text}\""),
                }
            }
        }
    }
}

/// An `f64` represents every integer up to this absolute value exactly.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

/// How a number compares with the values that a column type can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberPosition {
    /// The number is less than the smallest value of the type.
    Before,
    /// The number equals this value (raw 64-bit representation).
    At(u64),
    /// The number is between this value (raw 64-bit representation) and the next value of the type.
    Behind(u64),
    /// The number is greater than the largest value of the type.
    After,
}

impl Column {
    /// Converts an input value to the column's type.
    ///
    /// # Errors
    /// [`TableError::Value`]: the value is of another type, out of range or too long.
    pub fn cell<'a>(&self, given: InputValue<'a>) -> Result<Cell<'a>, TableError> {
        self.convert(given).map_err(|why| TableError::Value {
            column: self.name.clone(),
            value: given.to_string(),
            why,
        })
    }

    fn convert<'a>(&self, given: InputValue<'a>) -> Result<Cell<'a>, String> {
        let wanted = || Err(format!("expected {}", article(&self.kind)));
        match (&self.kind, given) {
            (_, InputValue::Null) if self.is_nullable => Ok(Cell::Null),
            (_, InputValue::Null) => Err("a value is missing".to_owned()),
            (Type::Bool, InputValue::Bool(value)) => Ok(Cell::Bits(value.into())),
            (Type::Unsigned(_) | Type::Signed(_), given) => {
                let Some(place) = self.kind.position_of(given) else {
                    return wanted();
                };
                match place {
                    NumberPosition::At(bits) => Ok(Cell::Bits(bits)),
                    NumberPosition::Behind(_) => wanted(),
                    NumberPosition::Before | NumberPosition::After => {
                        let [least, most] = whole_limits(&self.kind);
                        Err(format!("out of range: must be from {least} to {most}"))
                    }
                }
            }
            (Type::F32 | Type::F64, given) => match self.kind.position_of(given) {
                Some(NumberPosition::At(bits)) => Ok(Cell::Bits(bits)),
                Some(_) => Err("out of range".to_owned()),
                None => wanted(),
            },
            (Type::String(most), InputValue::Text(text)) => {
                let Ok(decoded) = std::str::from_utf8(text) else {
                    return Err("it is not UTF-8".to_owned());
                };
                // Characters are counted only if there are more bytes than allowed characters, since a character has at least
                // one byte.
                let is_too_long = text.len() > super::schema::TEXT_BYTES_MAX
                    || (text.len() > *most && decoded.chars().nth(*most).is_some());
                match is_too_long {
                    false => Ok(Cell::Text(text)),
                    true => Err(format!(
                        "too long: at most {most} characters and {} bytes",
                        super::schema::TEXT_BYTES_MAX
                    )),
                }
            }
            (Type::Bytes(most), InputValue::Text(text)) => match text.len() <= *most {
                true => Ok(Cell::Text(text)),
                false => Err(format!("too long: at most {most} bytes")),
            },
            (Type::Enum(words), InputValue::Text(text)) => {
                let place = words.iter().position(|word| word.as_bytes() == text);
                match place {
                    Some(place) => Ok(Cell::Bits(place as u64)),
                    None => Err(format!("expected one of {}", words.join(", "))),
                }
            }
            _ => wanted(),
        }
    }
}

fn article(kind: &Type) -> String {
    let name = match kind {
        Type::Bool => "true or false",
        Type::Unsigned(_) | Type::Signed(_) => "a whole number",
        Type::F32 | Type::F64 => "a number",
        Type::String(_) | Type::Bytes(_) => "a string",
        Type::Enum(words) => return format!("one of {}", words.join(", ")),
    };
    format!("{name} ({kind})")
}

fn whole_limits(kind: &Type) -> [i128; 2] {
    match kind {
        Type::Signed(bits) => [i64::MIN, i64::MAX].map(|limit| (limit >> (64 - bits)).into()),
        Type::Unsigned(bits) => [0, (u64::MAX >> (64 - bits)).into()],
        _ => [0, 0],
    }
}

impl Type {
    /// Returns the position of `given` among the values of this type; `None` if the type or `given` is not numeric.
    pub(super) fn position_of(&self, given: InputValue<'_>) -> Option<NumberPosition> {
        match self {
            Self::Unsigned(_) | Self::Signed(_) => {
                let (value, is_exact) = match given {
                    InputValue::Whole(value) => (value, true),
                    // Most numbers are integers below `EXACT_MAX`, so they have a fast path.
                    InputValue::Number(value)
                        if value.abs() < EXACT_MAX && value as i64 as f64 == value =>
                    {
                        (i128::from(value as i64), true)
                    }
                    InputValue::Number(value) if value.is_nan() => return None,
                    // The cast saturates at a number that is outside the range of every type.
                    InputValue::Number(value) => (value.floor() as i128, value.fract() == 0.0),
                    // Integers that Lua's numbers can't represent exactly are passed as texts of digits.
                    InputValue::Text(text) => (std::str::from_utf8(text).ok()?.parse().ok()?, true),
                    _ => return None,
                };
                let [least, most] = whole_limits(self);
                Some(match value {
                    _ if value < least => NumberPosition::Before,
                    _ if value > most => NumberPosition::After,
                    _ if is_exact => NumberPosition::At(value as i64 as u64),
                    _ => NumberPosition::Behind(value as i64 as u64),
                })
            }
            Self::F32 | Self::F64 => {
                let value = match given {
                    InputValue::Whole(value) => value as f64,
                    InputValue::Number(value) => value,
                    _ => return None,
                };
                if value.is_nan() {
                    return None;
                }
                // An infinity is valid as a limit of a scan, before or after all values.
                if value.is_infinite() {
                    return Some(if value < 0.0 {
                        NumberPosition::Before
                    } else {
                        NumberPosition::After
                    });
                }
                // Converts -0 to 0, so that equal values have equal bits.
                let value = value + 0.0;
                let value = if *self == Self::F32 {
                    let rounded = f64::from(value as f32);
                    if rounded.is_infinite() {
                        return Some(if value < 0.0 {
                            NumberPosition::Before
                        } else {
                            NumberPosition::After
                        });
                    }
                    rounded
                } else {
                    value
                };
                Some(NumberPosition::At(value.to_bits()))
            }
            _ => None,
        }
    }

    /// Extends a value that is stored in [`bits`](Self::bits) bits to the 64 bits of a [`Cell`].
    #[inline]
    pub(super) fn widen(&self, narrow: u64) -> u64 {
        match self {
            // Sign extension.
            Self::Signed(size) => ((narrow << (64 - size)) as i64 >> (64 - size)) as u64,
            Self::F32 => f64::from(f32::from_bits(narrow as u32)).to_bits(),
            _ => narrow,
        }
    }

    /// Returns whether the 64 bits of a [`Cell`] are a value of this type.
    pub(super) fn has(&self, bits: u64) -> bool {
        match self {
            Self::Bool => bits <= 1,
            Self::Enum(words) => bits < words.len() as u64,
            Self::F32 | Self::F64 => {
                self.position_of(InputValue::Number(f64::from_bits(bits)))
                    == Some(NumberPosition::At(bits))
            }
            _ => true,
        }
    }

    /// Maps a value to [`bits`](Self::bits) bits that, compared as unsigned integers, have the order of the values.
    pub(super) fn ordered(&self, bits: u64) -> u64 {
        match self {
            Self::Signed(size) => (bits ^ (1 << (size - 1))) & (u64::MAX >> (64 - size)),
            Self::F32 => {
                let bits = (f64::from_bits(bits) as f32).to_bits();
                u64::from(if bits >> 31 == 0 {
                    bits | 1 << 31
                } else {
                    !bits
                })
            }
            Self::F64 if bits >> 63 == 0 => bits | 1 << 63,
            Self::F64 => !bits,
            _ => bits,
        }
    }

    /// Converts the bits of a numeric value to a double.
    #[must_use]
    pub fn number(&self, bits: u64) -> f64 {
        match self {
            Self::Signed(_) => bits as i64 as f64,
            Self::F32 | Self::F64 => f64::from_bits(bits),
            _ => bits as f64,
        }
    }

    /// Converts the bits of a value to an integer; `None` if the type is not an integer.
    #[must_use]
    pub fn whole(&self, bits: u64) -> Option<i128> {
        match self {
            Self::Signed(_) => Some((bits as i64).into()),
            Self::Unsigned(_) => Some(bits.into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: &str) -> Column {
        Column::parse("c", kind).expect("a column")
    }

    #[test]
    fn values_fit_or_the_error_names_the_reason() {
        let two = |power: i32| 2_f64.powi(power);
        for (kind, given, expected) in [
            ("u8", InputValue::Number(255.0), Ok(Cell::Bits(255))),
            (
                "i8",
                InputValue::Number(-128.0),
                Ok(Cell::Bits(-128_i64 as u64)),
            ),
            (
                "u64",
                InputValue::Text(b"18446744073709551615"),
                Ok(Cell::Bits(u64::MAX)),
            ),
            ("enum(m,f)", InputValue::Text(b"f"), Ok(Cell::Bits(1))),
            (
                "string(2)",
                InputValue::Text("дя".as_bytes()),
                Ok(Cell::Text("дя".as_bytes())),
            ),
            ("bool?", InputValue::Null, Ok(Cell::Null)),
            (
                "f32",
                InputValue::Number(0.1),
                Ok(Cell::Bits(f64::from(0.1_f32).to_bits())),
            ),
            ("f64", InputValue::Number(-0.0), Ok(Cell::Bits(0))),
            ("u8", InputValue::Number(256.0), Err("from 0 to 255")),
            ("i8", InputValue::Number(-129.0), Err("from -128 to 127")),
            (
                "u8",
                InputValue::Number(1.5),
                Err("expected a whole number (u8)"),
            ),
            ("u8", InputValue::Number(f64::NAN), Err("a whole number")),
            (
                "u8",
                InputValue::Number(f64::INFINITY),
                Err("from 0 to 255"),
            ),
            ("u8", InputValue::Bool(true), Err("a whole number")),
            ("i32", InputValue::Number(-0.0), Ok(Cell::Bits(0))),
            ("u64", InputValue::Number(two(53)), Ok(Cell::Bits(1 << 53))),
            ("u64", InputValue::Number(two(63)), Ok(Cell::Bits(1 << 63))),
            (
                "u64",
                InputValue::Number(two(64)),
                Err("from 0 to 18446744073709551615"),
            ),
            ("i64", InputValue::Number(-two(63)), Ok(Cell::Bits(1 << 63))),
            (
                "i64",
                InputValue::Number(two(63)),
                Err("to 9223372036854775807"),
            ),
            ("f32", InputValue::Number(1e39), Err("out of range")),
            ("f64", InputValue::Number(f64::NAN), Err("a number")),
            (
                "string(2)",
                InputValue::Text("дяд".as_bytes()),
                Err("at most 2 characters"),
            ),
            ("string", InputValue::Text(b"\xff"), Err("not UTF-8")),
            ("bytes(1)", InputValue::Text(b"ab"), Err("at most 1 bytes")),
            ("enum(m,f)", InputValue::Text(b"x"), Err("one of m, f")),
            ("u8", InputValue::Null, Err("missing")),
        ] {
            match (column(kind).cell(given), expected) {
                (Ok(cell), Ok(expected)) => assert_eq!(cell, expected, "{kind}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{kind}: {error}");
                }
                (found, _) => panic!("{kind} {given}: {found:?}"),
            }
        }
    }

    #[test]
    fn ordered_bits_have_the_order_of_the_values() {
        let rising = [-1e300, -2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.5, 1e300];
        let bits = |kind: &Type, value: f64| match kind.position_of(InputValue::Number(value)) {
            Some(NumberPosition::At(bits)) => kind.ordered(bits),
            other => panic!("{other:?}"),
        };
        for (kind, values) in [(Type::F64, &rising[..]), (Type::F32, &rising[1..8])] {
            assert!(
                values
                    .windows(2)
                    .all(|two| bits(&kind, two[0]) < bits(&kind, two[1]))
            );
        }
        for size in [8, 16, 32] {
            let kind = Type::Signed(size);
            let values = [-128.0, -1.0, 0.0, 1.0, 127.0].map(|value| bits(&kind, value));
            assert!(values.is_sorted() && values[4] >> size == 0, "{values:?}");
        }
    }
}
