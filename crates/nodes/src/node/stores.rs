//! Values that this node has ordered the engine to store in its tables, and whose storage is not
//! confirmed yet.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

/// The values whose storage is not confirmed yet; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Stores {
    /// The unconfirmed orders by ticket, each with a name and the value to store; `None` if the
    /// stored value is to be removed.
    open: BTreeMap<u64, (Bytes, Option<Bytes>)>,
    tickets: HashMap<Bytes, u64>,
}

impl Stores {
    /// Records an order to store a value. It replaces an earlier order with the same name.
    pub(super) fn ordered(&mut self, ticket: u64, name: Bytes, value: Option<Bytes>) {
        self.forget(&name);
        self.tickets.insert(name.clone(), ticket);
        self.open.insert(ticket, (name, value));
    }

    /// Removes the value of an order that the engine has executed.
    pub(super) fn mark_stored(&mut self, ticket: u64) {
        if let Some((name, _)) = self.open.remove(&ticket) {
            self.tickets.remove(&name);
        }
    }

    /// Drops a value because a later command of another node has replaced it.
    pub(super) fn forget(&mut self, name: &Bytes) {
        if let Some(ticket) = self.tickets.remove(name) {
            self.open.remove(&ticket);
        }
    }

    /// Removes and returns all values in the order of their tickets, so that the node can order
    /// their storage a second time.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + use<> {
        self.tickets.clear();
        std::mem::take(&mut self.open).into_values()
    }
}
