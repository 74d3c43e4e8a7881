//! A transport that passes messages as values, in two in-memory queues.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_nodes::{Envelope, NodeId, NodeTransport, NodeTransportFull};

use super::{CREDITS, Pair};

#[derive(Default)]
struct Direction {
    messages: VecDeque<Envelope>,
    unfinished: u32,
}

/// One end of the transport.
pub(crate) struct Lane {
    out: Arc<Mutex<Direction>>,
    into: Arc<Mutex<Direction>>,
}

impl NodeTransport for Lane {
    fn send(&mut self, _: NodeId, envelope: Envelope) -> Result<(), NodeTransportFull> {
        let mut out = self.out.lock();
        if envelope.message.is_data() {
            if out.unfinished == CREDITS {
                return Err(NodeTransportFull(Box::new(envelope)));
            }
            out.unfinished += 1;
        }
        out.messages.push_back(envelope);
        Ok(())
    }

    fn receive(&mut self) -> Option<Envelope> {
        self.into.lock().messages.pop_front()
    }

    fn return_credit(&mut self, _: NodeId) {
        self.into.lock().unfinished -= 1;
    }
}

impl Pair for Lane {
    fn pair() -> (Self, Self) {
        let one = Arc::<Mutex<Direction>>::default();
        let other = Arc::<Mutex<Direction>>::default();
        let a = Self {
            out: Arc::clone(&one),
            into: Arc::clone(&other),
        };
        let b = Self {
            out: other,
            into: one,
        };
        (a, b)
    }

    fn cut(one: &mut Self, _: &mut Self) {
        for direction in [&one.out, &one.into] {
            *direction.lock() = Direction::default();
        }
    }
}
