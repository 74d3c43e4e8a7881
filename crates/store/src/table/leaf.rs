//! Some hundred rows next to each other, column by column.
//!
//! Rows stand in the order of their numbers. Where these follow each other, as keys mostly do, only the first is kept.
//! A column takes what its values take: whole numbers as many bytes as their type has, strings their bytes and four
//! more. Room grows in steps of an eighth of a full leaf, so little of it lies idle.

use super::cell::Cell;
use super::schema::{Schema, Type};

/// Most rows of a leaf.
pub(super) const ROWS_MAX: usize = 1024;
/// Bytes of strings beyond which a leaf of several rows is split.
pub(super) const TEXTS_BYTES_MAX: usize = 64 << 10;
/// A leaf with fewer rows looks for a neighbour to join.
pub(super) const ROWS_FEW: usize = ROWS_MAX / 8;
const STEP: usize = ROWS_MAX / 8;

/// What a vector of that many bytes takes of the heap.
pub(super) fn heap_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => (bytes + 8).next_multiple_of(16).max(32),
    }
}

/// Makes room for one more in steps.
pub(super) fn make_room<T>(list: &mut Vec<T>, more: usize, step: usize) {
    let needed = list.len() + more;
    if needed > list.capacity() {
        let capacity = needed.next_multiple_of(step.max(needed / 8));
        // The first few don't take a whole step.
        let capacity = if needed <= 8 { 8 } else { capacity };
        list.reserve_exact(capacity - list.len());
    }
}

/// Gives room back that is not needed any more.
pub(super) fn give_room<T>(list: &mut Vec<T>, step: usize) {
    if list.capacity() - list.len() > 2 * step.max(list.len() / 4) {
        list.shrink_to(list.len().next_multiple_of(step));
    }
}

/// The numbers of a leaf's rows, rising.
#[derive(Clone, Debug)]
enum Numbers {
    /// From this one on, without a gap.
    Run { first: u32, count: u32 },
    /// One by one.
    List(Vec<u32>),
}

impl Numbers {
    fn find(&self, row: u32) -> Result<usize, usize> {
        match self {
            Self::Run { first, count } => match row.checked_sub(*first) {
                None => Err(0),
                Some(place) if place < *count => Ok(place as usize),
                Some(_) => Err(*count as usize),
            },
            Self::List(list) => list.binary_search(&row),
        }
    }

    fn at(&self, place: usize) -> u32 {
        match self {
            Self::Run { first, .. } => first + place as u32,
            Self::List(list) => list[place],
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Run { count, .. } => *count as usize,
            Self::List(list) => list.len(),
        }
    }

    fn insert(&mut self, place: usize, row: u32) {
        match self {
            Self::Run { first, count } if *count == 0 => (*first, *count) = (row, 1),
            Self::Run { first, count } if u64::from(*first) + u64::from(*count) == row.into() => {
                *count += 1;
            }
            Self::Run { first, count } if *first == row.wrapping_add(1) => {
                (*first, *count) = (row, *count + 1);
            }
            Self::Run { first, count } => {
                let mut list = Vec::with_capacity((*count as usize + 1).next_multiple_of(STEP));
                list.extend(*first..*first + *count);
                list.insert(place, row);
                *self = Self::List(list);
            }
            Self::List(list) => {
                make_room(list, 1, STEP);
                list.insert(place, row);
                self.tighten();
            }
        }
    }

    fn remove(&mut self, place: usize) {
        match self {
            Self::Run { count, .. } if place + 1 == *count as usize => *count -= 1,
            Self::Run { first, count } if place == 0 => (*first, *count) = (*first + 1, *count - 1),
            Self::Run { first, count } => {
                let mut list: Vec<u32> = (*first..*first + *count).collect();
                list.remove(place);
                *self = Self::List(list);
            }
            Self::List(list) => {
                list.remove(place);
                give_room(list, STEP);
                self.tighten();
            }
        }
    }

    /// A list without gaps is a run.
    fn tighten(&mut self) {
        if let Self::List(list) = self
            && let [first, .., last] = list[..]
            && (last - first) as usize == list.len() - 1
        {
            let count = list.len() as u32;
            *self = Self::Run { first, count };
        }
    }

    fn split_off(&mut self, place: usize) -> Self {
        let mut behind = match self {
            Self::Run { first, count } => {
                let (from, rest) = (*first + place as u32, *count - place as u32);
                *count = place as u32;
                return Self::Run {
                    first: from,
                    count: rest,
                };
            }
            Self::List(list) => {
                let behind = list[place..].to_vec();
                list.truncate(place);
                list.shrink_to_fit();
                Self::List(behind)
            }
        };
        self.tighten();
        behind.tighten();
        behind
    }

    fn append(&mut self, other: &Self) {
        let mut all: Vec<u32> = (0..self.len()).map(|place| self.at(place)).collect();
        all.extend((0..other.len()).map(|place| other.at(place)));
        *self = Self::List(all);
        self.tighten();
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Run { .. } => 0,
            Self::List(list) => heap_bytes(list.capacity() * 4),
        }
    }
}

/// Strings behind each other.
#[derive(Clone, Debug, Default)]
struct Texts {
    /// Where each ends.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Texts {
    fn range(&self, place: usize) -> std::ops::Range<usize> {
        let from = if place == 0 { 0 } else { self.ends[place - 1] };
        from as usize..self.ends[place] as usize
    }

    fn put(&mut self, place: usize, range: std::ops::Range<usize>, text: &[u8]) {
        let (before, after) = (range.len(), text.len());
        if after > before {
            let step = self.bytes.len() / 8;
            make_room(&mut self.bytes, after - before, step.max(64));
        }
        self.bytes.splice(range, text.iter().copied());
        for end in &mut self.ends[place..] {
            *end = *end - before as u32 + after as u32;
        }
        if after < before {
            let step = self.bytes.len() / 8;
            give_room(&mut self.bytes, step.max(64));
        }
    }
}

#[derive(Clone, Debug)]
enum Values {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
    Texts(Texts),
}

/// Does the same for whatever width values have.
macro_rules! each_width {
    ($values:expr, $list:ident => $do:expr, $texts:ident => $or:expr) => {
        match $values {
            Values::One($list) => $do,
            Values::Two($list) => $do,
            Values::Four($list) => $do,
            Values::Eight($list) => $do,
            Values::Texts($texts) => $or,
        }
    };
}

/// One column of a leaf.
#[derive(Clone, Debug)]
struct Cells {
    values: Values,
    /// For each row whether it has a value, once there was one without.
    #[expect(
        clippy::box_collection,
        reason = "a column without gaps, as most are, takes 16 bytes less"
    )]
    present: Option<Box<Vec<bool>>>,
}

impl Cells {
    fn new(kind: &Type) -> Self {
        let values = match kind.bits() {
            None => Values::Texts(Texts::default()),
            Some(8) => Values::One(Vec::new()),
            Some(16) => Values::Two(Vec::new()),
            Some(32) => Values::Four(Vec::new()),
            Some(_) => Values::Eight(Vec::new()),
        };
        Self {
            values,
            present: None,
        }
    }

    fn make_full_room(&mut self) {
        each_width!(&mut self.values, list => list.reserve_exact(ROWS_MAX), texts => {
            texts.ends.reserve_exact(ROWS_MAX);
        });
    }

    #[inline]
    fn get(&self, kind: &Type, place: usize) -> Cell<'_> {
        if let Some(present) = &self.present
            && !present[place]
        {
            return Cell::Null;
        }
        let narrow = match &self.values {
            Values::One(list) => u64::from(list[place]),
            Values::Two(list) => list[place].into(),
            Values::Four(list) => list[place].into(),
            Values::Eight(list) => return Cell::Bits(list[place]),
            Values::Texts(texts) => return Cell::Text(&texts.bytes[texts.range(place)]),
        };
        Cell::Bits(kind.widen(narrow))
    }

    /// `len`: how many there are.
    fn insert(&mut self, kind: &Type, len: usize, place: usize, cell: Cell<'_>) {
        if let Some(present) = &mut self.present {
            make_room(present, 1, STEP);
            present.insert(place, cell != Cell::Null);
        } else if cell == Cell::Null {
            let mut present = vec![true; len];
            present.insert(place, false);
            self.present = Some(Box::new(present));
        }
        let bits = kept_bits(kind, cell);
        match &mut self.values {
            Values::One(list) => insert(list, place, bits as u8),
            Values::Two(list) => insert(list, place, bits as u16),
            Values::Four(list) => insert(list, place, bits as u32),
            Values::Eight(list) => insert(list, place, bits),
            Values::Texts(texts) => {
                let at = if place == 0 { 0 } else { texts.ends[place - 1] };
                insert(&mut texts.ends, place, at);
                texts.put(place, at as usize..at as usize, text_of(cell));
            }
        }
    }

    fn set(&mut self, kind: &Type, len: usize, place: usize, cell: Cell<'_>) {
        if cell == Cell::Null && self.present.is_none() {
            self.present = Some(Box::new(vec![true; len]));
        }
        if let Some(present) = &mut self.present {
            present[place] = cell != Cell::Null;
        }
        let bits = kept_bits(kind, cell);
        match &mut self.values {
            Values::One(list) => list[place] = bits as u8,
            Values::Two(list) => list[place] = bits as u16,
            Values::Four(list) => list[place] = bits as u32,
            Values::Eight(list) => list[place] = bits,
            Values::Texts(texts) => {
                let range = texts.range(place);
                texts.put(place, range, text_of(cell));
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(present) = &mut self.present {
            present.remove(place);
        }
        each_width!(&mut self.values, list => {
            list.remove(place);
            give_room(list, STEP);
        }, texts => {
            let range = texts.range(place);
            texts.put(place, range, b"");
            texts.ends.remove(place);
            give_room(&mut texts.ends, STEP);
        });
    }

    fn split_off(&mut self, place: usize) -> Self {
        let present = self
            .present
            .as_mut()
            .map(|present| Box::new(present.split_off(place)));
        let values = match &mut self.values {
            Values::One(list) => Values::One(cut(list, place)),
            Values::Two(list) => Values::Two(cut(list, place)),
            Values::Four(list) => Values::Four(cut(list, place)),
            Values::Eight(list) => Values::Eight(cut(list, place)),
            Values::Texts(texts) => {
                let at = if place == 0 { 0 } else { texts.ends[place - 1] };
                let mut ends = cut(&mut texts.ends, place);
                ends.iter_mut().for_each(|end| *end -= at);
                let bytes = cut(&mut texts.bytes, at as usize);
                Values::Texts(Texts { ends, bytes })
            }
        };
        Self { values, present }
    }

    fn append(&mut self, mut other: Self, len: usize, other_len: usize) {
        if self.present.is_some() || other.present.is_some() {
            let mut present = self
                .present
                .take()
                .unwrap_or_else(|| vec![true; len].into());
            match &other.present {
                Some(other) => present.extend_from_slice(other),
                None => present.resize(len + other_len, true),
            }
            self.present = Some(present);
        }
        match (&mut self.values, &mut other.values) {
            (Values::One(list), Values::One(other)) => list.append(other),
            (Values::Two(list), Values::Two(other)) => list.append(other),
            (Values::Four(list), Values::Four(other)) => list.append(other),
            (Values::Eight(list), Values::Eight(other)) => list.append(other),
            (Values::Texts(texts), Values::Texts(other)) => {
                let at = texts.bytes.len() as u32;
                texts.ends.extend(other.ends.iter().map(|end| end + at));
                texts.bytes.append(&mut other.bytes);
            }
            _ => unreachable!("a column has one type"),
        }
    }

    fn bytes(&self) -> usize {
        let present = self.present.as_ref();
        let present = present.map_or(0, |present| heap_bytes(present.capacity()) + 32);
        present
            + match &self.values {
                Values::One(list) => heap_bytes(list.capacity()),
                Values::Two(list) => heap_bytes(list.capacity() * 2),
                Values::Four(list) => heap_bytes(list.capacity() * 4),
                Values::Eight(list) => heap_bytes(list.capacity() * 8),
                Values::Texts(texts) => {
                    heap_bytes(texts.ends.capacity() * 4) + heap_bytes(texts.bytes.capacity())
                }
            }
    }

    fn text_bytes(&self) -> usize {
        match &self.values {
            Values::Texts(texts) => texts.bytes.len(),
            _ => 0,
        }
    }
}

fn insert<T>(list: &mut Vec<T>, place: usize, value: T) {
    make_room(list, 1, STEP);
    list.insert(place, value);
}

/// What is behind a place, in a vector of its own; neither takes more than it needs.
fn cut<T: Copy>(list: &mut Vec<T>, place: usize) -> Vec<T> {
    let behind = list[place..].to_vec();
    list.truncate(place);
    list.shrink_to_fit();
    behind
}

/// A value in as many bits as its type has.
pub(super) fn kept_bits(kind: &Type, cell: Cell<'_>) -> u64 {
    match cell {
        Cell::Bits(bits) if *kind == Type::F32 => {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        }
        Cell::Bits(bits) => bits,
        Cell::Null | Cell::Text(_) => 0,
    }
}

fn text_of(cell: Cell<'_>) -> &[u8] {
    match cell {
        Cell::Text(text) => text,
        Cell::Null | Cell::Bits(_) => b"",
    }
}

/// Rows next to each other.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    numbers: Numbers,
    /// Of each column that is kept: see [`Shape`].
    cells: Box<[Cells]>,
}

/// Which columns leaves keep: all, or all but the key, where that is the row's number.
#[derive(Debug)]
pub(super) struct Shape {
    kinds: Box<[Type]>,
    /// What makes a row's number of the key's bits and back.
    pub(super) key: Option<NumberKey>,
}

/// A key of at most 32 bits is the row's number, in the order of the keys.
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

    /// The key's bits again.
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
        let kinds = schema.columns.iter().map(|column| column.kind.clone());
        Self {
            kinds: kinds.collect(),
            key,
        }
    }

    /// Columns that are not kept come first.
    fn skipped(&self) -> usize {
        self.key.is_some().into()
    }

    pub(super) fn columns(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn kind(&self, column: usize) -> &Type {
        &self.kinds[column]
    }
}

impl Leaf {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            numbers: Numbers::Run { first: 0, count: 0 },
            cells: shape.kinds[shape.skipped()..]
                .iter()
                .map(Cells::new)
                .collect(),
        }
    }

    /// Gives back room that is not needed now.
    pub(super) fn tighten(&mut self) {
        let columns = self.cells.iter_mut();
        columns.for_each(|cells| {
            each_width!(&mut cells.values, list => list.shrink_to_fit(), texts => {
                texts.ends.shrink_to_fit();
                texts.bytes.shrink_to_fit();
            });
        });
    }

    /// An empty one with room for as many rows as it may have.
    pub(super) fn with_room(shape: &Shape) -> Self {
        let mut leaf = Self::new(shape);
        leaf.cells.iter_mut().for_each(Cells::make_full_room);
        leaf
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn find(&self, row: u32) -> Result<usize, usize> {
        self.numbers.find(row)
    }

    pub(super) fn number(&self, place: usize) -> u32 {
        self.numbers.at(place)
    }

    #[inline]
    pub(super) fn get(&self, shape: &Shape, place: usize, column: usize) -> Cell<'_> {
        match shape.key {
            Some(key) if column == 0 => Cell::Bits(key.bits(self.numbers.at(place))),
            Some(_) => self.cells[column - 1].get(&shape.kinds[column], place),
            None => self.cells[column].get(&shape.kinds[column], place),
        }
    }

    /// `row` has a cell for each column, the key's too.
    pub(super) fn insert(&mut self, shape: &Shape, place: usize, number: u32, row: &[Cell<'_>]) {
        let len = self.len();
        self.numbers.insert(place, number);
        let skipped = shape.skipped();
        let cells = self.cells.iter_mut().zip(&shape.kinds[skipped..]);
        for ((cells, kind), cell) in cells.zip(&row[skipped..]) {
            cells.insert(kind, len, place, *cell);
        }
    }

    pub(super) fn set(&mut self, shape: &Shape, place: usize, column: usize, cell: Cell<'_>) {
        let len = self.len();
        let kept = column - shape.skipped();
        self.cells[kept].set(&shape.kinds[column], len, place, cell);
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.numbers.remove(place);
        self.cells.iter_mut().for_each(|cells| cells.remove(place));
    }

    /// The rows from a place on.
    pub(super) fn split_off(&mut self, place: usize) -> Self {
        Self {
            numbers: self.numbers.split_off(place),
            cells: self
                .cells
                .iter_mut()
                .map(|cells| cells.split_off(place))
                .collect(),
        }
    }

    /// Adds the rows of another, which come behind these.
    pub(super) fn append(&mut self, other: Self) {
        let (len, other_len) = (self.len(), other.len());
        self.numbers.append(&other.numbers);
        for (cells, other) in self.cells.iter_mut().zip(other.cells) {
            cells.append(other, len, other_len);
        }
    }

    /// Whether it has to be split.
    pub(super) fn is_over(&self) -> bool {
        self.len() > ROWS_MAX || (self.len() > 1 && self.text_bytes() > TEXTS_BYTES_MAX)
    }

    /// Whether the rows of both may stand in one.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        self.len() + other.len() <= ROWS_MAX * 3 / 4
            && self.text_bytes() + other.text_bytes() <= TEXTS_BYTES_MAX * 3 / 4
    }

    fn text_bytes(&self) -> usize {
        self.cells.iter().map(Cells::text_bytes).sum()
    }

    /// Memory of a column.
    pub(super) fn column_bytes(&self, shape: &Shape, column: usize) -> usize {
        match shape.key {
            Some(_) if column == 0 => self.numbers.bytes(),
            _ => self.cells[column - shape.skipped()].bytes(),
        }
    }

    /// Memory of all of it.
    pub(super) fn bytes(&self) -> usize {
        let cells = self.cells.iter().map(Cells::bytes).sum::<usize>();
        // Itself with its counts, and the list of columns.
        cells
            + self.numbers.bytes()
            + heap_bytes(size_of::<Self>() + 16)
            + heap_bytes(self.cells.len() * size_of::<Cells>())
    }
}
