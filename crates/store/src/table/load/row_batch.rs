//! A batch of up to a thousand parsed rows in reusable memory.

use super::super::cell::Cell;
use super::super::job::FilePosition;

/// Maximum number of rows in a batch.
const ROWS_MAX: usize = 1000;
/// A batch is full once its strings have at least this total size in bytes.
const TEXTS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum BatchCell {
    /// The field is absent.
    Absent,
    Null,
    Bits(u64),
    Text {
        from: u32,
        len: u32,
    },
}

/// Rows with a cell for each visible column.
#[derive(Debug)]
pub(in super::super) struct RowBatch {
    width: usize,
    cells: Vec<BatchCell>,
    texts: Vec<u8>,
    /// The positions of the rows in their file.
    places: Vec<FilePosition>,
}

impl RowBatch {
    pub(in super::super) fn new(width: usize) -> Self {
        Self {
            width,
            cells: Vec::with_capacity(width * ROWS_MAX),
            texts: Vec::new(),
            places: Vec::with_capacity(ROWS_MAX),
        }
    }

    pub(in super::super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= ROWS_MAX || self.texts.len() >= TEXTS_MAX
    }

    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.texts.clear();
        self.places.clear();
    }

    /// Starts a row, discarding an unfinished one.
    pub(super) fn begin(&mut self) {
        self.cells.truncate(self.width * self.len());
        self.cells
            .resize(self.width * (self.len() + 1), BatchCell::Absent);
    }

    pub(super) fn end(&mut self, place: FilePosition) {
        self.places.push(place);
    }

    pub(super) fn is_set(&self, column: usize) -> bool {
        !matches!(
            self.cells[self.width * self.len() + column],
            BatchCell::Absent
        )
    }

    pub(super) fn set(&mut self, column: usize, cell: Cell<'_>) {
        let at = self.width * self.len() + column;
        self.cells[at] = match cell {
            Cell::Null => BatchCell::Null,
            Cell::Bits(bits) => BatchCell::Bits(bits),
            Cell::Text(text) => {
                let from = self.texts.len() as u32;
                self.texts.extend_from_slice(text);
                let len = text.len() as u32;
                BatchCell::Text { from, len }
            }
        };
    }

    pub(in super::super) fn place(&self, row: usize) -> FilePosition {
        self.places[row]
    }

    pub(in super::super) fn cells(&self, row: usize) -> impl Iterator<Item = Cell<'_>> {
        let cells = &self.cells[self.width * row..self.width * (row + 1)];
        cells.iter().map(|cell| match *cell {
            BatchCell::Absent | BatchCell::Null => Cell::Null,
            BatchCell::Bits(bits) => Cell::Bits(bits),
            BatchCell::Text { from, len } => {
                Cell::Text(&self.texts[from as usize..(from + len) as usize])
            }
        })
    }
}
