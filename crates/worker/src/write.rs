//! What leaves: each touched outbox once a turn, and the watch over what the transport has not sent yet.

use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::{TransportEnd, WaitReason};
use veche_types::ConnectionId;

use crate::apps::AppHost;
use crate::worker::{TransportCommand, Worker};

/// What one connection sends in a turn.
#[derive(Debug)]
pub struct PendingWrite {
    /// The connection.
    pub id: ConnectionId,
    /// Its bytes; may be empty where something is to end. To be given back by [`Worker::recycle`].
    pub bytes: Vec<u8>,
    /// What becomes of the transport once they are on their way.
    pub end: TransportEnd,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Takes the next write. To be called after [`finish_turn`](Self::finish_turn) until it returns `None`; each
    /// connection comes once at most.
    ///
    /// With [`TransportEnd::Abort`] the transport is to be closed and the bytes are empty. A send that did not complete is
    /// reported by [`handle_stalled`](Self::handle_stalled); after a transport was shut down for [`TransportEnd::Shutdown`],
    /// [`handle_shut_down`](Self::handle_shut_down) follows.
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

    /// Takes the next connection whose input waits for its own output to leave; the driver answers with
    /// [`handle_unsent`](Self::handle_unsent). To be called after [`poll_write`](Self::poll_write) has returned `None`.
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

    /// Takes how many bytes of a connection are unsent: it goes on next turn if they have left, otherwise
    /// [`handle_sent`](Self::handle_sent) tells.
    pub fn handle_unsent(&mut self, id: ConnectionId, unsent: usize) {
        // Connection and worker have to judge by the same number, or they would ask each other for ever.
        self.shared.requests.outboxes.set_unsent(id, unsent);
        if unsent <= ANSWERS_BYTES_HIGH {
            self.resumable.push(id);
        }
    }

    /// A send did not complete; `unsent` bytes are left, and their progress is watched from now on.
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

    /// The transport was told to send FIN behind `unsent` bytes.
    pub fn handle_shut_down(&mut self, id: ConnectionId, unsent: usize) {
        if unsent == 0 && self.has_ended(id) {
            self.commands.push_back(TransportCommand::Close(id));
        }
    }

    /// The transport sent more of what it was given; `unsent` bytes are left.
    pub fn handle_sent(&mut self, id: ConnectionId, unsent: usize) {
        self.shared.requests.outboxes.set_unsent(id, unsent);
        let Some(entry) = self.slab.get_mut(id) else {
            return;
        };
        entry.stall.progress(unsent, self.shared.now.mono_ms);
        if unsent == 0 {
            entry.connection.handle_all_sent(&self.shared);
        }
        // Before it has left, the connection would only look and wait again.
        if unsent <= ANSWERS_BYTES_HIGH && entry.connection.is_blocked() == Some(WaitReason::Output)
        {
            self.resumable.push(id);
        }
        // What the turn has written since leaves when it ends, and its end is judged then.
        if entry.connection.has_ended() && self.shared.requests.outboxes.of(id).is_over() {
            self.commands.push_back(TransportCommand::Close(id));
        }
    }

    /// Returns an empty buffer, with memory that was used before if there is some.
    pub fn spare_buffer(&mut self) -> Vec<u8> {
        self.shared.requests.outboxes.spare()
    }

    /// Takes back the memory of bytes that were sent.
    #[inline]
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.shared.requests.outboxes.recycle(bytes);
    }
}
