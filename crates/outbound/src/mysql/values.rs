//! Converts values between the database's types and those of scripts.

use mysql_async::consts::ColumnType;
use mysql_async::{Column, Value as Theirs};
use veche_calls::mysql::MysqlValue;

/// All integers up to this absolute value are exact in a double.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The memory overhead of a value, in addition to its content, in bytes.
const VALUE_BYTES: usize = 16;

pub(super) fn to_server(value: MysqlValue) -> Theirs {
    match value {
        MysqlValue::Null => Theirs::NULL,
        MysqlValue::Boolean(value) => Theirs::Int(value.into()),
        MysqlValue::Number(value) if value.fract() == 0.0 && value.abs() <= WHOLE_MAX => {
            Theirs::Int(value as i64)
        }
        MysqlValue::Number(value) => Theirs::Double(value),
        MysqlValue::Bytes(bytes) => Theirs::Bytes(bytes),
    }
}

/// Converts a value of the server. Numbers that a double represents exactly become numbers. Other numbers and times
/// become text.
pub(super) fn from_server(value: Theirs, column: &Column) -> MysqlValue {
    match value {
        Theirs::NULL => MysqlValue::Null,
        Theirs::Bytes(bytes) => MysqlValue::Bytes(bytes),
        Theirs::Int(value) => whole(value.into()),
        Theirs::UInt(value) => whole(value.into()),
        // A float is converted through its shortest text, so that 0.1 stays 0.1.
        Theirs::Float(value) => MysqlValue::Number(value.to_string().parse().unwrap_or(f64::NAN)),
        Theirs::Double(value) => MysqlValue::Number(value),
        Theirs::Date(year, month, day, hour, minute, second, us) => {
            let mut text = format!("{year:04}-{month:02}-{day:02}");
            let is_day = matches!(
                column.column_type(),
                ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE
            );
            if !is_day {
                text += &format!(" {hour:02}:{minute:02}:{second:02}");
                text += &fraction(us, column);
            }
            MysqlValue::Bytes(text.into_bytes())
        }
        Theirs::Time(is_negative, days, hours, minutes, seconds, us) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = days * 24 + u32::from(hours);
            let text = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
            MysqlValue::Bytes((text + &fraction(us, column)).into_bytes())
        }
    }
}

fn whole(value: i128) -> MysqlValue {
    if value.abs() <= WHOLE_MAX as i128 {
        MysqlValue::Number(value as f64)
    } else {
        MysqlValue::Bytes(value.to_string().into_bytes())
    }
}

/// Formats the fraction of a second with the column's number of digits.
fn fraction(us: u32, column: &Column) -> String {
    let digits = match usize::from(column.decimals()) {
        0 => return String::new(),
        digits @ 1..=6 => digits,
        _ => 6,
    };
    format!(".{:.digits$}", format!("{us:06}"))
}

/// Returns the approximate size in bytes.
pub(super) fn bytes_of(value: &MysqlValue) -> usize {
    VALUE_BYTES
        + match value {
            MysqlValue::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
}
