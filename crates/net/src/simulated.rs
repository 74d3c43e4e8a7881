//! A network that is not there: the other sides of all transports are the caller's, and so is the clock.
//!
//! It keeps every promise of [`Driver`], so whatever runs on a driver runs on it unchanged, as fast as the processor
//! allows and as often as wanted in the same way: where the order of events is open, because several transports have
//! something or several timers are due in the same millisecond, a seed decides. Nothing here waits. When nothing is
//! left to tell, [`idle_until_ms`](Simulated::rests_until_ms) says so, and the caller moves the clock or writes
//! something.
//!
//! How much a transport takes of what it is sent can be [limited](Simulated::set_room), so that some of it stays here.
//!
//! A *far side* is whoever dialed, or whom [`accept_dial`](Simulated::take_up) lets the driver reach: its bytes go in by
//! [`write`](Simulated::write), what it is sent comes out by [`read`](Simulated::read), also after the transport's end.

mod remote;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use fastrand::Rng;

use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, Event, ListenerId, Options, Waker,
};

use crate::queue::SendQueue;
use remote::RemoteEnd;
pub use remote::RemoteState;

/// How often of four times a transport that has something is heard in a turn: the others wait, so that each may get
/// ahead of each.
const SERVED_OF_FOUR: u8 = 3;

/// Turns in a row in which one that has something may be passed over: as with other drivers, each has its turn however much
/// others send.
const SKIPPED_MAX: u8 = 4;

/// A [`Driver`] without a system below it.
#[derive(Debug)]
pub struct Simulated {
    options: Options,
    /// Decides where the order is open; without it ids do.
    rng: Option<Rng>,
    waker: Waker,
    now_ms: u64,
    /// By listener: whether it accepts.
    listeners: Vec<bool>,
    /// Transports by index; `None` is free.
    local_ends: Vec<Option<LocalEnd>>,
    free: Vec<u32>,
    last_generation: u32,
    remote_ends: HashMap<ConnectionId, RemoteEnd>,
    /// Not accepted yet.
    dialed: VecDeque<(ConnectionId, ListenerId, SocketAddr)>,
    /// The driver connects, and nobody has been told.
    dialing: Vec<(ConnectionId, SocketAddr)>,
    /// Taken up, which the driver has not told.
    accepted_dials: Vec<ConnectionId>,
    /// Set timers by deadline; the second number is the seed's, the third the transport's index.
    timers: BTreeMap<(u64, u64, u32), ConnectionId>,
    idle_until_ms: Option<u64>,
    /// Something was told in the last turn.
    has_delivered: bool,
}

/// The driver's side of a transport.
#[derive(Debug)]
struct LocalEnd {
    id: ConnectionId,
    /// We have dialed, and nobody has taken it up.
    is_connecting: bool,
    is_paused: bool,
    /// Turns in a row in which it was not heard.
    skipped: u8,
    timer: Option<(u64, u64)>,
    /// Sent and not taken by the far side, in order.
    unsent: SendQueue,
    was_high: bool,
    is_shut_down: bool,
    has_ended: bool,
    /// To be told as the last event.
    closing: Option<CloseReason>,
}

impl Simulated {
    /// A network without anybody in it, at `now_ms`; equal seeds make equal choices.
    ///
    /// # Errors
    /// No descriptor for the [`Waker`].
    pub fn new(options: Options, seed: u64, now_ms: u64) -> io::Result<Self> {
        let rng = Some(Rng::with_seed(seed));
        let network = Self::without_choice(options, now_ms)?;
        Ok(Self { rng, ..network })
    }

    /// One that chooses nothing: every transport is heard in every turn, and where the order is open it is that of their
    /// indices.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn without_choice(options: Options, now_ms: u64) -> io::Result<Self> {
        Ok(Self {
            options,
            rng: None,
            waker: Waker::new()?,
            now_ms,
            listeners: Vec::new(),
            local_ends: Vec::new(),
            free: Vec::new(),
            last_generation: 0,
            remote_ends: HashMap::new(),
            dialed: VecDeque::new(),
            dialing: Vec::new(),
            accepted_dials: Vec::new(),
            timers: BTreeMap::new(),
            idle_until_ms: None,
            has_delivered: false,
        })
    }

    /// Adds a listener that nobody but [`dial`](Self::dial) reaches; ids count as those of [`Driver::listen`].
    pub fn add_listener(&mut self) -> ListenerId {
        self.listeners.push(true);
        ListenerId(self.listeners.len() as u32 - 1)
    }

    /// Opens a connection to a listener, from that address. It is accepted in one of the next turns.
    pub fn dial(&mut self, listener: ListenerId, from: SocketAddr) -> ConnectionId {
        let id = self.add();
        self.dialed.push_back((id, listener, from));
        id
    }

    fn add(&mut self) -> ConnectionId {
        self.last_generation += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.local_ends.push(None);
            self.local_ends.len() as u32 - 1
        });
        let id = ConnectionId {
            index,
            generation: self.last_generation,
        };
        self.local_ends[index as usize] = Some(LocalEnd::new(id));
        self.remote_ends.insert(id, RemoteEnd::default());
        self.stir();
        id
    }

    /// Whom the driver has dialed since the last call, in order: each is to be taken up or refused, or waits.
    pub fn take_dials(&mut self) -> Vec<(ConnectionId, SocketAddr)> {
        std::mem::take(&mut self.dialing)
    }

    /// Somebody is there: it is connected in the next turn.
    pub fn accept_dial(&mut self, id: ConnectionId) {
        self.stir();
        if self.live(id).is_some_and(|near| near.is_connecting) {
            self.accepted_dials.push(id);
        }
    }

    /// Nobody is there.
    pub fn refuse_dial(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.closing = Some(CloseReason::Refused);
        }
    }

    /// The far side writes: the bytes arrive as they are here, in one piece, after what it wrote before.
    pub fn write(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.write(bytes);
        }
    }

    /// The far side sends FIN behind what it wrote.
    pub fn finish(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.finish();
        }
    }

    /// The far side is gone without a word; what it wrote and nobody received is lost.
    pub fn reset(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.abandon();
        }
        if let Some(near) = self.local_end(id) {
            near.closing.get_or_insert(CloseReason::Reset);
        }
    }

    /// Takes what the far side was sent, appended to `into`; what its end of the connection is like.
    pub fn read(&mut self, id: ConnectionId, into: &mut Vec<u8>) -> RemoteState {
        self.remote_ends
            .get_mut(&id)
            .map_or(RemoteState::Closed, |far| far.read(into))
    }

    /// Whether the far side reads what it is sent; one that does not lets it pile up here.
    pub fn set_reading(&mut self, id: ConnectionId, reads: bool) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.reads = reads;
        }
    }

    /// The transport takes no more than so many bytes of what it is sent, until [`make_room`](Self::make_room). Without
    /// this call it takes all.
    pub fn set_room(&mut self, id: ConnectionId, bytes: usize) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.room = bytes;
        }
    }

    /// The transport takes so many bytes more.
    pub fn make_room(&mut self, id: ConnectionId, bytes: usize) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.room = far.room.saturating_add(bytes);
        }
    }

    /// The far side is of no interest any more; before its end it is a [`reset`](Self::reset).
    pub fn forget(&mut self, id: ConnectionId) {
        self.reset(id);
        self.remote_ends.remove(&id);
    }

    /// Moves the clock; never back.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.stir();
    }

    /// When there is something to do, if time alone passes: `u64::MAX` for never, `None` while there is something now.
    #[must_use]
    pub fn idle_until_ms(&self) -> Option<u64> {
        self.idle_until_ms
    }

    /// Whether the last turn had anything to tell.
    #[must_use]
    pub fn has_delivered(&self) -> bool {
        self.has_delivered
    }

    fn stir(&mut self) {
        self.idle_until_ms = None;
    }

    fn local_end(&mut self, id: ConnectionId) -> Option<&mut LocalEnd> {
        self.local_ends
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|near| near.id == id)
    }

    /// One that is not ended by us or by the far side.
    fn live(&mut self, id: ConnectionId) -> Option<&mut LocalEnd> {
        self.local_end(id).filter(|near| near.closing.is_none())
    }

    /// Transports in the order in which they are heard.
    fn shuffled(&mut self) -> Vec<ConnectionId> {
        let near = self.local_ends.iter().flatten();
        let mut ids: Vec<ConnectionId> = near.map(|near| near.id).collect();
        if let Some(rng) = &mut self.rng {
            rng.shuffle(&mut ids);
        }
        ids
    }

    /// What there is room for leaves; ids of which something left, with the buffers that are done with.
    fn drain_unsent(&mut self) -> Vec<(ConnectionId, Vec<Buffer>, bool)> {
        let low = self.options.low_water_bytes;
        let mut left = Vec::new();
        for near in self.local_ends.iter_mut().flatten() {
            let Some(far) = self.remote_ends.get_mut(&near.id) else {
                continue;
            };
            if near.unsent.is_empty() || far.room() == 0 || near.closing.is_some() {
                continue;
            }
            let mut buffers = Vec::new();
            // One call of a system takes a limited number of pieces.
            while far.room() > 0 && !near.unsent.is_empty() {
                let taken: usize = near.unsent.slices().map(|piece| far.receive(piece)).sum();
                near.unsent.advance(taken, |buffer| buffers.push(buffer));
            }
            let drained = near.was_high && near.unsent.unsent() <= low;
            near.was_high &= !drained;
            if near.is_shut_down && near.unsent.is_empty() {
                far.end();
            }
            left.push((near.id, buffers, drained));
        }
        left
    }

    /// What a far side has for us next.
    fn arrival(&mut self, id: ConnectionId) -> Option<Arrival> {
        if self.dialed.iter().any(|(dialed, ..)| *dialed == id) {
            return None;
        }
        let near = self.local_ends.get_mut(id.index as usize)?.as_mut()?;
        near.skipped = 0;
        if near.closing.is_some() {
            return Some(Arrival::End);
        }
        let far = self.remote_ends.get_mut(&id)?;
        if near.is_connecting || near.is_paused || near.has_ended {
            return None;
        }
        match far.take(self.options.receive_bytes) {
            Some(bytes) => Some(Arrival::Bytes(bytes)),
            None if far.is_finished() => {
                near.has_ended = true;
                Some(Arrival::Fin)
            }
            None => None,
        }
    }

    /// Whether one that is to wait has not waited long enough.
    fn is_skipped(&mut self, id: ConnectionId) -> bool {
        let Some(near) = self.local_end(id) else {
            return true;
        };
        let is_passed_over = near.skipped < SKIPPED_MAX;
        near.skipped = if is_passed_over { near.skipped + 1 } else { 0 };
        is_passed_over
    }

    fn has_arrival(&self, near: &LocalEnd) -> bool {
        if self.dialed.iter().any(|(dialed, ..)| *dialed == near.id) {
            return false;
        }
        let far = self.remote_ends.get(&near.id);
        near.closing.is_some()
            || (!near.is_connecting
                && !near.is_paused
                && !near.has_ended
                && far.is_some_and(RemoteEnd::has_something))
    }

    /// Lets go of a transport whose end is told.
    fn end(&mut self, id: ConnectionId) -> CloseReason {
        self.clear_timer(id);
        let near = self.local_ends[id.index as usize].take();
        self.free.push(id.index);
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.close();
        }
        near.and_then(|near| near.closing)
            .unwrap_or(CloseReason::Requested)
    }

    /// Timers that are due.
    fn due(&mut self) -> Vec<ConnectionId> {
        let later = self.timers.split_off(&(self.now_ms + 1, 0, 0));
        let due = std::mem::replace(&mut self.timers, later);
        let ids: Vec<ConnectionId> = due.into_values().collect();
        for id in &ids {
            if let Some(near) = self.local_end(*id) {
                near.timer = None;
            }
        }
        ids
    }
}

enum Arrival {
    Bytes(Vec<u8>),
    Fin,
    End,
}

impl LocalEnd {
    fn new(id: ConnectionId) -> Self {
        Self {
            id,
            is_connecting: false,
            is_paused: false,
            skipped: 0,
            timer: None,
            unsent: SendQueue::default(),
            was_high: false,
            is_shut_down: false,
            has_ended: false,
            closing: None,
        }
    }
}

impl Driver for Simulated {
    /// Nobody comes in by a socket here: it is closed, and the listener is one of [`Simulated::add_listener`].
    fn listen(&mut self, _: OwnedFd) -> io::Result<ListenerId> {
        Ok(self.add_listener())
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.listeners[listener.0 as usize] = false;
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.listeners[listener.0 as usize] = true;
        self.stir();
    }

    /// [`Simulated::take_dials`] tells of it.
    fn connect_from(&mut self, to: SocketAddr, _: Option<IpAddr>) -> io::Result<ConnectionId> {
        let id = self.add();
        if let Some(near) = self.local_end(id) {
            near.is_connecting = true;
        }
        self.dialing.push((id, to));
        Ok(id)
    }

    fn send(&mut self, id: ConnectionId, buffer: Buffer, _: bool) -> Option<Buffer> {
        let low = self.options.low_water_bytes;
        self.stir();
        let near = self
            .local_ends
            .get_mut(id.index as usize)
            .and_then(Option::as_mut)
            .filter(|near| near.id == id && near.closing.is_none() && !near.is_shut_down);
        let (Some(near), Some(far)) = (near, self.remote_ends.get_mut(&id)) else {
            return Some(buffer);
        };
        let taken = match near.unsent.is_empty() {
            true => far.receive(buffer.as_slice()),
            false => 0,
        };
        if taken == buffer.len() {
            return Some(buffer);
        }
        near.unsent.push(buffer);
        near.unsent.advance(taken, drop);
        near.was_high |= near.unsent.unsent() > low;
        None
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        let near = self
            .local_ends
            .get(id.index as usize)
            .and_then(Option::as_ref);
        near.filter(|near| near.id == id && near.closing.is_none())
            .map_or(0, |near| near.unsent.unsent())
    }

    fn pause(&mut self, id: ConnectionId) {
        if let Some(near) = self.live(id) {
            near.is_paused = true;
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.is_paused = false;
        }
    }

    fn shutdown(&mut self, id: ConnectionId) {
        let Some(near) = self.live(id) else { return };
        near.is_shut_down = true;
        if near.unsent.is_empty()
            && let Some(far) = self.remote_ends.get_mut(&id)
        {
            far.end();
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.closing = Some(CloseReason::Requested);
            near.unsent = SendQueue::default();
        }
    }

    fn detach(&mut self, _id: ConnectionId) -> Option<Detached> {
        None
    }

    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        self.clear_timer(id);
        let tie = self.rng.as_mut().map_or(0, |rng| rng.u64(..));
        if let Some(near) = self.live(id) {
            near.timer = Some((deadline_ms, tie));
            self.timers.insert((deadline_ms, tie, id.index), id);
        }
    }

    fn clear_timer(&mut self, id: ConnectionId) {
        let timer = self.local_end(id).and_then(|near| near.timer.take());
        if let Some((deadline_ms, tie)) = timer {
            self.timers.remove(&(deadline_ms, tie, id.index));
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) -> io::Result<()> {
        self.stir();
        let mut told = false;
        for _ in 0..self.dialed.len().min(self.options.accepts_max) {
            let Some((id, listener, peer)) = self.dialed.pop_front() else {
                break;
            };
            if self.listeners[listener.0 as usize] {
                told = true;
                sink(self, Event::Accepted { id, listener, peer });
            } else {
                self.dialed.push_back((id, listener, peer));
            }
        }
        for id in std::mem::take(&mut self.accepted_dials) {
            if let Some(near) = self.live(id)
                && std::mem::take(&mut near.is_connecting)
            {
                told = true;
                sink(self, Event::Connected { id });
            }
        }
        for (id, buffers, drained) in self.drain_unsent() {
            told = true;
            if buffers.is_empty() && !drained {
                sink(self, Event::Progressed { id });
            }
            for buffer in buffers {
                if self.live(id).is_some() {
                    sink(self, Event::Sent { id, buffer });
                }
            }
            if drained && self.live(id).is_some() {
                sink(self, Event::Drained { id });
            }
        }
        for id in self.due() {
            if self.live(id).is_some() {
                told = true;
                sink(self, Event::Timer { id });
            }
        }
        for (place, id) in self.shuffled().into_iter().enumerate() {
            let rng = self.rng.as_mut();
            let waits = rng.is_some_and(|rng| rng.u8(0..4) >= SERVED_OF_FOUR);
            if waits && place > 0 && self.is_skipped(id) {
                continue;
            }
            match self.arrival(id) {
                Some(Arrival::Bytes(mut bytes)) => {
                    told = true;
                    let bytes = &mut bytes[..];
                    sink(self, Event::Received { id, bytes });
                }
                Some(Arrival::Fin) => {
                    told = true;
                    sink(self, Event::Ended { id });
                }
                Some(Arrival::End) => {
                    told = true;
                    let reason = self.end(id);
                    sink(self, Event::Closed { id, reason });
                }
                None => {}
            }
        }
        self.has_delivered = told;
        let waiting = self
            .local_ends
            .iter()
            .flatten()
            .any(|near| self.has_arrival(near));
        if !told && !waiting && timeout != Some(Duration::ZERO) {
            let timer_ms = self.timers.first_key_value().map(|(key, _)| key.0);
            let wake_ms = timeout.map(|timeout| {
                let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                self.now_ms.saturating_add(ms.max(1))
            });
            let until_ms = timer_ms.into_iter().chain(wake_ms).min();
            // A timer that was set to now meanwhile is not over with.
            self.idle_until_ms = Some(until_ms.unwrap_or(u64::MAX)).filter(|ms| *ms > self.now_ms);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
