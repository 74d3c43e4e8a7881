//! Queues the events of a channel until the engine has decided whether the channel was occupied or vacated, so that
//! they stay in order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::ChannelEventKind;

/// The waiting events by channel; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    by_name: HashMap<Arc<str>, VecDeque<Entry>, RandomState>,
    count: usize,
}

#[derive(Debug)]
enum Entry {
    /// The engine has not decided yet whether the channel was occupied (`true`) or vacated (`false`).
    Open(bool),
    /// An event, with its time in milliseconds since 1970, that follows an open decision.
    Behind(u64, ChannelEventKind),
}

impl Undecided {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds an open decision: whether the channel was occupied (`true`) or vacated (`false`).
    pub(crate) fn add(&mut self, channel: &Arc<str>, is_occupied: bool) {
        let entries = self.by_name.entry(Arc::clone(channel)).or_default();
        entries.push_back(Entry::Open(is_occupied));
        self.count += 1;
    }

    /// Queues an event behind decisions about its channel that the engine has not made yet. Returns
    /// the event if there are no such decisions.
    pub(crate) fn add_behind(
        &mut self,
        channel: &Arc<str>,
        at_ms: u64,
        event: ChannelEventKind,
    ) -> Option<ChannelEventKind> {
        if self.by_name.is_empty() {
            return Some(event);
        }
        let Some(entries) = self.by_name.get_mut(channel) else {
            return Some(event);
        };
        entries.push_back(Entry::Behind(at_ms, event));
        self.count += 1;
        None
    }

    /// Handles a decision of the engine. Returns the events that waited only for this decision.
    pub(crate) fn decide(
        &mut self,
        channel: &Arc<str>,
        is_occupied: bool,
    ) -> Vec<(u64, ChannelEventKind)> {
        let mut behind = Vec::new();
        let Some(entries) = self.by_name.get_mut(channel) else {
            return behind;
        };
        let before = entries.len();
        // If the decision does not match the first entry, it concerns a change that was lost for lack of room.
        let is_first = |entry: &mut Entry| matches!(entry, Entry::Open(one) if *one == is_occupied);
        if entries.pop_front_if(is_first).is_none() {
            return behind;
        }
        while let Some(Entry::Behind(at_ms, event)) =
            entries.pop_front_if(|entry| matches!(entry, Entry::Behind(..)))
        {
            behind.push((at_ms, event));
        }
        self.count -= before - entries.len();
        if entries.is_empty() {
            self.by_name.remove(channel);
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_behind_what_is_not_decided() {
        let mut undecided = Undecided::default();
        let (room, other): (Arc<str>, Arc<str>) = ("room".into(), "other".into());
        let empty = || ChannelEventKind::Empty;
        undecided.add(&room, true);
        assert_eq!(undecided.add_behind(&other, 1, empty()), Some(empty()));
        assert_eq!(undecided.add_behind(&room, 2, empty()), None);
        undecided.add(&room, false);
        assert_eq!(undecided.add_behind(&room, 3, empty()), None);
        assert_eq!(undecided.len(), 4);
        // This decision does not match the first entry and must have no effect.
        assert_eq!(undecided.decide(&room, false), []);
        assert_eq!(undecided.decide(&other, true), []);
        assert_eq!(undecided.decide(&room, true), [(2, empty())]);
        assert_eq!(undecided.decide(&room, false), [(3, empty())]);
        assert_eq!(undecided.len(), 0);
        assert_eq!(undecided.add_behind(&room, 4, empty()), Some(empty()));
    }
}
