//! Values of this node in tables of the engine that may not be stored yet: their orders were not answered.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Stores {
    /// By ticket: names and values, `None` for those to be removed.
    open: BTreeMap<u64, (Bytes, Option<Bytes>)>,
    tickets: HashMap<Bytes, u64>,
}

impl Stores {
    /// Records an order, which replaces an earlier one about the same name.
    pub(super) fn ordered(&mut self, ticket: u64, name: Bytes, value: Option<Bytes>) {
        self.forget(&name);
        self.tickets.insert(name.clone(), ticket);
        self.open.insert(ticket, (name, value));
    }

    /// Notes that an order is carried out.
    pub(super) fn mark_stored(&mut self, ticket: u64) {
        if let Some((name, _)) = self.open.remove(&ticket) {
            self.tickets.remove(&name);
        }
    }

    /// Drops a value that a later command of another node has replaced.
    pub(super) fn forget(&mut self, name: &Bytes) {
        if let Some(ticket) = self.tickets.remove(name) {
            self.open.remove(&ticket);
        }
    }

    /// Takes all values, which are ordered again in the same sequence.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + use<> {
        self.tickets.clear();
        std::mem::take(&mut self.open).into_values()
    }
}
