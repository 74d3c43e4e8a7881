//! The body of an answer, which may be long: encoded in parts as its caller reads, from what the hub gave.

use std::collections::VecDeque;

use crate::backend::Exchange;

/// The rest of a body.
pub(crate) struct Answers {
    begin: Vec<u8>,
    /// Each under the name of its result.
    exchanges: VecDeque<(Exchange, &'static str)>,
    /// How much of the list in the first of them is written; `None`: nothing of that exchange.
    next: Option<usize>,
    end: &'static [u8],
}

impl Answers {
    /// One that is written already.
    pub(super) fn whole(body: Vec<u8>) -> Self {
        Self {
            begin: body,
            exchanges: VecDeque::new(),
            next: None,
            end: b"",
        }
    }

    /// The answer to one command.
    pub(super) fn one(exchanges: VecDeque<Exchange>) -> Self {
        debug_assert_eq!(exchanges.len(), 1, "one command has one answer");
        Self {
            exchanges: exchanges.into_iter().map(|one| (one, "result")).collect(),
            ..Self::whole(Vec::new())
        }
    }

    /// The answers to a batch, as clients of the original know them: without `result`.
    pub(super) fn batch(exchanges: VecDeque<(Exchange, &'static str)>) -> Self {
        Self {
            begin: b"{\"replies\":[".to_vec(),
            exchanges,
            next: None,
            end: b"]}",
        }
    }

    /// Appends the next part, until `out` has about so many bytes. Returns whether it was the last.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        out.append(&mut self.begin);
        while let Some((exchange, key)) = self.exchanges.front() {
            if !exchange.write_part(out, key, &mut self.next, bytes_max) {
                return false;
            }
            self.next = None;
            self.exchanges.pop_front();
            if !self.exchanges.is_empty() {
                out.push(b',');
            }
        }
        out.extend_from_slice(self.end);
        true
    }
}
