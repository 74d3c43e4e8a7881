//! The connections of a worker. One entry holds the whole state of a connection, at the index in its id.

use std::collections::VecDeque;

use veche_frontends::Connection;
use veche_types::ConnectionId;

use crate::worker::TransportCommand;

/// One connection. `T` is the driver's own state of the connection, such as TLS.
pub(crate) struct ConnectionEntry<T> {
    pub(crate) connection: Connection,
    pub(crate) transport: T,
    generation: u32,
    /// The time at which the transport's timer fires, in monotonic milliseconds; `u64::MAX` if the timer is not set.
    pub(crate) armed_ms: u64,
    pub(crate) stall: WriteStall,
    /// Whether receiving on the transport is paused.
    pub(crate) is_paused: bool,
    /// Whether the driver pauses the connection's input, even if the connection itself has no reason to pause.
    pub(crate) is_held: bool,
}

impl<T> ConnectionEntry<T> {
    /// Updates the transport after the connection has changed: sets the transport's timer to an earlier deadline, and
    /// pauses or resumes the transport.
    #[inline]
    pub(crate) fn update_timer(
        &mut self,
        id: ConnectionId,
        commands: &mut VecDeque<TransportCommand>,
    ) {
        self.arm(id, self.connection.deadline_ms(), commands);
        let is_blocked = self.is_held || self.connection.wait_reason().is_some();
        if is_blocked != self.is_paused {
            self.is_paused = is_blocked;
            commands.push_back(match is_blocked {
                true => TransportCommand::Pause(id),
                false => TransportCommand::Resume(id),
            });
        }
    }

    /// Sets the transport's timer to the deadline, unless the timer is set to an earlier time.
    #[inline]
    pub(crate) fn arm(
        &mut self,
        id: ConnectionId,
        deadline_ms: u64,
        commands: &mut VecDeque<TransportCommand>,
    ) {
        if deadline_ms < self.armed_ms {
            self.armed_ms = deadline_ms;
            commands.push_back(TransportCommand::SetTimer(id, deadline_ms));
        }
    }
}

/// Tracks the time for which a connection has had unsent bytes but none were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteStall {
    /// The time of the last progress in monotonic milliseconds; 0 if no bytes are unsent.
    since_ms: u64,
}

impl WriteStall {
    /// Records an incomplete send. Returns whether no bytes were unsent before it.
    pub(crate) fn begin(&mut self, now_ms: u64) -> bool {
        let is_first = self.since_ms == 0;
        if is_first {
            self.since_ms = now_ms.max(1);
        }
        is_first
    }

    /// Records that bytes were sent and `unsent` bytes are left.
    pub(crate) fn progress(&mut self, unsent: usize, now_ms: u64) {
        self.since_ms = if unsent == 0 { 0 } else { now_ms.max(1) };
    }

    /// Returns the time of the last progress in monotonic milliseconds; `None` if no bytes are unsent.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        (self.since_ms != 0).then_some(self.since_ms)
    }
}

pub(crate) struct ConnectionSlab<T> {
    entries: Vec<Option<ConnectionEntry<T>>>,
    len: usize,
}

impl<T> Default for ConnectionSlab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            len: 0,
        }
    }
}

impl<T> ConnectionSlab<T> {
    pub(crate) fn insert(&mut self, id: ConnectionId, connection: Connection, transport: T) {
        let index = id.index as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let entry = ConnectionEntry {
            connection,
            transport,
            generation: id.generation,
            armed_ms: u64::MAX,
            stall: WriteStall::default(),
            is_paused: false,
            is_held: false,
        };
        let before = self.entries[index].replace(entry);
        debug_assert!(
            before.is_none(),
            "an index must be free before it is reused"
        );
        self.len += usize::from(before.is_none());
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut ConnectionEntry<T>> {
        let entry = self.entries.get_mut(id.index as usize)?.as_mut()?;
        (entry.generation == id.generation).then_some(entry)
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&ConnectionEntry<T>> {
        let entry = self.entries.get(id.index as usize)?.as_ref()?;
        (entry.generation == id.generation).then_some(entry)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<ConnectionEntry<T>> {
        self.get_mut(id)?;
        self.len -= 1;
        self.entries[id.index as usize].take()
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the highest used index plus one.
    pub(crate) fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns whether the connection at the index is a client's and has not ended.
    pub(crate) fn is_client(&self, index: u32) -> bool {
        let entry = self.entries.get(index as usize).and_then(Option::as_ref);
        entry.is_some_and(|ConnectionEntry { connection, .. }| {
            connection.listener().is_some() && !connection.is_back_end() && !connection.is_over()
        })
    }

    pub(crate) fn id_at(&self, index: u32) -> Option<ConnectionId> {
        let entry = self.entries.get(index as usize)?.as_ref()?;
        Some(ConnectionId {
            index,
            generation: entry.generation,
        })
    }
}
