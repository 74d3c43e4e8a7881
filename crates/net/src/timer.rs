//! The timer wheel: one timer per transport, with its links stored in the transport.
//!
//! There are eleven levels of 64 slots. Level 0 contains the deadlines that differ from the current
//! time at most in the lowest six bits, level 1 those whose highest difference is in the next six
//! bits, and so on. Every `u64` therefore has a slot, without special cases. Setting and clearing a
//! timer are O(1), and a timer moves down at most once per level.
//!
//! The wheel does not read the clock. The caller passes the time.

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 11;

/// The index that stands for no node.
pub(crate) const NIL: u32 = u32::MAX;
/// The flag in `previous` of the first node of a list. The lower bits of `previous` are then the index of
/// the list's slot instead of a node. This limits the number of nodes to 2^31.
const HEAD: u32 = 1 << 31;

/// A timer: its deadline and its neighbours in the slot's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerNode {
    deadline_ms: u64,
    /// The next node; `NIL` at the end of the list. While the timer is unset, the owner may use
    /// this field.
    pub(crate) next: u32,
    /// The previous node in the list of the timer's slot; `HEAD | slot` for the first node, `NIL` while the
    /// timer is unset.
    previous: u32,
}

const _: () = assert!(size_of::<TimerNode>() == 16);

impl TimerNode {
    pub(crate) const UNSET: Self = Self {
        deadline_ms: 0,
        next: NIL,
        previous: NIL,
    };

    pub(crate) fn is_set(&self) -> bool {
        self.previous != NIL
    }
}

/// Gives access to the nodes, which the wheel identifies by index.
pub(crate) trait TimerNodes {
    fn node(&mut self, index: u32) -> &mut TimerNode;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// First node of each slot, level by level.
    heads: Box<[u32; LEVELS * SLOTS]>,
    /// One bit per slot, set if the slot is not empty.
    occupied: [u64; LEVELS],
    /// The wheel's time in milliseconds; all nodes with earlier deadlines were popped. Written in base 64, the deadline
    /// of a node is related to this time as follows: the digits above the node's level are equal, and at that level the
    /// deadline has the larger digit (at level 0, a larger or equal one).
    now_ms: u64,
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            heads: Box::new([NIL; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            now_ms,
        }
    }

    /// Sets a timer and replaces its earlier deadline. A deadline in the past counts as the current
    /// time.
    #[inline]
    pub(crate) fn set(&mut self, nodes: &mut impl TimerNodes, index: u32, deadline_ms: u64) {
        self.clear(nodes, index);
        self.link(nodes, index, deadline_ms.max(self.now_ms));
    }

    /// Clears a timer if it is set.
    #[inline]
    pub(crate) fn clear(&mut self, nodes: &mut impl TimerNodes, index: u32) {
        let node = nodes.node(index);
        if !node.is_set() {
            return;
        }
        let TimerNode { next, previous, .. } = *node;
        *node = TimerNode::UNSET;
        if previous & HEAD != 0 {
            let slot = (previous & !HEAD) as usize;
            self.heads[slot] = next;
            if next == NIL {
                self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
            }
        } else {
            nodes.node(previous).next = next;
        }
        if next != NIL {
            nodes.node(next).previous = previous;
        }
    }

    /// Returns the time at which [`pop`](Self::pop) must be called again: the next deadline, or an earlier time at
    /// which timers move down a level. Returns `None` if no timer is set.
    #[inline]
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        Some(self.start_ms(level, slot))
    }

    /// Removes and returns the timer with the earliest deadline, if the deadline is not after
    /// `until_ms`. Timers with equal deadlines are returned in any order. Returns `None` if there
    /// are no more, and sets the wheel's time to `until_ms`.
    pub(crate) fn pop(&mut self, nodes: &mut impl TimerNodes, until_ms: u64) -> Option<u32> {
        loop {
            let due = self
                .first_slot()
                .map(|(level, slot)| (level, level * SLOTS + slot, self.start_ms(level, slot)));
            let Some((level, head, start_ms)) = due.filter(|&(.., start)| start <= until_ms) else {
                self.now_ms = self.now_ms.max(until_ms);
                return None;
            };
            self.now_ms = start_ms;
            let mut index = self.heads[head];
            if level == 0 {
                self.clear(nodes, index);
                return Some(index);
            }
            self.heads[head] = NIL;
            self.occupied[level] &= !(1 << (head % SLOTS));
            while index != NIL {
                let TimerNode {
                    deadline_ms, next, ..
                } = *nodes.node(index);
                self.link(nodes, index, deadline_ms);
                index = next;
            }
        }
    }

    /// Returns the slot of the earliest nodes. All nodes on a lower level are before all nodes on a
    /// higher level, and the slots of a level are ordered by time.
    #[inline]
    fn first_slot(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Returns the first millisecond of a slot.
    #[inline]
    fn start_ms(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * SLOT_BITS;
        let above = self.now_ms.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        (above.checked_shl(shift + SLOT_BITS).unwrap_or(0)) | ((slot as u64) << shift)
    }

    /// Sets the deadline of a node that is in no list, and adds the node to the list of its slot.
    /// The deadline must not be in the past.
    #[inline]
    fn link(&mut self, nodes: &mut impl TimerNodes, index: u32, deadline_ms: u64) {
        let differs = (deadline_ms ^ self.now_ms) | 1;
        let level = differs.ilog2() / SLOT_BITS;
        let slot = (deadline_ms >> (level * SLOT_BITS)) as usize % SLOTS;
        let level = level as usize;
        let head = level * SLOTS + slot;
        let next = self.heads[head];
        *nodes.node(index) = TimerNode {
            deadline_ms,
            next,
            previous: HEAD | head as u32,
        };
        if next != NIL {
            nodes.node(next).previous = index;
        }
        self.heads[head] = index;
        self.occupied[level] |= 1 << slot;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    impl TimerNodes for Vec<TimerNode> {
        fn node(&mut self, index: u32) -> &mut TimerNode {
            &mut self[index as usize]
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Clear(u32),
        Advance(u64),
    }

    const NODES: u32 = 40;

    /// Generates distances on every level, many of them near the borders between levels.
    fn distance() -> impl Strategy<Value = u64> {
        (0..60_u32, 0..4_u64, any::<bool>(), any::<u64>()).prop_map(|(bits, off, near, any)| {
            let edge = 1_u64 << bits;
            if near {
                edge.saturating_add(off).saturating_sub(2)
            } else {
                any % edge
            }
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..NODES, distance()).prop_map(|(node, ms)| Step::Set(node, ms)),
            1 => (0..NODES).prop_map(Step::Clear),
            2 => distance().prop_map(Step::Advance),
        ]
    }

    /// Runs `steps` on the wheel and on a sorted map, and compares the popped timers.
    fn check(start_ms: u64, steps: &[Step]) {
        let mut nodes = vec![TimerNode::UNSET; NODES as usize];
        let mut wheel = Wheel::new(start_ms);
        let mut model: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut deadlines = vec![None; NODES as usize];
        let mut now_ms = start_ms;
        let forget = |model: &mut BTreeMap<u64, BTreeSet<u32>>, deadline: u64, index: u32| {
            let same = model
                .get_mut(&deadline)
                .expect("the model knows every set timer");
            assert!(same.remove(&index));
            if same.is_empty() {
                model.remove(&deadline);
            }
        };
        for step in steps {
            match *step {
                Step::Set(index, ms) => {
                    let deadline = now_ms.saturating_add(ms);
                    wheel.set(&mut nodes, index, deadline);
                    if let Some(old) = deadlines[index as usize].replace(deadline) {
                        forget(&mut model, old, index);
                    }
                    model.entry(deadline).or_default().insert(index);
                }
                Step::Clear(index) => {
                    wheel.clear(&mut nodes, index);
                    if let Some(old) = deadlines[index as usize].take() {
                        forget(&mut model, old, index);
                    }
                }
                Step::Advance(ms) => {
                    now_ms = now_ms.saturating_add(ms);
                    while let Some(index) = wheel.pop(&mut nodes, now_ms) {
                        let deadline = deadlines[index as usize].take().expect("it was set");
                        assert!(deadline <= now_ms, "early");
                        assert_eq!(Some(&deadline), model.keys().next(), "out of order");
                        forget(&mut model, deadline, index);
                    }
                    assert!(
                        model.keys().next().is_none_or(|&next| next > now_ms),
                        "late"
                    );
                }
            }
            let next = model.keys().next().copied();
            assert_eq!(wheel.next_ms().is_some(), next.is_some());
            if let (Some(wheel_ms), Some(model_ms)) = (wheel.next_ms(), next) {
                assert!(wheel_ms <= model_ms, "would sleep past a deadline");
            }
            for (node, deadline) in nodes.iter().zip(&deadlines) {
                assert_eq!(node.is_set(), deadline.is_some());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn agrees_with_a_sorted_map(
            start_ms in prop_oneof![Just(0), 0..10_000_u64, any::<u64>()],
            steps in prop::collection::vec(step(), 1..200),
        ) {
            check(start_ms, &steps);
        }
    }

    #[test]
    fn wakes_are_few() {
        // A timeout of 30 s causes at most one call of `pop` per level, not one per slot.
        let mut nodes = vec![TimerNode::UNSET; 1];
        let mut wheel = Wheel::new(123_456_789);
        let deadline_ms = 123_456_789 + 30_000;
        wheel.set(&mut nodes, 0, deadline_ms);
        for stops in 1.. {
            let next_ms = wheel.next_ms().expect("a timer is set");
            if wheel.pop(&mut nodes, next_ms) == Some(0) {
                assert_eq!(next_ms, deadline_ms);
                assert!(stops <= 4, "{stops} stops");
                break;
            }
        }
    }

    #[test]
    fn the_end_of_time_has_a_slot() {
        let mut nodes = vec![TimerNode::UNSET; 2];
        let mut wheel = Wheel::new(0);
        wheel.set(&mut nodes, 0, u64::MAX);
        wheel.set(&mut nodes, 1, u64::MAX - 1);
        assert_eq!(wheel.pop(&mut nodes, u64::MAX - 2), None);
        assert_eq!(wheel.pop(&mut nodes, u64::MAX), Some(1));
        assert_eq!(wheel.pop(&mut nodes, u64::MAX), Some(0));
        assert_eq!(wheel.pop(&mut nodes, u64::MAX), None);
    }
}
