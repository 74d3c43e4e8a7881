//! The control stream: how a node reads it, executes its commands, and appends its own.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::Position;

use super::callers::caller_of;
use super::commands::{self, Next};
use super::task::TaskOrigin;
use super::{BLOCKS, Node, Output};
use crate::engine::peer::{Entries, LEASE_RENEWAL_MS, Order};
use crate::{Ban, BanRequest, DecodeError, Envelope, NodeMessage};

impl Node {
    /// Reads the control stream from the last known entry on. If none is known, reads the whole stream and the stored
    /// bans.
    pub(super) fn begin_reading(&mut self) {
        self.is_current = false;
        // If the stored bans were read only in part, bans may be missing whose entries in the stream are older than the
        // last known one. So the whole stream and the stored bans are read again.
        if self.commands.is_table_open() {
            self.commands.forget();
        }
        self.read_on();
        if self.commands.last().is_none() {
            let ticket = self.ticket();
            self.commands.read_table(ticket);
            let table = Arc::from(BLOCKS);
            self.order(Order::ReadTable { ticket, table });
        }
        let ticket = self.ticket();
        self.order(Order::ReadLeases { ticket });
    }

    /// Handles an entry of the control stream that the feed has delivered.
    pub(super) fn entry(&mut self, position: Position, before: u64, bytes: &Bytes) {
        if !self.is_current {
            self.commands.has_skipped = true;
            return;
        }
        match self.commands.next(position, before, bytes) {
            Next::Take => self.take_command(bytes),
            // The feed delivers no entry twice. An entry that is not above the last known offset therefore suggests
            // that the store has lost entries.
            Next::Skip => self.read_on(),
            Next::Gap => {
                self.counts.gaps += 1;
                self.begin_reading();
            }
        }
    }

    /// Handles the result of a read of the control stream. `known` is the last known offset when the read was ordered;
    /// the feed may have delivered later entries since.
    pub(super) fn control_read(&mut self, stream: Entries, known: u64) {
        let Some(last) = self.commands.last() else {
            // The stored bans are read next.
            self.commands.set_found(stream.top, stream.entries);
            return;
        };
        if stream.top.epoch != last.epoch
            || stream.top.offset < known
            || self.commands.is_replaced(&stream.entries)
        {
            // The store has lost entries. Each node appends its commands of the last minute again. This node has
            // executed all older commands, unless it was cut off for more than a minute.
            self.commands.stream_is_lost(self.now_ms);
            let are_late = self.now_ms >= self.current_until_ms + commands::AGAIN_MS;
            return self.begin_again(are_late, true);
        }
        if stream.before > last.offset {
            return self.begin_again(true, false);
        }
        for (offset, bytes) in &stream.entries {
            if *offset > last.offset {
                self.take_command(bytes);
            }
        }
        if stream.top.offset >= last.offset {
            self.commands.set_last(stream.top, &stream.entries);
        }
        self.caught_up();
    }

    /// Reads the whole stream and the stored bans again. `are_commands_lost`: commands of other nodes were lost, so
    /// this is counted and reported. `is_stream_lost`: the store has lost entries.
    fn begin_again(&mut self, are_commands_lost: bool, is_stream_lost: bool) {
        if are_commands_lost {
            self.counts.lost += 1;
            self.outputs.push_back(Output::Lost);
        }
        self.commands.forget();
        let restore = self.restore.get_or_insert_default();
        restore.is_stream_lost |= is_stream_lost;
        self.begin_reading();
    }

    pub(super) fn caught_up(&mut self) {
        self.current_until_ms = self.now_ms;
        if self.is_current {
            return;
        }
        self.is_current = true;
        self.peers.renew_all(self.now_ms);
        self.last_echo_ms = self.now_ms;
        self.append_again();
        self.announce_at_ms = self.now_ms + LEASE_RENEWAL_MS;
        self.outputs.push_back(Output::Announce);
        if std::mem::take(&mut self.commands.has_skipped) {
            self.read_on();
        }
    }

    /// Reads the stream from the last known entry on, while the node keeps working.
    pub(super) fn read_on(&mut self) {
        let ticket = self.ticket();
        self.commands.read(ticket);
        let since = self.commands.since();
        self.order(Order::ReadControl { ticket, since });
    }

    /// Repeats the stores and appends of this node that the store may have lost. A store that was rolled back has lost
    /// both the value in the table and the entry in the stream. The table comes first, because a node that starts reads
    /// the stream before the table.
    pub(super) fn append_again(&mut self) {
        for (name, value) in self.stores.take() {
            self.store(name, value);
        }
        for (bytes, ban) in self.commands.again(self.now_ms) {
            if let Some(ban) = ban {
                self.store_block(&ban);
            }
            self.append(bytes);
        }
    }

    pub(super) fn append(&mut self, bytes: Bytes) {
        let ticket = self.ticket();
        self.order(Order::Append { ticket, bytes });
    }

    /// Executes a command of the stream, unless this node has executed it before.
    pub(super) fn take_command(&mut self, bytes: &[u8]) {
        let Some(envelope) = self.decode(bytes) else {
            return;
        };
        let Envelope {
            source,
            sequence,
            within_ms,
            message,
        } = envelope;
        if source == self.id {
            if let Some(block) = self.commands.mark_read(sequence) {
                // The ban is stored again, because another node may since have stored its own command
                // about the same user.
                self.store_block(&block);
                self.apply(block);
            }
            return;
        }
        if !message.is_sequenced() {
            return self.counts.ignored.add(DecodeError::Foreign);
        }
        if !self.commands.is_new(source, sequence) {
            return;
        }
        if let NodeMessage::Block(command) = &message {
            let name = commands::block_name(&command.block);
            if self.commands.replace(&name) {
                self.stores.forget(&name);
            }
        }
        self.counts.commands += 1;
        let origin = caller_of(&message).map(|caller| TaskOrigin::Node(source, caller));
        self.begin(message, origin, within_ms.into());
    }

    /// Has the server process apply a ban whose caller needs no answer.
    pub(super) fn apply(&mut self, block: Ban) {
        let message = NodeMessage::Block(BanRequest {
            block,
            caller: None,
        });
        self.outputs.push_back(Output::Perform(message));
    }
}
