//! Writes: each connection's output is sent once per turn, and a connection whose unsent bytes make no progress is
//! aborted.

use veche_frontends::TransportEnd;
use veche_types::ConnectionId;

use crate::apps::AppHost;
use crate::worker::{TransportCommand, Worker};

/// The output of one connection in a turn.
#[derive(Debug)]
pub struct PendingWrite {
    /// The id of the connection.
    pub id: ConnectionId,
    /// The bytes to send. They may be empty if `end` ends the transport. The driver returns the buffer
    /// with [`Worker::recycle`].
    pub bytes: Vec<u8>,
    /// How the transport ends after the bytes, if it does.
    pub end: TransportEnd,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Takes the next write. Must be called after [`finish_turn`](Self::finish_turn) until it returns `None`. Each
    /// connection occurs at most once per turn.
    ///
    /// With [`TransportEnd::Abort`] there are no bytes, and the driver closes the transport. The driver reports an
    /// incomplete send with [`handle_stalled`](Self::handle_stalled), and the shutdown of a transport after
    /// [`TransportEnd::Shutdown`] with [`handle_shut_down`](Self::handle_shut_down).
    #[inline]
    pub fn poll_write(&mut self) -> Option<PendingWrite> {
        if self.has_writes && self.next_write == 0 {
            self.shared
                .requests
                .outboxes
                .take_touched(&mut self.touched);
        }
        while let Some(&index) = self.touched.get(self.next_write) {
            self.next_write += 1;
            if let Some((id, bytes, end)) = self.shared.requests.outboxes.take(index) {
                return Some(PendingWrite { id, bytes, end });
            }
        }
        if self.has_writes {
            self.settle_writes();
        }
        None
    }

    fn settle_writes(&mut self) {
        self.has_writes = false;
        self.next_write = 0;
        self.touched.clear();
        let outboxes = &mut self.shared.requests.outboxes;
        outboxes.settle_filled();
        self.is_busy |= outboxes.settle_backlogs();
        let dropped = outboxes.take_dropped();
        let sent = outboxes.take_sent();
        let stats = &self.shared.stats;
        let [oldest, replaced, missed] = &stats.publications_dropped;
        oldest.add(dropped.oldest);
        replaced.add(dropped.replaced);
        missed.add(dropped.missed);
        stats.messages_sent.add(sent.messages);
        stats.message_bytes_sent.add(sent.bytes);
    }

    /// Takes the next connection whose input is paused until its own output has been sent. The driver answers with
    /// [`handle_unsent`](Self::handle_unsent). Must be called after [`poll_write`](Self::poll_write) has returned
    /// `None`.
    #[inline]
    pub fn poll_unsent(&mut self) -> Option<ConnectionId> {
        if self.next_unsent == 0 {
            std::mem::swap(&mut self.unsent, &mut self.shared.waiting_for_output);
        }
        let id = self.unsent.get(self.next_unsent).copied();
        self.next_unsent += 1;
        if id.is_none() {
            self.unsent.clear();
            self.next_unsent = 0;
        }
        id
    }

    /// Handles the number of unsent bytes that the driver reports for a connection. If the number is small, the
    /// connection's input is resumed in the next turn, otherwise after [`handle_sent`](Self::handle_sent).
    pub fn handle_unsent(&mut self, id: ConnectionId, unsent: usize) {
        // The number is stored before the comparison: the connection compares the stored number when it is
        // resumed. If that number differed from `unsent`, the connection could wait forever.
        self.shared.requests.outboxes.set_unsent(id, unsent);
        if let Some(entry) = self.slab.get_mut(id)
            && entry.connection.handle_unsent(unsent)
        {
            self.resumable.push(id);
        }
    }

    /// Handles an incomplete send that left `unsent` bytes. From now on, the connection is aborted if none of these
    /// bytes is sent within the write timeout.
    pub fn handle_stalled(&mut self, id: ConnectionId, unsent: usize) {
        self.shared.requests.outboxes.set_unsent(id, unsent);
        let now_ms = self.shared.now.mono_ms;
        let limit_ms = self.shared.config.limits.write_timeout_ms;
        if let Some(entry) = self.slab.get_mut(id)
            && entry.stall.begin(now_ms)
        {
            self.arm(id, now_ms + limit_ms);
        }
    }

    /// Handles the driver's report that a transport will send FIN after `unsent` bytes.
    pub fn handle_shut_down(&mut self, id: ConnectionId, unsent: usize) {
        if unsent == 0 && self.has_ended(id) {
            self.commands.push_back(TransportCommand::Close(id));
        }
    }

    /// Handles the driver's report that bytes of a connection were sent and `unsent` bytes are left.
    pub fn handle_sent(&mut self, id: ConnectionId, unsent: usize) {
        self.shared.requests.outboxes.set_unsent(id, unsent);
        let Some(entry) = self.slab.get_mut(id) else {
            return;
        };
        entry.stall.progress(unsent, self.shared.now.mono_ms);
        if unsent == 0 {
            entry.connection.handle_all_sent(&self.shared);
        }
        if entry.connection.handle_sent(unsent) {
            self.resumable.push(id);
        }
        // The peer has ended its direction and ours is complete, so the transport is closed. If
        // this turn adds output, the end of the turn sends it and checks again.
        if entry.connection.has_ended() && self.shared.requests.outboxes.of(id).is_over() {
            self.commands.push_back(TransportCommand::Close(id));
        }
    }

    /// Returns an empty buffer, reusing memory if available.
    pub fn spare_buffer(&mut self) -> Vec<u8> {
        self.shared.requests.outboxes.spare()
    }

    /// Takes back the memory of sent bytes.
    #[inline]
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.shared.requests.outboxes.recycle(bytes);
    }
}
