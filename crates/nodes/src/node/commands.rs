//! The control stream from the point of view of one node: the last entry read, the executed commands, and the node's
//! own commands that may have to be appended again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use veche_types::Position;

use crate::{Ban, Envelope, NodeId};

/// The age up to which a node appends its commands again after a broken connection, in milliseconds. A command with a lasting
/// effect is appended later too.
pub(super) const AGAIN_MS: u64 = 60_000;

/// The maximum number of stored commands for that.
const AGAIN_MAX: usize = 10_000;

/// The maximum number of sources whose command numbers are remembered.
const SOURCES_MAX: usize = 1024;

/// The window within which numbers of one source may arrive out of order.
const APART_MAX: usize = 1024;

/// The handling of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Take,
    /// The entry's offset is not beyond the last one, or no last one is known.
    Skip,
    /// Earlier entries are missing.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct NodeCommands {
    last: Option<Position>,
    /// The entry at that position, if known. A store that was rolled back may assign the same offset to another entry.
    last_entry: Option<Bytes>,
    /// The last order to read, and the offset that was known then.
    reading: Option<(u64, u64)>,
    /// The last order to read the blocks, until it is answered.
    reading_table: Option<u64>,
    carried_out: HashMap<NodeId, CarriedOut>,
    /// Commands of this node, the oldest first.
    own: VecDeque<Own>,
    /// The number of own commands about each ban, by the ban's name.
    names: HashMap<Bytes, usize>,
    /// Whether a command of this node may or may not be stored.
    pub(super) is_unsure: bool,
    /// Feed entries were skipped during a read: the read may end before them.
    pub(super) has_skipped: bool,
}

/// A command of this node.
#[derive(Debug)]
struct Own {
    at_ms: u64,
    envelope: Envelope,
    /// The ban that the command sets or ends, with its name. Its effect lasts, so the command is kept until the stream
    /// contains it, however long that takes.
    ban: Option<(Bytes, Ban)>,
    /// This node has read it from the stream.
    is_seen: bool,
}

impl Own {
    fn is_due(&self) -> bool {
        self.ban.is_some() && !self.is_seen
    }

    fn name(&self) -> Option<&Bytes> {
        self.ban.as_ref().map(|(name, _)| name)
    }
}

/// The numbers of a source's commands that were executed.
#[derive(Debug)]
struct CarriedOut {
    /// All commands up to this sequence number were executed.
    floor: u64,
    /// Executed commands above the floor.
    above: BTreeSet<u64>,
}

impl NodeCommands {
    pub(super) fn last(&self) -> Option<Position> {
        self.last
    }

    /// Returns the offset after which to read: one before the last known entry, which is thus read again and compared.
    pub(super) fn since(&self) -> Option<u64> {
        self.last.map(|last| last.offset.saturating_sub(1))
    }

    /// Records the end of the stream that was read as the last known position, with its entry if that was read.
    pub(super) fn set_last(&mut self, top: Position, entries: &[(u64, Bytes)]) {
        let at_top = entries.last().filter(|(offset, _)| *offset == top.offset);
        match at_top {
            Some((_, bytes)) => self.last_entry = Some(bytes.clone()),
            None if self.last == Some(top) => {}
            None => self.last_entry = None,
        }
        self.last = Some(top);
    }

    /// Returns whether the stream now has another entry at the last known position.
    pub(super) fn is_replaced(&self, entries: &[(u64, Bytes)]) -> bool {
        let (Some(last), Some(known)) = (self.last, &self.last_entry) else {
            return false;
        };
        let mut entries = entries.iter();
        entries.any(|(offset, bytes)| *offset == last.offset && bytes != known)
    }

    pub(super) fn forget(&mut self) {
        self.last = None;
        self.last_entry = None;
    }

    /// Handles a lost stream: commands that this node has appended may be lost with it.
    pub(super) fn stream_is_lost(&mut self, now_ms: u64) {
        self.forget_old(now_ms);
        for own in &mut self.own {
            own.is_seen = false;
        }
    }

    /// Records the last order to read: answers to earlier ones are ignored.
    pub(super) fn read(&mut self, ticket: u64) {
        let known = self.last.map_or(0, |last| last.offset);
        self.reading = Some((ticket, known));
    }

    /// Returns the offset that was known at the last order to read, if this is its answer.
    pub(super) fn take_known_offset(&mut self, ticket: u64) -> Option<u64> {
        let reading = self.reading.take_if(|(last, _)| *last == ticket);
        reading.map(|(_, known)| known)
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

    pub(super) fn next(&mut self, position: Position, before: u64, bytes: &Bytes) -> Next {
        match &mut self.last {
            Some(last) if last.epoch != position.epoch || before > last.offset => Next::Gap,
            Some(last) if position.offset > last.offset => {
                last.offset = position.offset;
                self.last_entry = Some(bytes.clone());
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

    /// Keeps a command of this node. One that sets or ends a `ban` is appended however late.
    pub(super) fn keep(&mut self, now_ms: u64, envelope: Envelope, ban: Option<Ban>) {
        let oldest = self.own.front();
        if oldest.is_some_and(|own| now_ms >= own.at_ms + AGAIN_MS) {
            self.forget_old(now_ms);
        }
        if self.own.len() >= AGAIN_MAX
            && let Some(oldest) = self.own.pop_front()
        {
            forget_name(&mut self.names, &oldest);
        }
        let ban = ban.map(|ban| (block_name(&ban), ban));
        if let Some((name, _)) = &ban {
            *self.names.entry(name.clone()).or_default() += 1;
        }
        self.own.push_back(Own {
            at_ms: now_ms,
            envelope,
            ban,
            is_seen: false,
        });
    }

    /// Takes note of a command of this node in the stream.
    pub(super) fn mark_seen(&mut self, sequence: u64) {
        let own = &mut self.own;
        if let Ok(place) = own.binary_search_by_key(&sequence, |own| own.envelope.sequence) {
            own[place].is_seen = true;
        }
    }

    /// Drops commands about a ban that were replaced by a later command of another node. Returns whether that command
    /// is the latest one, which it is not if this node still has to append a command about the same ban.
    pub(super) fn replace(&mut self, name: &Bytes) -> bool {
        if self.is_open(name) {
            self.retain(|own| own.is_due() || own.name() != Some(name));
        }
        !self.is_open(name)
    }

    /// Returns whether a command about this ban is to be appended again.
    pub(super) fn is_open(&self, name: &Bytes) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the commands of this node to be appended again, with their bans: all of the last minute, and older ones
    /// with a lasting effect that were not appended yet. A changed time limit makes each repetition a different entry:
    /// at the offset of a lost entry it must not be mistaken for that one, because the entries before it may differ.
    pub(super) fn again(&mut self, now_ms: u64) -> Vec<(Bytes, Option<Ban>)> {
        self.forget_old(now_ms);
        let mut again = Vec::with_capacity(self.own.len());
        for own in &mut self.own {
            own.envelope.within_ms += 1;
            let ban = own.ban.as_ref().map(|(_, ban)| ban.clone());
            let bytes = own.envelope.encode();
            again.extend(bytes.map(|bytes| (bytes.into(), ban)));
        }
        again
    }

    fn forget_old(&mut self, now_ms: u64) {
        self.retain(|own| own.is_due() || now_ms < own.at_ms + AGAIN_MS);
    }

    fn retain(&mut self, is_kept: impl Fn(&Own) -> bool) {
        let names = &mut self.names;
        self.own.retain(|own| {
            let is_kept = is_kept(own);
            if !is_kept {
                forget_name(names, own);
            }
            is_kept
        });
    }
}

fn forget_name(names: &mut HashMap<Bytes, usize>, own: &Own) {
    if let Some(name) = own.name()
        && let Some(count) = names.get_mut(name)
    {
        *count -= 1;
        if *count == 0 {
            names.remove(name);
        }
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
