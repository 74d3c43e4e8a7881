//! What the numbers of a scan amount to, without handing rows out.

use super::Table;
use super::cell::Cell;
use super::error::TableError;
use super::scan::Scan;

/// Numbers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Rows with a value.
    pub count: u64,
    /// Of whole numbers exact.
    whole: i128,
    /// Of others, and what their rounding has left out.
    sum: f64,
    rest: f64,
    limits: Option<[f64; 2]>,
}

impl Aggregate {
    /// The sum.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.whole as f64 + (self.sum + self.rest)
    }

    /// The least and the greatest, if there is any.
    #[must_use]
    pub fn limits(&self) -> Option<[f64; 2]> {
        self.limits
    }

    /// The mean, if there is any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    fn add(&mut self, number: f64, whole: Option<i128>) {
        self.count += 1;
        match whole {
            Some(whole) => self.whole += whole,
            None => {
                // Neumaier's: what is too small for the sum is kept beside it.
                let sum = self.sum + number;
                self.rest += if self.sum.abs() >= number.abs() {
                    (self.sum - sum) + number
                } else {
                    (number - sum) + self.sum
                };
                self.sum = sum;
            }
        }
        self.limits = Some(match self.limits {
            None => [number, number],
            Some([least, most]) => [least.min(number), most.max(number)],
        });
    }
}

impl Table {
    /// Adds up a column over the next rows of a scan, as [`next`](Self::next); whether there may be more.
    ///
    /// # Errors
    /// [`TableError::Loading`]; [`TableError::Scan`] where the column has no numbers.
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
