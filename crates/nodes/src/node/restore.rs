//! Stored bans: a starting node applies them, and after a loss of data in the store it compares them with its own.

use std::collections::HashSet;

use bytes::Bytes;

use super::{Node, Output, commands};
use crate::{Ban, BanRequest, DecodeError, NodeMessage};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Restore {
    /// The names of stored bans.
    stored: HashSet<Bytes>,
    /// Whether the store has lost entries that this node has read. If not, this node has missed entries, and a ban of
    /// its own that is not stored may have ended in the meantime.
    pub(super) is_stream_lost: bool,
}

impl Restore {
    /// Records the names of the stored bans.
    pub(super) fn found(&mut self, values: &[(Bytes, Bytes)]) {
        self.stored = values.iter().map(|(name, _)| name.clone()).collect();
    }
}

impl Node {
    /// The stored bans were read.
    pub(super) fn table(&mut self, ticket: u64, values: &[(Bytes, Bytes)]) {
        for (_, value) in values {
            match commands::read_block(value) {
                Some(block) => {
                    let caller = None;
                    let message = NodeMessage::Block(BanRequest { block, caller });
                    self.begin(message, None, 0);
                }
                None => self.counts.ignored.add(DecodeError::Foreign),
            }
        }
        let is_last = self.commands.is_table_read(ticket);
        if is_last && let Some(restore) = &mut self.restore {
            restore.found(values);
            self.outputs.push_back(Output::StoreBlocks);
        }
        if is_last && self.commands.last().is_some() {
            self.caught_up();
        }
    }

    /// Stores those of the bans in force on this node that are missing in the store, as [`StoreBlocks`](Output::StoreBlocks)
    /// asks. Where the store has lost commands, other nodes are told too: one that was cut off has never heard of them.
    pub fn restore_blocks(&mut self, bans: impl IntoIterator<Item = Ban>) {
        let Some(restore) = self.restore.take() else {
            return;
        };
        for block in bans {
            let name = commands::block_name(&block);
            // A ban whose command is still being appended is stored by that.
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
