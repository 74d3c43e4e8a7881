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

    fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).map(|place| self.at(place))
    }

    pub(super) fn insert(&mut self, place: usize, row: u32) {
        match self {
            Self::Run { first, count } if *count == 0 => (*first, *count) = (row, 1),
            Self::Run { first, count } if u64::from(*first) + u64::from(*count) == row.into() => {
                *count += 1;
            }
            Self::Run { first, count } if first.checked_sub(1) == Some(row) => {
                (*first, *count) = (row, *count + 1);
            }
            Self::Run { count, .. } => {
                let mut list = Vec::with_capacity((*count as usize + 1).next_multiple_of(STEP));
                list.extend(self.iter());
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
            Self::Run { .. } => {
                let mut list: Vec<u32> = self.iter().collect();
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
                // The rest may be empty, behind the highest number.
                let (from, rest) = (first.wrapping_add(place as u32), *count - place as u32);
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
        let mut all: Vec<u32> = self.iter().collect();
        all.extend(other.iter());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(rows: &[u32]) -> RowNumbers {
        let mut numbers = RowNumbers::Run { first: 0, count: 0 };
        for row in rows {
            match numbers.find(*row) {
                Err(place) => numbers.insert(place, *row),
                Ok(_) => panic!("{row} is there"),
            }
        }
        numbers
    }

    fn all(numbers: &RowNumbers) -> Vec<u32> {
        numbers.iter().collect()
    }

    #[test]
    fn the_highest_number_does_not_precede_the_lowest() {
        const MAX: u32 = u32::MAX;
        assert_eq!(all(&numbers(&[0, MAX])), [0, MAX]);
        assert_eq!(all(&numbers(&[MAX, 0])), [0, MAX]);
        assert_eq!(all(&numbers(&[0, 1, MAX])), [0, 1, MAX]);
    }

    #[test]
    fn a_run_may_end_with_the_highest_number() {
        const MAX: u32 = u32::MAX;
        assert_eq!(all(&numbers(&[MAX - 1, MAX, 5])), [5, MAX - 1, MAX]);
        let mut with_gap = numbers(&[MAX - 2, MAX - 1, MAX]);
        with_gap.remove(1);
        assert_eq!(all(&with_gap), [MAX - 2, MAX]);
        let mut whole = numbers(&[MAX - 1, MAX]);
        assert_eq!(whole.split_off(2).len(), 0);
        let behind = whole.split_off(1);
        assert_eq!((all(&whole), all(&behind)), (vec![MAX - 1], vec![MAX]));
    }
}
