//! Messages sent by applications: within the limit for publications, with a threshold from which on applications wait,
//! and notification when there is room again.

use veche_hub::ConnectionId;
use veche_proto::websocket::MessageKind;

use super::{ANSWERS_BYTES_HIGH, Outbox, Outboxes, PushMode};

/// An outbound connection is full above this. It is not closed for that: the sender waits.
const CLIENT_BYTES_HIGH: usize = 1 << 20;

/// The result of sending a message of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// Queued, with room for more.
    Room,
    /// Queued, but the outbox is full: [`Apps::drained`](crate::Apps::drained) follows when there is room again.
    Full,
    /// Dropped: the session is over, or is being closed because its client reads too slowly.
    Refused,
}

impl Outbox {
    /// Returns whether an application may send to it.
    fn takes_messages(&self) -> bool {
        matches!(
            self.pushes,
            PushMode::Framed | PushMode::Positioned | PushMode::Lossy(_) | PushMode::Client
        )
    }
}

impl Outboxes {
    /// Writes a message of an application, which may send at any time to any session of this worker: it counts against
    /// the limit for publications, and a stale id is refused.
    pub fn send(&mut self, session: ConnectionId, kind: MessageKind, data: &[u8]) -> SendResult {
        let (max, mut high) = (self.outbox_bytes_max, self.bytes_high());
        let Some(outbox) = self.find(session).filter(|outbox| outbox.takes_messages()) else {
            return SendResult::Refused;
        };
        if outbox.pushes == PushMode::Client {
            high = CLIENT_BYTES_HIGH;
        } else if let PushMode::Lossy(_) = outbox.pushes {
            if !self.make_room(session, data.len()) {
                self.overflow(session);
                return SendResult::Refused;
            }
            if self.enqueue_behind(session, kind, data) {
                return self.sent_to(session, high);
            }
        } else {
            let queued = outbox.queued();
            if queued > 0 && queued + data.len() > max {
                self.overflow(session);
                return SendResult::Refused;
            }
        }
        self.message(session, kind, data);
        self.sent_to(session, high)
    }

    /// Returns whether there is room for more.
    fn sent_to(&mut self, session: ConnectionId, high: usize) -> SendResult {
        let behind = self.backlogs.bytes(session.index);
        let outbox = &mut self.boxes[session.index as usize];
        if outbox.queued() + behind <= high {
            return SendResult::Room;
        }
        if !outbox.full {
            outbox.full = true;
            self.filled.push(session);
        }
        SendResult::Full
    }

    /// Returns the bytes above which an outbox is full, before its client counts as too slow.
    fn bytes_high(&self) -> usize {
        ANSWERS_BYTES_HIGH.min(self.outbox_bytes_max / 2)
    }

    /// Returns the bytes at which a full outbox has room again.
    fn bytes_low(&self) -> usize {
        self.bytes_high() / 4
    }

    /// Checks outboxes filled in this turn after the flush, which may have emptied them.
    pub fn settle_filled(&mut self) {
        while let Some(session) = self.filled.pop() {
            self.note_room(session);
        }
    }

    /// Records if a full outbox has room again.
    pub(super) fn note_room(&mut self, session: ConnectionId) {
        let low = self.bytes_low();
        let behind = self.backlogs.bytes(session.index);
        if let Some(outbox) = self.find(session)
            && outbox.full
            && outbox.queued() + behind
                <= if outbox.masked {
                    CLIENT_BYTES_HIGH / 4
                } else {
                    low
                }
        {
            outbox.full = false;
            self.drained.push(session);
        }
    }

    /// Returns whether [`Outboxes::take_drained`] has any.
    pub fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// Takes the full sessions that have room again since the last call.
    pub fn take_drained(&mut self, into: &mut Vec<ConnectionId>) {
        into.append(&mut self.drained);
    }
}
