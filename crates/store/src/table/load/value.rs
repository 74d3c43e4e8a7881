//! Conversion of file values to column values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::row_batch::RowBatch;
use crate::table::cell::{Cell, InputValue};
use crate::table::error::TableError;
use crate::table::schema::{Column, Schema, Type};

/// Number of digits that always fit into 64 bits.
const DIGITS_FEW: usize = 18;
/// Number of digits that always fit into 128 bits.
const DIGITS_MANY: usize = 38;

/// Converts a number in JSON syntax. `is_whole` is true if the number has neither a fraction nor an
/// exponent.
pub(super) fn number<'a>(text: &[u8], is_whole: bool) -> InputValue<'a> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if is_whole && digits.len() <= DIGITS_FEW {
        let value = digits
            .iter()
            .fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return InputValue::Whole(if is_negative { -value } else { value }.into());
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    if is_whole
        && digits.len() <= DIGITS_MANY
        && let Ok(value) = text.parse()
    {
        return InputValue::Whole(value);
    }
    InputValue::Number(text.parse().unwrap_or(f64::NAN))
}

/// Sets a value of the current row.
#[inline]
pub(super) fn set(
    column: &Column,
    place: usize,
    given: InputValue<'_>,
    batch: &mut RowBatch,
) -> Result<(), TableError> {
    // A fast path for unsigned integers, the most common values.
    if let (Type::Unsigned(bits), InputValue::Whole(value)) = (&column.kind, given)
        && value >= 0
        && value >> bits == 0
    {
        batch.set(place, Cell::Bits(value as u64));
        return Ok(());
    }
    if let (Type::Bytes(_), InputValue::Text(text)) = (&column.kind, given) {
        let bytes = STANDARD.decode(text).map_err(|_| TableError::Value {
            column: column.name.clone(),
            value: given.to_string(),
            why: "expected Base64".to_owned(),
        })?;
        batch.set(place, column.cell(InputValue::Text(&bytes))?);
        return Ok(());
    }
    batch.set(place, column.cell(given)?);
    Ok(())
}

/// Checks that each column without a value in the current row is nullable. [`RowBatch`] returns
/// such values as null.
pub(super) fn fill(schema: &Schema, batch: &RowBatch) -> Result<(), TableError> {
    for (place, column) in schema.visible().iter().enumerate() {
        if !batch.is_set(place) {
            column.cell(InputValue::Null)?;
        }
    }
    Ok(())
}

/// Converts a CSV field and sets it as a value of the current row.
pub(super) fn set_field(
    column: &Column,
    place: usize,
    field: &[u8],
    batch: &mut RowBatch,
) -> Result<(), TableError> {
    if field.is_empty() && (column.is_nullable || !column.kind.is_text()) {
        return set(column, place, InputValue::Null, batch);
    }
    let trimmed = field.trim_ascii();
    let float = || std::str::from_utf8(trimmed).ok()?.parse().ok();
    let given = match &column.kind {
        Type::Bool => match trimmed {
            b"true" | b"1" => InputValue::Bool(true),
            b"false" | b"0" => InputValue::Bool(false),
            _ => InputValue::Text(field),
        },
        Type::Unsigned(_) | Type::Signed(_) => {
            let digits = trimmed.strip_prefix(b"-").unwrap_or(trimmed);
            match !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
                true => number(trimmed, true),
                false => float().map_or(InputValue::Text(field), InputValue::Number),
            }
        }
        Type::F32 | Type::F64 => float().map_or(InputValue::Text(field), InputValue::Number),
        Type::String(_) | Type::Bytes(_) | Type::Enum(_) => InputValue::Text(field),
    };
    set(column, place, given, batch)
}
