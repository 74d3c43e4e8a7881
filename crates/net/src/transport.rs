//! The table of transports. Each transport has a compact slot. When a slot is reused its generation
//! changes, so that the id of the earlier transport in it is no longer valid.
//!
//! The slot contains what every transport needs. The send queue, which only slow or busy transports
//! need, is boxed, so an idle connection costs only the slot.

use std::os::fd::OwnedFd;

use crate::ConnectionId;
use crate::queue::SendQueue;
use crate::timer::{NIL, TimerNode, TimerNodes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportState {
    /// The slot is free and linked into the free list by `timer.next`.
    Free,
    /// The kernel is connecting.
    Connecting,
    Open,
    /// The socket is closed, and `Closed` is still to be delivered.
    Closed,
}

/// Whether our side has ended its direction of the connection with a FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    None,
    /// A FIN was requested, and is sent when the queue is empty.
    Wanted,
    Sent,
}

#[derive(Debug)]
pub(crate) struct Transport {
    /// The send queue; present only while there is something to send.
    pub(crate) queue: Option<Box<SendQueue>>,
    pub(crate) timer: TimerNode,
    pub(crate) socket: Option<OwnedFd>,
    generation: u32,
    pub(crate) state: TransportState,
    pub(crate) fin: Fin,
    /// The kinds of I/O that are registered with the kernel, as bits that each kind of driver
    /// defines.
    pub(crate) interest: u8,
    pub(crate) paused: bool,
    /// Whether the peer has sent FIN.
    pub(crate) ended: bool,
    /// Whether more than the low-water mark is queued, so that `Drained` must be reported later.
    pub(crate) is_above_low_water: bool,
}

// The slot is nearly all the memory that an idle transport uses in this process. The design limit is
// 48 bytes. The assertion uses the present size, so that any growth is noticed.
const _: () = assert!(size_of::<Transport>() <= 40);

#[derive(Debug)]
pub(crate) struct Transports {
    slots: Vec<Transport>,
    /// Head of the list of free slots.
    free: u32,
}

impl Transports {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NIL,
        }
    }

    /// Adds a socket and returns its id.
    pub(crate) fn add(&mut self, socket: OwnedFd, state: TransportState) -> ConnectionId {
        if self.free == NIL {
            let index = self.slots.len() as u32;
            // The assertion always holds, since Linux limits the number of descriptors to 2^30.
            assert!(
                index < 1 << 31,
                "too many connections: the timer wheel needs the top bit of their index"
            );
            self.slots.push(Transport {
                queue: None,
                timer: TimerNode::UNSET,
                socket: None,
                generation: 1,
                state: TransportState::Free,
                fin: Fin::None,
                interest: 0,
                paused: false,
                ended: false,
                is_above_low_water: false,
            });
            self.free = index;
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        debug_assert!(
            slot.state == TransportState::Free && !slot.timer.is_set() && slot.queue.is_none()
        );
        self.free = slot.timer.next;
        slot.timer = TimerNode::UNSET;
        slot.socket = Some(socket);
        slot.state = state;
        slot.fin = Fin::None;
        slot.interest = 0;
        slot.paused = false;
        slot.ended = false;
        slot.is_above_low_water = false;
        ConnectionId {
            index,
            generation: slot.generation,
        }
    }

    /// Frees the slot of a closed transport, which makes its id stale.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let slot = &mut self.slots[id.index as usize];
        debug_assert!(slot.generation == id.generation && slot.state == TransportState::Closed);
        slot.state = TransportState::Free;
        // Generation 0 is skipped, since the epoll tags of listeners and of the waker use it.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.timer.next = self.free;
        self.free = id.index;
    }

    /// Returns the transport of `id`; `None` if the id is stale or the transport has ended.
    #[inline]
    pub(crate) fn live(&mut self, id: ConnectionId) -> Option<&mut Transport> {
        self.slots.get_mut(id.index as usize).filter(|slot| {
            slot.generation == id.generation
                && matches!(
                    slot.state,
                    TransportState::Open | TransportState::Connecting
                )
        })
    }

    /// Returns a transport like [`live`](Self::live), for reading only.
    #[inline]
    pub(crate) fn peek(&self, id: ConnectionId) -> Option<&Transport> {
        self.slots.get(id.index as usize).filter(|slot| {
            slot.generation == id.generation
                && matches!(
                    slot.state,
                    TransportState::Open | TransportState::Connecting
                )
        })
    }

    /// Returns the content of a slot, live or not.
    pub(crate) fn slot(&mut self, index: u32) -> &mut Transport {
        &mut self.slots[index as usize]
    }

    /// Returns the id of the live transport in a slot.
    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: self.slots[index as usize].generation,
        }
    }
}

impl TimerNodes for Transports {
    #[inline]
    fn node(&mut self, index: u32) -> &mut TimerNode {
        &mut self.slots[index as usize].timer
    }
}
