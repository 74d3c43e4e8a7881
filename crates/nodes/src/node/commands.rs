//! The state of the control stream on one node: the last entry read, the commands executed, and the node's own commands
//! that may have to be appended again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use veche_types::Position;

use crate::{Ban, Envelope, NodeId};

/// The age in milliseconds up to which a node appends its own commands again after a broken connection. Commands with a
/// lasting effect, such as bans, are appended at any age.
pub(super) const AGAIN_MS: u64 = 60_000;

/// The maximum number of this node's commands that are kept for appending again. The oldest are dropped first.
const AGAIN_MAX: usize = 10_000;

/// The maximum number of nodes whose executed commands are tracked. Repeated commands of further nodes are executed
/// again.
const SOURCES_MAX: usize = 1024;

/// The maximum number of executed commands tracked per node above the first missing sequence number. If there are more,
/// the missing commands with the lowest numbers count as executed.
const APART_MAX: usize = 1024;

/// How an entry of the control stream is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Take,
    /// The entry's offset is not above the last known offset, or no offset is known.
    Skip,
    /// Entries before this one are missing.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct NodeCommands {
    last: Option<Position>,
    /// The bytes of the entry at position `last`, if known. A store that was rolled back may assign
    /// the same offset to another entry.
    last_entry: Option<Bytes>,
    /// The ticket of the last order to read the stream, and the last known offset at that time.
    reading: Option<(u64, u64)>,
    /// The ticket of the last order to read the stored bans, until it is answered.
    reading_table: Option<u64>,
    /// The entries read from the stream, kept until the stored bans have arrived. The entries and
    /// the stored bans are both needed, because a ban may be in only one of them.
    found: Vec<(u64, Bytes)>,
    carried_out: HashMap<NodeId, CarriedOut>,
    /// Commands of this node that may have to be appended again, oldest first.
    own: VecDeque<Own>,
    /// The number of commands in `own` for each ban, by the ban's name.
    names: HashMap<Bytes, usize>,
    /// Whether a command or value of this node may be missing in the engine.
    pub(super) is_unsure: bool,
    /// Whether entries of the feed were skipped during a read. The read may not have returned these
    /// entries.
    pub(super) has_skipped: bool,
}

/// A command that this node has sent.
#[derive(Debug)]
struct Own {
    at_ms: u64,
    envelope: Envelope,
    /// The name of the ban that the command sets or ends, and the ban. A ban has a lasting effect, so the
    /// command is kept until the stream contains it, however long that takes.
    ban: Option<(Bytes, Ban)>,
    state: OwnState,
    /// Whether this node has executed this command and then another node's command about the same ban, although the
    /// stream contains them in the opposite order. The ban must then be applied again.
    is_overtaken: bool,
}

/// Whether the control stream contains a command of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnState {
    /// The command was not read from the stream yet.
    Unread,
    /// The command was read from the stream.
    Read,
    /// The command was read from the stream, which may have lost it since.
    Lost,
}

impl Own {
    fn is_due(&self) -> bool {
        self.ban.is_some() && self.state != OwnState::Read
    }

    fn name(&self) -> Option<&Bytes> {
        self.ban.as_ref().map(|(name, _)| name)
    }
}

/// The sequence numbers of the executed commands of one node.
#[derive(Debug)]
struct CarriedOut {
    /// All commands up to this sequence number were executed.
    floor: u64,
    /// The sequence numbers above `floor` whose commands were executed.
    above: BTreeSet<u64>,
}

impl NodeCommands {
    pub(super) fn last(&self) -> Option<Position> {
        self.last
    }

    /// Returns the offset after which to read: one below that of the last known entry, so that this
    /// entry is read again and compared. If no entry is known, returns 0, to read all entries.
    pub(super) fn since(&self) -> u64 {
        self.last.map_or(0, |last| last.offset.saturating_sub(1))
    }

    /// Sets the last known entry to the latest of the entries read.
    pub(super) fn set_last(&mut self, top: Position, entries: &[(u64, Bytes)]) {
        let at_top = entries.last().filter(|(offset, _)| *offset == top.offset);
        match at_top {
            Some((_, bytes)) => self.last_entry = Some(bytes.clone()),
            None if self.last == Some(top) => {}
            None => self.last_entry = None,
        }
        self.last = Some(top);
    }

    /// Returns whether the store has a different entry at the offset of the last known entry.
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
        self.found.clear();
    }

    /// Sets the last known entry of the stream, and keeps `entries` until the stored bans have arrived.
    pub(super) fn set_found(&mut self, top: Position, entries: Vec<(u64, Bytes)>) {
        self.set_last(top, &entries);
        self.found = entries;
    }

    /// Takes the entries that were stored by [`set_found`](Self::set_found).
    pub(super) fn take_found(&mut self) -> Vec<(u64, Bytes)> {
        std::mem::take(&mut self.found)
    }

    /// Handles the loss of stream entries, which may include commands of this node.
    pub(super) fn stream_is_lost(&mut self, now_ms: u64) {
        self.forget_old(now_ms);
        for own in &mut self.own {
            if own.state == OwnState::Read {
                own.state = OwnState::Lost;
            }
        }
    }

    /// Records an order to read the stream. Answers to earlier orders are ignored from now on.
    pub(super) fn read(&mut self, ticket: u64) {
        let known = self.last.map_or(0, |last| last.offset);
        self.reading = Some((ticket, known));
    }

    /// If `ticket` is that of the last order to read the stream, returns the last known offset at the time of that
    /// order.
    pub(super) fn take_known_offset(&mut self, ticket: u64) -> Option<u64> {
        let reading = self.reading.take_if(|(last, _)| *last == ticket);
        reading.map(|(_, known)| known)
    }

    /// Records an order to read the stored bans.
    pub(super) fn read_table(&mut self, ticket: u64) {
        self.reading_table = Some(ticket);
    }

    pub(super) fn is_table_open(&self) -> bool {
        self.reading_table.is_some()
    }

    /// Returns whether `ticket` is that of the last order to read the stored bans. If so, marks that order as answered.
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

    /// Records a command as executed. Returns whether it had not been executed before.
    pub(super) fn is_new(&mut self, source: NodeId, sequence: u64) -> bool {
        if let Some(known) = self.carried_out.get_mut(&source) {
            return known.is_new(sequence);
        }
        if self.carried_out.len() < SOURCES_MAX {
            // Commands with lower numbers may follow, if the store has lost them and their source appends them again.
            let above = BTreeSet::from([sequence]);
            self.carried_out
                .insert(source, CarriedOut { floor: 0, above });
        }
        true
    }

    /// Stores a command of this node, so that it can be appended again. A command that sets or ends
    /// a `ban` is kept, however old, until the stream contains it.
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
            state: OwnState::Unread,
            is_overtaken: false,
        });
    }

    /// Records that the stream contains a command of this node. Returns the command's ban if it must be applied again:
    /// if this node has executed other commands about the ban after this one, although they precede it in the stream.
    pub(super) fn mark_read(&mut self, sequence: u64) -> Option<Ban> {
        let own = &mut self.own;
        let place = own.binary_search_by_key(&sequence, |own| own.envelope.sequence);
        let own = &mut own[place.ok()?];
        own.state = OwnState::Read;
        let is_overtaken = std::mem::take(&mut own.is_overtaken);
        let ban = own.ban.as_ref().filter(|_| is_overtaken);
        ban.map(|(_, ban)| ban.clone())
    }

    /// Handles another node's command about the ban `name`. Drops those of this node's commands about the ban that were
    /// already read from the stream. Returns `false` if this node has another command about the ban that it has not
    /// read from the stream yet: that command comes later in the stream.
    pub(super) fn replace(&mut self, name: &Bytes) -> bool {
        if self.is_open(name) {
            self.retain(|own| own.state == OwnState::Unread || own.name() != Some(name));
        }
        if !self.is_open(name) {
            return true;
        }
        for own in &mut self.own {
            if own.name() == Some(name) {
                own.is_overtaken = true;
            }
        }
        false
    }

    /// Returns whether this node has a command about the ban `name` that may have to be appended again.
    pub(super) fn is_open(&self, name: &Bytes) -> bool {
        self.names.contains_key(name)
    }

    /// Returns this node's commands to append again, with their bans: all of the last minute, and
    /// older ones with a lasting effect that the stream does not contain. Each repetition gets a
    /// different time limit, so its bytes differ from those of the original entry. Otherwise a
    /// repetition could get the offset of its lost original, and [`is_replaced`](Self::is_replaced)
    /// would not notice that the store has lost entries.
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

/// Returns the name under which a ban is stored. A later ban with the same name replaces the stored one.
pub(super) fn block_name(block: &Ban) -> Bytes {
    let (kind, name) = match block {
        Ban::User { user, .. } | Ban::UserAllowed { user } => ("user", user),
        Ban::Token { id, .. } => ("token", id),
        Ban::TokensOf { user, .. } => ("tokens", user),
    };
    format!("{kind}:{name}").into()
}

/// Returns the stored form of a ban; `None` if the command ends a ban.
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
