//! What leaves: each touched outbox to the driver once a turn, and watching what the transport has not sent yet.

use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::{Block, End};
use veche_net::{Buffer, Driver, TransportId};

use super::{Rest, session, transport};

impl Rest {
    /// Hands over what the turn made: one write a connection.
    pub(super) fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut touched = std::mem::take(&mut self.touched);
        self.shared.ports.outboxes.take_touched(&mut touched);
        for index in touched.drain(..) {
            let Some((session, bytes, end)) = self.shared.ports.outboxes.take(index) else {
                continue;
            };
            let id = transport(session);
            if end == End::Abort {
                driver.close(id);
                continue;
            }
            let bytes = self.seal(session, bytes, end);
            if !bytes.is_empty() {
                self.shared.stats.bytes_sent.add(bytes.len() as u64);
                if let Some(buffer) = driver.send(id, Buffer::Owned(bytes), false) {
                    self.recycle(buffer);
                } else {
                    self.stalled(driver, id);
                }
            }
            if end == End::Shutdown {
                self.shut_down(driver, id);
            }
        }
        self.touched = touched;
        self.shared.ports.outboxes.settle_filled();
        self.busy |= self.shared.ports.outboxes.settle_backlogs();
        let dropped = self.shared.ports.outboxes.take_dropped();
        let [oldest, replaced, missed] = &self.shared.stats.publications_dropped;
        oldest.add(dropped.oldest);
        replaced.add(dropped.replaced);
        missed.add(dropped.missed);
        let sent = self.shared.ports.outboxes.take_sent();
        self.shared.stats.messages_sent.add(sent.messages);
        self.shared.stats.message_bytes_sent.add(sent.bytes);
        // Whoever waited for its own output goes on next turn if it has left; else the driver will tell.
        for id in std::mem::take(&mut self.shared.waiting_for_output) {
            let unsent = driver.unsent(transport(id));
            // Both sides must judge by the same number, or they would ask each other for ever.
            self.shared.ports.outboxes.set_unsent(id, unsent);
            if unsent <= ANSWERS_BYTES_HIGH {
                self.resumable.push(id);
            }
        }
    }

    /// A send is not done: from now on its progress is watched.
    pub(super) fn stalled<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        let unsent = driver.unsent(id);
        self.shared.ports.outboxes.set_unsent(session(id), unsent);
        let (now, limit) = (
            self.shared.now.mono_ms,
            self.shared.site.limits.write_timeout_ms,
        );
        if let Some(slot) = self.slots.find(session(id))
            && slot.stall.begin(now)
        {
            slot.arm(driver, id, now + limit);
        }
    }

    pub(super) fn shut_down<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        driver.shutdown(id);
        if let Some(slot) = self.slots.find(session(id))
            && slot.connection.has_ended()
            && driver.unsent(id) == 0
        {
            driver.close(id);
        }
    }

    pub(super) fn recycle(&mut self, buffer: Buffer) {
        if let Some(bytes) = buffer.reclaim() {
            self.shared.ports.outboxes.recycle(bytes);
        }
    }

    /// The transport took more of what was queued.
    pub(super) fn sent_more<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        let unsent = driver.unsent(id);
        let session = session(id);
        self.shared.ports.outboxes.set_unsent(session, unsent);
        let Some(slot) = self.slots.find(session) else {
            return;
        };
        slot.stall.progress(unsent, self.shared.now.mono_ms);
        // Before it has left, the connection would only look and wait again.
        if unsent <= ANSWERS_BYTES_HIGH && slot.connection.is_blocked() == Some(Block::Output) {
            self.resumable.push(session);
        }
        // What the turn has said since leaves when it ends, and is told then.
        if slot.connection.has_ended() && self.shared.ports.outboxes.of(session).is_over() {
            driver.close(id);
        }
    }
}
