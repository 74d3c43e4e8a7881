//! The memory layout of rows.

use super::cell::Cell;
use super::schema::{Schema, Type};

/// The size of a row and the location of each column in it.
#[derive(Debug)]
pub(super) struct Shape {
    kinds: Box<[Type]>,
    slots: Box<[Slot]>,
    /// The size of a row in bytes, without its strings.
    pub(super) width: usize,
    /// The byte offset in a row at which the list of the end offsets of its strings begins. The list is the last part of the
    /// row.
    pub(super) ends: usize,
    /// The number of string columns.
    pub(super) texts: usize,
    /// The mapping between keys and row numbers, if a row's number is computed from its key.
    pub(super) key: Option<NumberKey>,
}

/// The location of one column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) form: SlotForm,
    /// For nullable columns: the byte offset and the mask of the bit that is set if the row has a value.
    pub(super) present: Option<(usize, u8)>,
}

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotForm {
    /// Not stored, because the value is the row number.
    Number(NumberKey),
    /// A value of a fixed number of bytes, at this offset.
    One(usize),
    Two(usize),
    Four(usize),
    Eight(usize),
    /// A string; the number is its index among the row's strings.
    Text(usize),
}

/// The mapping of an integer key of at most 32 bits to row numbers, which preserves the order of the keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberKey {
    bits: u32,
    is_signed: bool,
}

impl NumberKey {
    fn new(kind: &Type) -> Option<Self> {
        let (bits, is_signed) = match *kind {
            Type::Unsigned(bits) => (bits, false),
            Type::Signed(bits) => (bits, true),
            _ => return None,
        };
        (bits <= 32).then_some(Self { bits, is_signed })
    }

    pub(super) fn row(self, kind: &Type, bits: u64) -> u32 {
        kind.ordered(bits) as u32
    }

    /// Converts a row number to the bits of the row's key.
    pub(super) fn bits(self, row: u32) -> u64 {
        if !self.is_signed {
            return row.into();
        }
        let unused = 64 - self.bits;
        let moved = u64::from(row) ^ 1 << (self.bits - 1);
        ((moved << unused) as i64 >> unused) as u64
    }
}

impl Shape {
    pub(super) fn new(schema: &Schema) -> Self {
        let key = NumberKey::new(&schema.columns[0].kind);
        let gaps = schema.columns.iter().filter(|column| column.is_nullable);
        let gaps = gaps.count();
        let (mut width, mut texts, mut gap) = (gaps.div_ceil(8), 0, 0);
        let slots = schema.columns.iter().enumerate().map(|(place, column)| {
            let form = match (key, column.kind.bits()) {
                (Some(key), _) if place == 0 => SlotForm::Number(key),
                (_, None) => {
                    texts += 1;
                    SlotForm::Text(texts - 1)
                }
                (_, Some(bits)) => {
                    let at = width;
                    width += bits as usize / 8;
                    match bits {
                        8 => SlotForm::One(at),
                        16 => SlotForm::Two(at),
                        32 => SlotForm::Four(at),
                        _ => SlotForm::Eight(at),
                    }
                }
            };
            let present = column.is_nullable.then(|| {
                gap += 1;
                ((gap - 1) / 8, 1 << ((gap - 1) % 8))
            });
            Slot { form, present }
        });
        let slots = slots.collect();
        let kinds = schema.columns.iter().map(|column| column.kind.clone());
        Self {
            kinds: kinds.collect(),
            slots,
            width: width + 4 * texts,
            ends: width,
            texts,
            key,
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.kinds.len()
    }

    #[inline]
    pub(super) fn kind(&self, column: usize) -> &Type {
        &self.kinds[column]
    }

    #[inline]
    pub(super) fn slot(&self, column: usize) -> Slot {
        self.slots[column]
    }

    /// Returns the number of bytes that a column takes in each row.
    pub(super) fn column_width(&self, column: usize) -> usize {
        match self.slots[column].form {
            SlotForm::Number(_) => 0,
            SlotForm::One(_) => 1,
            SlotForm::Two(_) => 2,
            SlotForm::Four(_) | SlotForm::Text(_) => 4,
            SlotForm::Eight(_) => 8,
        }
    }

    /// Writes a value other than a string into a row's bytes.
    pub(super) fn write(&self, row: &mut [u8], column: usize, cell: Cell<'_>) {
        let Slot { form, present } = self.slots[column];
        if let Some((byte, bit)) = present {
            match cell {
                Cell::Null => row[byte] &= !bit,
                _ => row[byte] |= bit,
            }
        }
        let bits = kept_bits(&self.kinds[column], cell).to_le_bytes();
        let (at, size) = match form {
            SlotForm::Number(_) | SlotForm::Text(_) => return,
            SlotForm::One(at) => (at, 1),
            SlotForm::Two(at) => (at, 2),
            SlotForm::Four(at) => (at, 4),
            SlotForm::Eight(at) => (at, 8),
        };
        row[at..at + size].copy_from_slice(&bits[..size]);
    }
}

/// Reduces a value to the number of bits that its type is stored in.
pub(super) fn kept_bits(kind: &Type, cell: Cell<'_>) -> u64 {
    match cell {
        Cell::Bits(bits) if *kind == Type::F32 => {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        }
        Cell::Bits(bits) => bits,
        Cell::Null | Cell::Text(_) => 0,
    }
}
