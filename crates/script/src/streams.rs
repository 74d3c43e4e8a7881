//! Streamed responses that a script reads in parts, by number.
//!
//! A stream belongs to the coroutine whose call returned it, and is closed when that coroutine ends.

use veche_calls::Handle;

use crate::raw::Reference;

/// The number of low bits of a stream's number that are its index. The complete number is small enough to be exact in Lua.
const PLACE_BITS: u32 = 20;

/// The streams of one VM.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    open: Option<(Reference, Handle)>,
}

impl StreamTable {
    /// Registers a stream for a coroutine and returns its number; `None` if a million are open.
    pub(crate) fn open(&mut self, owner: Reference, handle: Handle) -> Option<u64> {
        let place = self.free.pop().or_else(|| {
            let place = self.slots.len() as u32;
            (place < 1 << PLACE_BITS).then(|| {
                self.slots.push(Slot::default());
                place
            })
        })?;
        let slot = &mut self.slots[place as usize];
        slot.open = Some((owner, handle));
        Some(u64::from(slot.generation) << PLACE_BITS | u64::from(place))
    }

    /// Returns an open stream.
    pub(crate) fn find(&self, number: u64) -> Option<Handle> {
        let slot = self.slots.get(place(number))?;
        let (_, handle) = slot.open.as_ref()?;
        (u64::from(slot.generation) == number >> PLACE_BITS).then(|| handle.clone())
    }

    pub(crate) fn close(&mut self, number: u64) {
        if self.find(number).is_some() {
            self.clear(place(number));
        }
    }

    /// Closes the streams of a coroutine.
    pub(crate) fn close_of(&mut self, owner: Reference) {
        if self.free.len() == self.slots.len() {
            return;
        }
        for place in 0..self.slots.len() {
            let open = &self.slots[place].open;
            if open.as_ref().is_some_and(|(of, _)| *of == owner) {
                self.clear(place);
            }
        }
    }

    pub(crate) fn close_all(&mut self) {
        *self = Self::default();
    }

    fn clear(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        slot.open = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(place as u32);
    }
}

fn place(number: u64) -> usize {
    (number & ((1 << PLACE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_of_one_stream_only() {
        let mut streams = StreamTable::default();
        let (ann, bob) = (Reference::from_number(1), Reference::from_number(2));
        let handle = || Handle::new(());
        let first = streams.open(ann, handle()).expect("room");
        let second = streams.open(bob, handle()).expect("room");
        assert!(streams.find(first).is_some() && streams.find(second).is_some());
        streams.close_of(ann);
        assert!(streams.find(first).is_none() && streams.find(second).is_some());
        let third = streams.open(ann, handle()).expect("room");
        assert_ne!(first, third);
        assert!(streams.find(first).is_none() && streams.find(third).is_some());
        streams.close(first);
        assert!(streams.find(third).is_some());
        streams.close(third);
        streams.close(third);
        streams.close(u64::MAX);
        assert!(streams.find(third).is_none());
        streams.close_all();
        assert!(streams.find(second).is_none());
    }
}
