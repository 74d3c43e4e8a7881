//! The control stream from one node's point of view: the last entry read, the commands carried out, and its own
//! commands that may have to be appended again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use veche_types::Position;

use crate::{Ban, NodeId};

/// The age up to which a node appends its commands again after a broken connection, in milliseconds. A command with a lasting
/// effect is appended later too.
pub(super) const AGAIN_MS: u64 = 60_000;

/// The maximum number of stored commands for that.
const AGAIN_MAX: usize = 10_000;

/// Sources whose numbers are known, at most.
const SOURCES_MAX: usize = 1024;

/// The window within which numbers of one source may arrive out of order.
const APART_MAX: usize = 1024;

/// The handling of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Take,
    Skip,
    /// Earlier entries are missing.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct Commands {
    last: Option<Position>,
    reading: Option<u64>,
    /// The last order to read the blocks, until it is answered.
    reading_table: Option<u64>,
    carried_out: HashMap<NodeId, CarriedOut>,
    /// Commands of this node, the oldest first.
    own: VecDeque<Own>,
    /// Whether a command of this node may or may not be stored.
    pub(super) is_unsure: bool,
    /// Entries arrived by the feed during a read: they may be behind the read ones.
    pub(super) has_skipped: bool,
}

/// A command of this node.
#[derive(Debug)]
struct Own {
    at_ms: u64,
    bytes: Bytes,
    /// The order that appends it.
    ticket: Option<u64>,
    /// It is kept until it is appended, whenever that is.
    is_due: bool,
}

/// The numbers of a source's commands that were executed.
#[derive(Debug)]
struct CarriedOut {
    /// All sequence numbers up to this one are done.
    floor: u64,
    /// Commands above the floor that were carried out.
    above: BTreeSet<u64>,
}

impl Commands {
    pub(super) fn last(&self) -> Option<Position> {
        self.last
    }

    pub(super) fn set_last(&mut self, last: Position) {
        self.last = Some(last);
    }

    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Records the last order to read: answers to earlier ones are ignored.
    pub(super) fn read(&mut self, ticket: u64) {
        self.reading = Some(ticket);
    }

    pub(super) fn is_read(&mut self, ticket: u64) -> bool {
        let is_it = self.reading == Some(ticket);
        if is_it {
            self.reading = None;
        }
        is_it
    }

    /// Takes note of the last order to read the blocks.
    pub(super) fn read_table(&mut self, ticket: u64) {
        self.reading_table = Some(ticket);
    }

    pub(super) fn is_table_open(&self) -> bool {
        self.reading_table.is_some()
    }

    /// Returns whether this is the answer to the last order to read the blocks.
    pub(super) fn is_table_read(&mut self, ticket: u64) -> bool {
        self.reading_table.take_if(|last| *last == ticket).is_some()
    }

    pub(super) fn next(&mut self, position: Position, before: u64) -> Next {
        match &mut self.last {
            Some(last) if last.epoch != position.epoch || before > last.offset => Next::Gap,
            Some(last) if position.offset > last.offset => {
                last.offset = position.offset;
                Next::Take
            }
            _ => Next::Skip,
        }
    }

    /// Returns whether a command is new, and records it.
    pub(super) fn is_new(&mut self, source: NodeId, sequence: u64) -> bool {
        if let Some(known) = self.carried_out.get_mut(&source) {
            return known.is_new(sequence);
        }
        if self.carried_out.len() < SOURCES_MAX {
            let above = BTreeSet::new();
            let floor = sequence;
            self.carried_out.insert(source, CarriedOut { floor, above });
        }
        true
    }

    /// Keeps a command of this node. `is_lasting`: its effect lasts, so it is appended however late.
    pub(super) fn keep(&mut self, now_ms: u64, bytes: Bytes, is_lasting: bool) {
        self.forget_old(now_ms);
        if self.own.len() >= AGAIN_MAX {
            self.own.pop_front();
        }
        self.own.push_back(Own {
            at_ms: now_ms,
            bytes,
            ticket: None,
            is_due: is_lasting,
        });
    }

    /// Notes the order that appends a command of this node.
    pub(super) fn appending(&mut self, ticket: u64, bytes: &Bytes) {
        // As a rule it is the last one.
        if let Some(own) = self.own.iter_mut().rev().find(|own| own.bytes == *bytes) {
            own.ticket = Some(ticket);
        }
    }

    /// Notes that an order that appends a command is carried out.
    pub(super) fn is_appended(&mut self, ticket: u64) {
        if let Some(own) = self.own.iter_mut().find(|own| own.ticket == Some(ticket)) {
            own.is_due = false;
        }
    }

    /// Returns the commands of this node of the last minute, and older ones that last and are not appended.
    pub(super) fn again(&mut self, now_ms: u64) -> Vec<Bytes> {
        self.forget_old(now_ms);
        self.own.iter().map(|own| own.bytes.clone()).collect()
    }

    fn forget_old(&mut self, now_ms: u64) {
        self.own
            .retain(|own| own.is_due || now_ms < own.at_ms + AGAIN_MS);
    }
}

impl CarriedOut {
    fn is_new(&mut self, sequence: u64) -> bool {
        if sequence <= self.floor || !self.above.insert(sequence) {
            return false;
        }
        while self.above.remove(&(self.floor + 1)) {
            self.floor += 1;
        }
        if self.above.len() > APART_MAX
            && let Some(lowest) = self.above.pop_first()
        {
            self.floor = lowest;
        }
        true
    }
}

/// Returns the name under which a ban is stored: a ban of the same name replaces it.
pub(super) fn block_name(block: &Ban) -> Bytes {
    let (kind, name) = match block {
        Ban::User { user, .. } | Ban::UserAllowed { user } => ("user", user),
        Ban::Token { id, .. } => ("token", id),
        Ban::TokensOf { user, .. } => ("tokens", user),
    };
    format!("{kind}:{name}").into()
}

/// Returns the stored form of a ban; `None` for an unban.
pub(super) fn block_value(block: &Ban) -> Option<Bytes> {
    if matches!(block, Ban::UserAllowed { .. }) {
        return None;
    }
    let encoded = rmp_serde::to_vec_named(block);
    encoded.ok().map(Bytes::from)
}

pub(super) fn read_block(value: &[u8]) -> Option<Ban> {
    rmp_serde::from_slice(value).ok()
}
