//! The connections of an application on one worker, as seen by scripts. They outlive a VM when code is reloaded.

use std::collections::HashMap;

use crate::ConnectionId;
use veche_runtime::{Attribute, AttributeError, Attributes, Request};

/// The number of bytes that one batch of effects may send on a connection to another server. Further messages are rejected.
const CLIENT_RUN_BYTES_MAX: usize = 1 << 20;

/// A connection of the application.
#[derive(Debug)]
pub(crate) struct ScriptConnection {
    generation: u32,
    /// Whether no more data can be sent, because the server has sent a Close frame, or the connection has closed.
    is_closing: bool,
    /// The request that opened the connection; `None` for an outgoing connection.
    pub(crate) request: Option<Box<Request>>,
    load: SendBacklog,
    attributes: Attributes,
}

/// Data that waits to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct SendBacklog {
    /// Whether the backlog exceeds its limit. The result of each send reports this.
    is_full: bool,
    /// The number of the batch of effects in which `bytes` were sent.
    batch: u32,
    bytes: usize,
}

/// Whether a message is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendRoom {
    /// The message is accepted.
    Yes,
    /// The message is accepted, but the sender should wait before the next one.
    Over,
    /// The message to another server is rejected.
    No,
}

/// If one batch of effects has more bytes than this for a client, the connection may be full.
/// Whether it is full is known only after the batch is executed.
const RUN_BYTES_HIGH: usize = 64 << 10;

/// All connections, by index.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    slots: Vec<Option<ScriptConnection>>,
    /// Closed connections whose index is reused while one of their handlers is suspended.
    leaving: HashMap<ConnectionId, ScriptConnection>,
}

impl ConnectionTable {
    pub(crate) fn open(&mut self, id: ConnectionId, request: Box<Request>) {
        self.insert(id, Some(request));
    }

    /// Adds an outgoing connection.
    pub(crate) fn open_client(&mut self, id: ConnectionId) {
        self.insert(id, None);
    }

    fn insert(&mut self, id: ConnectionId, request: Option<Box<Request>>) {
        let index = id.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].replace(ScriptConnection {
            generation: id.generation,
            is_closing: false,
            request,
            load: SendBacklog::default(),
            attributes: Attributes::default(),
        });
        if let Some(before) = before {
            let generation = before.generation;
            let id = ConnectionId { generation, ..id };
            self.leaving.insert(id, before);
        }
    }

    pub(crate) fn find(&self, id: ConnectionId) -> Option<&ScriptConnection> {
        let slot = self.slots.get(id.index as usize)?.as_ref();
        slot.filter(|slot| slot.generation == id.generation)
            .or_else(|| self.leaving.get(&id))
    }

    fn find_mut(&mut self, id: ConnectionId) -> Option<&mut ScriptConnection> {
        let slot = self.slots.get_mut(id.index as usize)?.as_mut();
        slot.filter(|slot| slot.generation == id.generation)
            .or_else(|| self.leaving.get_mut(&id))
    }

    /// Returns whether data can be sent to a connection.
    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|slot| !slot.is_closing)
    }

    /// Reserves room for a message; `None` if the connection is closed.
    pub(crate) fn take_room(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        batch: u32,
    ) -> Option<SendRoom> {
        let slot = self.find_mut(id).filter(|slot| !slot.is_closing)?;
        let load = &mut slot.load;
        if load.batch != batch {
            (load.batch, load.bytes) = (batch, 0);
        }
        if slot.request.is_some() {
            load.bytes = load.bytes.saturating_add(bytes);
            let must_wait = load.is_full || load.bytes > RUN_BYTES_HIGH;
            return Some(if must_wait {
                SendRoom::Over
            } else {
                SendRoom::Yes
            });
        }
        if load.is_full || load.bytes >= CLIENT_RUN_BYTES_MAX {
            return Some(SendRoom::No);
        }
        load.bytes += bytes;
        Some(SendRoom::Yes)
    }

    /// Returns whether a connection's backlog exceeds its limit; `None` if it is closed. See
    /// [`take_room`](Self::take_room).
    pub(crate) fn is_full(&self, id: ConnectionId) -> Option<bool> {
        let slot = self.find(id).filter(|slot| !slot.is_closing)?;
        Some(slot.load.is_full)
    }

    /// Returns whether the data sent in this batch of effects may fill the connection. Whether it does is known only
    /// after the batch is executed.
    pub(crate) fn may_be_full(&self, id: ConnectionId, batch: u32) -> bool {
        let load = self.find(id).map(|slot| slot.load);
        load.is_some_and(|load| load.batch == batch && load.bytes > RUN_BYTES_HIGH)
    }

    /// Sets whether a connection's backlog exceeds its limit.
    pub(crate) fn set_full(&mut self, id: ConnectionId, is_full: bool) {
        if let Some(slot) = self.find_mut(id) {
            slot.load.is_full = is_full;
        }
    }

    /// Returns the open client connections.
    pub(crate) fn open_ids(&self) -> impl Iterator<Item = ConnectionId> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let slot = slot.as_ref()?;
            (!slot.is_closing && slot.request.is_some()).then_some(())?;
            Some(ConnectionId {
                index: index as u32,
                generation: slot.generation,
            })
        })
    }

    /// Marks a connection as closing; returns whether it was open.
    pub(crate) fn set_closing(&mut self, id: ConnectionId) -> bool {
        let slot = self.find_mut(id);
        slot.is_some_and(|slot| !std::mem::replace(&mut slot.is_closing, true))
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let slot = self.slots.get_mut(id.index as usize);
        if self.leaving.remove(&id).is_none()
            && let Some(slot) = slot
            && slot
                .as_ref()
                .is_some_and(|slot| slot.generation == id.generation)
        {
            *slot = None;
        }
    }

    pub(crate) fn attribute(&self, id: ConnectionId, name: &str) -> Option<&Attribute> {
        self.find(id)?.attributes.get(name)
    }

    pub(crate) fn set_attribute(
        &mut self,
        id: ConnectionId,
        name: &str,
        value: Option<Attribute>,
    ) -> Result<(), AttributeError> {
        let slot = self.find_mut(id).ok_or(AttributeError::Closed)?;
        slot.attributes.set(name, value)
    }
}
