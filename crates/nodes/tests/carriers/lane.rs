//! A carrier of values: two queues in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use veche_nodes::{Carrier, Envelope, Full, NodeId};

use super::{CREDITS, Pair};

#[derive(Default)]
struct Direction {
    messages: VecDeque<Envelope>,
    unfinished: u32,
}

/// One end.
pub(crate) struct Lane {
    out: Arc<Mutex<Direction>>,
    into: Arc<Mutex<Direction>>,
}

fn locked(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier for Lane {
    fn send(&mut self, _: NodeId, envelope: Envelope) -> Result<(), Full> {
        let mut out = locked(&self.out);
        if envelope.message.is_data() {
            if out.unfinished == CREDITS {
                return Err(Full(Box::new(envelope)));
            }
            out.unfinished += 1;
        }
        out.messages.push_back(envelope);
        Ok(())
    }

    fn receive(&mut self) -> Option<Envelope> {
        locked(&self.into).messages.pop_front()
    }

    fn finished(&mut self, _: NodeId) {
        locked(&self.into).unfinished -= 1;
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
            *locked(direction) = Direction::default();
        }
    }
}
