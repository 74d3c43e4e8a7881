//! Checks the order in which a worker continues connections whose input has waited for a later turn: each has one place in
//! the queue, and none is continued twice while another one waits.

use std::collections::{BTreeMap, BTreeSet};

use veche_hub::ConnectionId;

/// The connections of one worker that wait for a later turn.
#[derive(Default)]
pub(crate) struct TurnOrder {
    /// By the number of its arrival in the queue, each connection, and those that were continued since then.
    waiting: BTreeMap<u64, (ConnectionId, BTreeSet<ConnectionId>)>,
}

impl TurnOrder {
    /// Records which connections wait after a turn. Returns a connection that is still waiting, and one that was
    /// continued for the second time meanwhile, if there are such. Returns the same connection twice if it has two places in
    /// the queue.
    pub(crate) fn turned(
        &mut self,
        waiting: impl Iterator<Item = (u64, ConnectionId)>,
    ) -> Option<(ConnectionId, ConnectionId)> {
        let waiting: BTreeMap<_, _> = waiting.collect();
        let mut ids = BTreeSet::new();
        let twice = waiting.values().find(|id| !ids.insert(**id));
        let (mut continued, mut passed) = (Vec::new(), twice.map(|id| (*id, *id)));
        self.waiting.retain(|arrival, (id, _)| {
            let waits = waiting.contains_key(arrival);
            continued.extend((!waits).then_some(*id));
            waits
        });
        for (id, since) in self.waiting.values_mut() {
            for by in &continued {
                if !since.insert(*by) {
                    passed = Some((*id, *by));
                }
            }
        }
        for (arrival, id) in waiting {
            self.waiting
                .entry(arrival)
                .or_insert_with(|| (id, BTreeSet::new()));
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_may_be_continued_once_and_not_twice_while_another_waits() {
        let id = |index| ConnectionId {
            index,
            generation: 1,
        };
        let mut order = TurnOrder::default();
        assert_eq!(order.turned([(1, id(0)), (2, id(1))].into_iter()), None);
        // The second one was continued, and waits again.
        assert_eq!(order.turned([(1, id(0)), (3, id(1))].into_iter()), None);
        let twice = order.turned([(1, id(0)), (4, id(1))].into_iter());
        assert_eq!(twice, Some((id(0), id(1))));
        // The second one has two places.
        let twice = order.turned([(5, id(0)), (6, id(1)), (7, id(1))].into_iter());
        assert_eq!(twice, Some((id(1), id(1))));
        // Both of its places are gone.
        let twice = order.turned([(5, id(0))].into_iter());
        assert_eq!(twice, Some((id(0), id(1))));
        assert_eq!(order.turned(std::iter::empty()), None);
    }
}
