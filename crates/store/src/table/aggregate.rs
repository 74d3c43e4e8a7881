//! Aggregation over a scan without returning rows.

use super::Table;
use super::cell::Cell;
use super::error::TableError;
use super::scan::Scan;

/// The aggregate of the rows visited so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Number of rows that have a value in the column.
    pub count: u64,
    /// The exact sum of integers.
    whole: i128,
    /// The sum of floating-point numbers, and its accumulated rounding error.
    sum: f64,
    compensation: f64,
    min_max: Option<[f64; 2]>,
}

impl Aggregate {
    /// Returns the sum as a double.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.whole as f64 + (self.sum + self.compensation)
    }

    /// Returns the minimum and maximum, if there are values.
    #[must_use]
    pub fn min_max(&self) -> Option<[f64; 2]> {
        self.min_max
    }

    /// Returns the mean, if there are values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    fn add(&mut self, number: f64, whole: Option<i128>) {
        self.count += 1;
        match whole {
            Some(whole) => self.whole += whole,
            None => {
                // Neumaier's algorithm, which accumulates the rounding error separately.
                let sum = self.sum + number;
                self.compensation += if self.sum.abs() >= number.abs() {
                    (self.sum - sum) + number
                } else {
                    (number - sum) + self.sum
                };
                self.sum = sum;
            }
        }
        self.min_max = Some(match self.min_max {
            None => [number, number],
            Some([least, most]) => [least.min(number), most.max(number)],
        });
    }
}

impl Table {
    /// Aggregates a column over the next rows of a scan, which it visits like [`next`](Self::next). Returns whether there may
    /// be more rows.
    ///
    /// # Errors
    /// [`TableError::Loading`]; [`TableError::Scan`] if the column is not numeric.
    pub fn aggregate(
        &self,
        column: usize,
        scan: &mut Scan,
        rows_max: usize,
        now_ms: u64,
        aggregate: &mut Aggregate,
    ) -> Result<bool, TableError> {
        let kind = &self.schema.columns[column].kind;
        if !kind.is_number() {
            return Err(TableError::Scan(format!(
                "column {}: a {kind} can't be summed",
                self.schema.columns[column].name
            )));
        }
        self.next(scan, rows_max, now_ms, |row| {
            if let Cell::Bits(bits) = row.get(column) {
                aggregate.add(kind.number(bits), kind.whole(bits));
            }
        })
    }
}
