//! Loads CSV files, whose first line names the columns.

use std::io::Read;

use super::fault::{LoadFault, Sink};
use super::row_batch::RowBatch;
use super::value;
use crate::table::job::FilePosition;
use crate::table::schema::Schema;

/// Size of a read in bytes.
const BLOCK: usize = 256 << 10;

fn fault(error: &csv::Error) -> LoadFault {
    let line = |position: &Option<csv::Position>| {
        FilePosition::Line(position.as_ref().map_or(1, csv::Position::line))
    };
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => {
            let why =
                format!("the number of fields is {len}, but the first line has {expected_len}");
            LoadFault::Text(line(pos), why)
        }
        _ => LoadFault::Read(error.to_string()),
    }
}

/// Loads all rows of a CSV file.
pub(super) fn file(
    reader: Box<dyn Read + '_>,
    schema: &Schema,
    batch: &mut RowBatch,
    sink: &mut Sink<'_>,
) -> Result<(), LoadFault> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .buffer_capacity(BLOCK)
        .from_reader(reader);
    let mut record = csv::ByteRecord::new();
    let mut order: Option<Vec<usize>> = None;
    while reader
        .read_byte_record(&mut record)
        .map_err(|error| fault(&error))?
    {
        let line = record.position().map_or(1, csv::Position::line);
        let wrong = |why: String| LoadFault::Text(FilePosition::Line(line), why);
        let Some(order) = &order else {
            order = Some(columns(schema, &record).map_err(wrong)?);
            continue;
        };
        batch.begin();
        for (place, field) in order.iter().zip(&record) {
            let column = &schema.columns[*place];
            value::set_field(column, *place, field, batch)
                .map_err(|error| wrong(error.to_string()))?;
        }
        value::fill(schema, batch).map_err(|error| wrong(error.to_string()))?;
        batch.end(FilePosition::Line(line));
        if batch.is_full() {
            sink(batch)?;
        }
    }
    match order {
        Some(_) => Ok(()),
        None => Err(LoadFault::Text(
            FilePosition::Line(1),
            "the file is empty: the first line must name the columns".to_owned(),
        )),
    }
}

/// Returns the column index of each field, from the names in the first line.
fn columns(schema: &Schema, names: &csv::ByteRecord) -> Result<Vec<usize>, String> {
    let mut order = Vec::with_capacity(names.len());
    for name in names {
        let shown = String::from_utf8_lossy(name);
        match schema.column(name.trim_ascii()) {
            None => return Err(format!("there is no column \"{shown}\"")),
            Some(place) if order.contains(&place) => {
                return Err(format!("{shown} occurs twice"));
            }
            Some(place) => order.push(place),
        }
    }
    Ok(order)
}
