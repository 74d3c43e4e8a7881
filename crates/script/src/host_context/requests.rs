//! HTTP requests and handshakes in progress. Scripts refer to each by a number, which consists of an index and the
//! number of times that the index was reused.

use crate::ConnectionId;
use veche_runtime::Request;

/// The number of low bits of a request's number that contain its index. The complete number is
/// small enough to be exact in Lua.
const PLACE_BITS: u32 = 20;

/// Bytes written to a streamed response after which the writer waits for room.
const WRITTEN_BYTES_MAX: usize = 32 << 10;

/// All requests in progress.
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
    /// Bytes of a started response written since the last wait for room.
    written: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedRequest {
    /// The connection of the request.
    pub(crate) id: ConnectionId,
    /// Whether the response had started.
    pub(crate) has_begun: bool,
}

/// Where a part of a response is sent, and whether the script has to wait afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyWrite {
    pub(crate) to: ConnectionId,
    /// Whether the script has to wait until the outbox has room.
    pub(crate) must_wait: bool,
}

impl OpenRequests {
    /// Adds a request and returns its number; `None` if a million are in progress.
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

    /// Reads a request; `None` if it is completed.
    pub(crate) fn with<R>(&mut self, number: u64, read: impl FnOnce(&Request) -> R) -> Option<R> {
        let under_way = self.slot(number)?.under_way.as_ref()?;
        Some(read(&under_way.request))
    }

    /// Reads a request and its connection; `None` if it is completed.
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

    /// Returns the connection of a request whose response has started and not ended.
    pub(crate) fn writer(&mut self, number: u64) -> Option<ConnectionId> {
        let under_way = self.slot(number)?.under_way.as_ref()?;
        under_way.written.is_some().then_some(under_way.id)
    }

    /// Starts the response and returns its connection; `None` if the request is completed.
    pub(crate) fn begin_response(&mut self, number: u64) -> Option<ConnectionId> {
        let under_way = self.slot(number)?.under_way.as_mut()?;
        under_way.written = Some(0);
        Some(under_way.id)
    }

    /// Counts bytes of a streamed response; `None` if the request is completed.
    pub(crate) fn write(&mut self, number: u64, bytes: usize) -> Option<BodyWrite> {
        let under_way = self.slot(number)?.under_way.as_mut()?;
        let written = under_way.written.as_mut()?;
        *written += bytes;
        let must_wait = *written > WRITTEN_BYTES_MAX;
        if must_wait {
            *written = 0;
        }
        let to = under_way.id;
        Some(BodyWrite { to, must_wait })
    }

    /// Completes an unanswered request and returns it; `None` if it is already completed.
    pub(crate) fn take(&mut self, number: u64) -> Option<(ConnectionId, Box<Request>)> {
        let RequestHandle { id, request, .. } = self.slot(number)?.take()?;
        self.free.push((number & ((1 << PLACE_BITS) - 1)) as u32);
        Some((id, request))
    }

    /// Completes a request; `None` if it is already completed.
    pub(crate) fn end(&mut self, number: u64) -> Option<EndedRequest> {
        let ended = self.slot(number)?.end()?;
        self.free.push((number & ((1 << PLACE_BITS) - 1)) as u32);
        Some(ended)
    }

    /// Completes the requests of a closed connection and frees their bodies. Returns for each request its number and
    /// whether its response had started.
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
