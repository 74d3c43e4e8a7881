//! Requests that wait for the engine's answers, by ticket.

use std::collections::VecDeque;

/// A queue of entries with consecutive tickets. Entries are removed roughly in the order of their tickets, so a removal
/// is usually near the front and cheap.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// The ticket of the first element of `places`.
    first: u64,
    places: VecDeque<Option<T>>,
    count: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            first: 0,
            places: VecDeque::new(),
            count: 0,
        }
    }
}

impl<T> Waiting<T> {
    /// Returns the ticket that the next entry gets.
    pub(super) fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    pub(super) fn push(&mut self, entry: T) {
        self.places.push_back(Some(entry));
        self.count += 1;
    }

    pub(super) fn get_mut(&mut self, ticket: u64) -> Option<&mut T> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        self.places.get_mut(place)?.as_mut()
    }

    pub(super) fn take(&mut self, ticket: u64) -> Option<T> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let entry = self.places.get_mut(place)?.take()?;
        self.count -= 1;
        self.trim();
        Some(entry)
    }

    /// Removes and returns the oldest entry if `fits` accepts it.
    pub(super) fn take_first_if(&mut self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let first = self.places.front()?.as_ref()?;
        let ticket = self.first;
        fits(first).then(|| self.take(ticket)).flatten()
    }

    /// Iterates over the entries with their tickets, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let tickets = self.first..;
        let places = tickets.zip(&self.places);
        places.filter_map(|(ticket, place)| Some((ticket, place.as_ref()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_in_any_sequence() {
        let mut waiting = Waiting::default();
        for name in ["a", "b", "c"] {
            waiting.push(name);
        }
        assert_eq!(waiting.next(), 3);
        assert_eq!(waiting.take(1), Some("b"));
        assert_eq!(waiting.take(1), None);
        assert_eq!(waiting.take(7), None);
        assert_eq!(waiting.take_first_if(|one| *one == "c"), None);
        assert_eq!(waiting.take_first_if(|one| *one == "a"), Some("a"));
        // The entry with ticket 1 is removed already.
        assert_eq!(waiting.iter().collect::<Vec<_>>(), [(2, &"c")]);
        assert_eq!(waiting.take(2), Some("c"));
        assert_eq!((waiting.len(), waiting.next()), (0, 3));
        waiting.push("d");
        assert_eq!(waiting.take(3), Some("d"));
    }
}
