//! HTTP requests and handshakes under way, by a number that scripts know: the place, and how often it was taken.

use crate::ConnectionId;
use veche_runtime::Request;

/// Bits of a request's number that are its place; all of a number's bits fit into Lua's.
const PLACE_BITS: u32 = 20;

/// Whoever writes a response in parts waits for room after so many bytes.
const WRITTEN_BYTES_MAX: usize = 32 << 10;

/// All of them.
#[derive(Default)]
pub(crate) struct OpenRequests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    under_way: Option<RequestHandle>,
}

struct RequestHandle {
    id: ConnectionId,
    request: Box<Request>,
    /// Bytes of the response that were written since there was room, once it has begun.
    written: Option<usize>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedRequest {
    /// Whose it was.
    pub(crate) id: ConnectionId,
    /// Its response had begun.
    pub(crate) has_begun: bool,
}

/// How a part of a response is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyWrite {
    pub(crate) to: ConnectionId,
    /// Whoever writes has to wait for room.
    pub(crate) is_much: bool,
}

impl OpenRequests {
    /// One begins; its number. `None` if a million are under way.
    pub(crate) fn begin(&mut self, id: ConnectionId, request: Box<Request>) -> Option<u64> {
        let place = self.free.pop().or_else(|| {
            let place = self.slots.len() as u32;
            (place < 1 << PLACE_BITS).then(|| {
                self.slots.push(Slot::default());
                place
            })
        })?;
        let slot = &mut self.slots[place as usize];
        slot.under_way = Some(RequestHandle {
            id,
            request,
            written: None,
        });
        Some(slot.number(place))
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let place = number & ((1 << PLACE_BITS) - 1);
        let slot = self.slots.get_mut(usize::try_from(place).ok()?)?;
        (u64::from(slot.generation) == number >> PLACE_BITS).then_some(slot)
    }

    /// Reads of one; `None` if it is over.
    pub(crate) fn with<R>(&mut self, number: u64, read: impl FnOnce(&Request) -> R) -> Option<R> {
        let under_way = self.slot(number)?.under_way.as_ref()?;
        Some(read(&under_way.request))
    }

    /// Reads of one and of whose it is; `None` if it is over.
    pub(crate) fn about<R>(
        &self,
        number: u64,
        read: impl FnOnce(ConnectionId, &Request) -> R,
    ) -> Option<R> {
        let place = number & ((1 << PLACE_BITS) - 1);
        let slot = self.slots.get(usize::try_from(place).ok()?)?;
        let is_it = u64::from(slot.generation) == number >> PLACE_BITS;
        let under_way = slot.under_way.as_ref().filter(|_| is_it)?;
        Some(read(under_way.id, &under_way.request))
    }

    /// Whose a request is whose response has begun and is not over.
    pub(crate) fn writer(&mut self, number: u64) -> Option<ConnectionId> {
        let under_way = self.slot(number)?.under_way.as_ref()?;
        under_way.written.is_some().then_some(under_way.id)
    }

    /// Its response begins; whose it is. `None` if it is over.
    pub(crate) fn begin_response(&mut self, number: u64) -> Option<ConnectionId> {
        let under_way = self.slot(number)?.under_way.as_mut()?;
        under_way.written = Some(0);
        Some(under_way.id)
    }

    /// So many bytes of its response are written. `None` if it is over.
    pub(crate) fn write(&mut self, number: u64, bytes: usize) -> Option<BodyWrite> {
        let under_way = self.slot(number)?.under_way.as_mut()?;
        let written = under_way.written.as_mut()?;
        *written += bytes;
        let is_much = *written > WRITTEN_BYTES_MAX;
        if is_much {
            *written = 0;
        }
        let to = under_way.id;
        Some(BodyWrite { to, is_much })
    }

    /// Takes one that has not been answered: it is over here. `None` if it was already.
    pub(crate) fn take(&mut self, number: u64) -> Option<(ConnectionId, Box<Request>)> {
        let RequestHandle { id, request, .. } = self.slot(number)?.take()?;
        self.free.push((number & ((1 << PLACE_BITS) - 1)) as u32);
        Some((id, request))
    }

    /// It is over. `None` if it was already.
    pub(crate) fn end(&mut self, number: u64) -> Option<EndedRequest> {
        let ended = self.slot(number)?.end()?;
        self.free.push((number & ((1 << PLACE_BITS) - 1)) as u32);
        Some(ended)
    }

    /// Whoever asked is gone: their requests are over, and their bodies need no memory any more. Their numbers, and
    /// whether the response had begun.
    pub(crate) fn end_all_of(&mut self, id: ConnectionId) -> Vec<(u64, bool)> {
        let mut ended = Vec::new();
        for (place, slot) in self.slots.iter_mut().enumerate() {
            if slot.under_way.as_ref().is_some_and(|one| one.id == id) {
                let place = place as u32;
                let number = slot.number(place);
                ended.extend(
                    slot.end()
                        .map(|EndedRequest { has_begun, .. }| (number, has_begun)),
                );
                self.free.push(place);
            }
        }
        ended
    }
}

impl Slot {
    fn number(&self, place: u32) -> u64 {
        u64::from(self.generation) << PLACE_BITS | u64::from(place)
    }

    fn take(&mut self) -> Option<RequestHandle> {
        let under_way = self.under_way.take()?;
        self.generation = self.generation.wrapping_add(1);
        Some(under_way)
    }

    fn end(&mut self) -> Option<EndedRequest> {
        let RequestHandle { id, written, .. } = self.take()?;
        let has_begun = written.is_some();
        Some(EndedRequest { id, has_begun })
    }
}
