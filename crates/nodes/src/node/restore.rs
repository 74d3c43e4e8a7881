//! The stored bans. When a node starts, it applies the stored bans, and then the bans of the control stream. After the
//! store has lost data, the node compares the stored bans with the bans in force on the node.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::{Node, Output, commands};
use crate::{Ban, BanRequest, DecodeError, NodeMessage};

/// The comparison of the stored bans with those of this node; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Restore {
    /// The names of the bans found in the store.
    stored: HashSet<Bytes>,
    /// `true`: the store has lost entries that this node has read. `false`: this node has missed entries, so a ban that
    /// is in force here but not stored may have ended in the meantime.
    pub(super) is_stream_lost: bool,
}

impl Restore {
    /// Records the names of the stored bans.
    pub(super) fn found(&mut self, values: &[(Bytes, Bytes)]) {
        self.stored = values.iter().map(|(name, _)| name.clone()).collect();
    }
}

impl Node {
    /// Handles the stored bans that were read.
    pub(super) fn table(&mut self, ticket: u64, values: &[(Bytes, Bytes)]) {
        for (_, value) in values {
            match commands::read_block(value) {
                Some(block) => self.apply(block),
                None => self.counts.ignored.add(DecodeError::Foreign),
            }
        }
        let is_last = self.commands.is_table_read(ticket);
        if is_last {
            self.found_entries(values);
        }
        if is_last && let Some(restore) = &mut self.restore {
            restore.found(values);
            self.outputs.push_back(Output::StoreBlocks);
        }
        if is_last && self.commands.last().is_some() {
            self.caught_up();
        }
    }

    /// Executes the commands of the stream that were read together with the stored bans `values`. A
    /// node that starts executes only the last command about each ban, since it has no connections
    /// that other commands could concern.
    fn found_entries(&mut self, values: &[(Bytes, Bytes)]) {
        let entries = self.commands.take_found();
        if self.restore.is_some() {
            for (_, bytes) in &entries {
                self.take_command(bytes);
            }
            return;
        }
        let mut last = BTreeMap::new();
        for (_, bytes) in &entries {
            let Some(envelope) = self.decode(bytes) else {
                continue;
            };
            self.commands.is_new(envelope.source, envelope.sequence);
            if let NodeMessage::Block(command) = envelope.message {
                last.insert(commands::block_name(&command.block), command.block);
            }
        }
        for (name, value) in values {
            if last.get(name).and_then(commands::block_value).as_ref() == Some(value) {
                last.remove(name);
            }
        }
        for block in last.into_values() {
            self.apply(block);
        }
    }

    /// Stores those bans in force on this node that are missing in the store, as requested by
    /// [`StoreBlocks`](Output::StoreBlocks). If the store has lost entries, the bans are also sent to the other nodes,
    /// because a node that was cut off may not have received them.
    pub fn restore_blocks(&mut self, bans: impl IntoIterator<Item = Ban>) {
        let Some(restore) = self.restore.take() else {
            return;
        };
        for block in bans {
            let name = commands::block_name(&block);
            // A ban whose command may still have to be appended is stored together with the command.
            if restore.stored.contains(&name) || self.commands.is_open(&name) {
                continue;
            }
            match restore.is_stream_lost {
                true => {
                    let caller = None;
                    self.command(NodeMessage::Block(BanRequest { block, caller }));
                }
                false => self.store_block(&block),
            }
        }
    }
}
