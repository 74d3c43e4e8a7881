//! The row numbers of a leaf, which stores up to about a thousand rows of a table.

use std::sync::Arc;

use super::leaf::ROWS_MAX;
use super::room::{heap_bytes, make_room, release_room};

const STEP: usize = ROWS_MAX / 8;

/// Row numbers in ascending order.
#[derive(Clone, Debug)]
pub(super) enum RowNumbers {
    /// Consecutive numbers, beginning with `first`.
    Run { first: u32, count: u32 },
    /// A list of row numbers, which need not be consecutive.
    List(Arc<Vec<u32>>),
}

impl RowNumbers {
    pub(super) fn find(&self, row: u32) -> Result<usize, usize> {
        match self {
            Self::Run { first, count } => match row.checked_sub(*first) {
                None => Err(0),
                Some(place) if place < *count => Ok(place as usize),
                Some(_) => Err(*count as usize),
            },
            Self::List(list) => list.binary_search(&row),
        }
    }

    pub(super) fn at(&self, place: usize) -> u32 {
        match self {
            Self::Run { first, .. } => first + place as u32,
            Self::List(list) => list[place],
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run { count, .. } => *count as usize,
            Self::List(list) => list.len(),
        }
    }

    pub(super) fn insert(&mut self, place: usize, row: u32) {
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
                *self = Self::List(Arc::new(list));
            }
            Self::List(list) => {
                let list = Arc::make_mut(list);
                make_room(list, 1, STEP);
                list.insert(place, row);
                self.compact();
            }
        }
    }

    pub(super) fn remove(&mut self, place: usize) {
        match self {
            Self::Run { count, .. } if place + 1 == *count as usize => *count -= 1,
            Self::Run { first, count } if place == 0 => (*first, *count) = (*first + 1, *count - 1),
            Self::Run { first, count } => {
                let mut list: Vec<u32> = (*first..*first + *count).collect();
                list.remove(place);
                *self = Self::List(Arc::new(list));
            }
            Self::List(list) => {
                let list = Arc::make_mut(list);
                list.remove(place);
                release_room(list, STEP);
                self.compact();
            }
        }
    }

    /// Converts a list without gaps into a run.
    fn compact(&mut self) {
        if let Self::List(list) = self
            && let [first, .., last] = list[..]
            && (last - first) as usize == list.len() - 1
        {
            let count = list.len() as u32;
            *self = Self::Run { first, count };
        }
    }

    pub(super) fn split_off(&mut self, place: usize) -> Self {
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
                let list = Arc::make_mut(list);
                list.truncate(place);
                list.shrink_to_fit();
                Self::List(Arc::new(behind))
            }
        };
        self.compact();
        behind.compact();
        behind
    }

    pub(super) fn append(&mut self, other: &Self) {
        let mut all: Vec<u32> = (0..self.len()).map(|place| self.at(place)).collect();
        all.extend((0..other.len()).map(|place| other.at(place)));
        *self = Self::List(Arc::new(all));
        self.compact();
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Run { .. } => 0,
            // Counts the content of the list, the header of the list, and the reference counts.
            Self::List(list) => {
                heap_bytes(list.capacity() * 4) + heap_bytes(size_of::<Vec<u32>>() + 16)
            }
        }
    }
}
