//! A list that takes little memory for zero or one element.

use std::slice;

/// A list that takes 16 bytes. A single element is stored inline, several elements on the heap.
#[derive(Debug, Default)]
pub(crate) enum SmallList<T> {
    #[default]
    None,
    One(T),
    /// Boxed, because an inline `Vec` would cost every channel 8 bytes more.
    #[expect(
        clippy::box_collection,
        reason = "the thin pointer keeps the struct small"
    )]
    Many(Box<Vec<T>>),
}

impl<T: Copy> SmallList<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(item) => slice::from_ref(item),
            Self::Many(items) => items,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(item) => slice::from_mut(item),
            Self::Many(items) => items,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Appends an item and returns its index.
    pub(crate) fn push(&mut self, item: T) -> usize {
        match self {
            Self::None => *self = Self::One(item),
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, item])),
            Self::Many(items) => items.push(item),
        }
        self.len() - 1
    }

    /// Removes the item at an index; the last item moves to that index.
    pub(crate) fn swap_remove(&mut self, place: usize) {
        match self {
            Self::None => {}
            Self::One(_) => *self = Self::None,
            Self::Many(items) => {
                items.swap_remove(place);
                self.shrink();
            }
        }
    }

    /// Retains the items accepted by `keep`, in order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            Self::None => {}
            Self::One(item) => {
                if !keep(item) {
                    *self = Self::None;
                }
            }
            Self::Many(items) => {
                items.retain(keep);
                self.shrink();
            }
        }
    }

    /// Frees memory when three quarters of the capacity are unused.
    fn shrink(&mut self) {
        if let Self::Many(items) = self {
            match items[..] {
                [] => *self = Self::None,
                [item] => *self = Self::One(item),
                _ if items.len() < items.capacity() / 4 => items.shrink_to(items.len() * 2),
                _ => {}
            }
        }
    }
}

/// Reserves room for one more entry. Grows by half instead of doubling, because spare capacity dominates the memory of
/// many small entries.
pub(crate) fn reserve_one<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact((entries.len() / 2).max(16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let mut few = SmallList::None;
        assert!(few.is_empty());
        for i in 0..100 {
            assert_eq!(few.push(i), i as usize);
        }
        few.swap_remove(0);
        assert_eq!((few.len(), few.as_slice()[0]), (99, 99));
        few.retain(|i| i % 2 == 0);
        assert_eq!(few.as_slice()[..3], [2, 4, 6]);
        few.retain(|i| *i == 6);
        assert!(matches!(few, SmallList::One(6)));
        few.swap_remove(0);
        assert!(few.is_empty());
    }

    #[test]
    fn memory_is_returned_below_a_quarter_of_capacity() {
        let capacity = |few: &SmallList<u32>| match few {
            SmallList::Many(items) => items.capacity(),
            _ => 0,
        };
        let mut few = SmallList::None;
        for item in 0..64 {
            few.push(item);
        }
        assert_eq!(capacity(&few), 64);
        while few.len() > 16 {
            few.swap_remove(0);
            assert_eq!(capacity(&few), 64);
        }
        few.swap_remove(0);
        assert_eq!((few.len(), capacity(&few)), (15, 30));
        few.retain(|_| false);
        assert!(few.is_empty());
        few.retain(|_| true);
        assert!(few.is_empty());
    }

    #[test]
    fn is_small() {
        assert_eq!(size_of::<SmallList<u32>>(), 16);
        assert_eq!(size_of::<SmallList<(u16, u32)>>(), 16);
    }
}
