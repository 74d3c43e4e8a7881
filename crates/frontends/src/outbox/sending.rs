//! Messages that applications send. They count against the limit for publications. Above a lower threshold the
//! application is notified that the outbox is full, and later that it has room again.

use veche_hub::ConnectionId;
use veche_proto::websocket::MessageKind;

use super::{ANSWERS_BYTES_HIGH, Outbox, Outboxes, PushMode};

/// Number of unsent bytes above which an outbound connection is full. The connection is not closed for exceeding it:
/// the application has to wait.
const CLIENT_BYTES_HIGH: usize = 1 << 20;

/// The result of sending a message of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The message is queued, and the outbox has room for more.
    Room,
    /// The message is queued, but the outbox is now full: [`Apps::drained`](crate::Apps::drained) is called when the
    /// outbox has room again.
    Full,
    /// The message is dropped: the session has ended, or is being closed because its client reads too slowly.
    Refused,
}

impl Outbox {
    /// Returns whether an application may send to the connection.
    fn takes_messages(&self) -> bool {
        matches!(
            self.pushes,
            PushMode::Framed | PushMode::Positioned | PushMode::Lossy(_) | PushMode::Client
        )
    }
}

impl Outboxes {
    /// Writes a message of an application. An application may send at any time to any session of its worker, so the
    /// message counts against the limit for publications, and a stale id is refused.
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

    /// After a message was queued, returns whether the outbox has room for more or is full.
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

    /// Returns the number of unsent bytes above which an outbox is full. It is below the number at which the client
    /// counts as too slow.
    fn bytes_high(&self) -> usize {
        ANSWERS_BYTES_HIGH.min(self.outbox_bytes_max / 2)
    }

    /// Returns the number of unsent bytes at which a full outbox has room again.
    fn bytes_low(&self) -> usize {
        self.bytes_high() / 4
    }

    /// Checks the outboxes that became full in this turn; the turn's flush may have made room in
    /// them. Has to be called after the flush.
    pub fn settle_filled(&mut self) {
        while let Some(session) = self.filled.pop() {
            self.note_room(session);
        }
    }

    /// If a full outbox has room again, clears its `full` flag and lists its session for [`Outboxes::take_drained`].
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

    /// Returns whether [`Outboxes::take_drained`] has sessions to return.
    pub fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// Appends to `into` the sessions whose full outbox has had room again since the last call.
    pub fn take_drained(&mut self, into: &mut Vec<ConnectionId>) {
        into.append(&mut self.drained);
    }
}
