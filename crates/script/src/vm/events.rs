//! Delivers channel and user events to a script in batches, each after the previous one was handled.

use mlua::Table;

use super::{HandlerName, Vm};
use crate::Now;
use crate::modules;
use crate::raw::Argument;
use crate::task::TaskOwner;
use veche_runtime::ChannelEventView;
use veche_runtime::Level;

impl Vm {
    /// Returns whether the script handles events.
    #[must_use]
    pub fn has_event_handlers(&self) -> bool {
        self.has(HandlerName::Events)
    }

    /// Returns whether the VM can take a batch of events now.
    #[must_use]
    pub fn takes_events(&self) -> bool {
        self.has(HandlerName::Events) && self.gate.is_none() && !self.is_handling_events
    }

    /// Delivers a batch if [`takes_events`](Self::takes_events). `lost` is the number of events before the batch
    /// that were dropped because the queue was full.
    pub fn deliver(&mut self, events: &[ChannelEventView<'_>], lost: u64, now: Now) {
        self.set_now(now);
        let Some(function) = self.handlers[HandlerName::Events as usize] else {
            return;
        };
        let list = match self.list_of(events) {
            Ok(list) => list,
            Err(error) => return self.context.log(Level::Error, modules::words(&error)),
        };
        let list = match self.machine.keep(list) {
            Ok(list) => list,
            Err(error) => return self.context.log(Level::Error, modules::words(&error)),
        };
        let arguments = [Argument::Registered(list), Argument::Number(lost as f64)];
        let coroutine = self.machine.prepare(function, &arguments);
        self.machine.release(list);
        self.is_handling_events = true;
        self.begin_or_keep(coroutine, TaskOwner::Events);
    }

    fn list_of(&self, events: &[ChannelEventView<'_>]) -> mlua::Result<Table> {
        let lua = &self.lua;
        let list = lua.create_table_with_capacity(events.len(), 0)?;
        for (index, event) in events.iter().enumerate() {
            let table = lua.create_table()?;
            table.raw_set("type", event.kind)?;
            table.raw_set("channel", event.channel)?;
            table.raw_set("user", event.user)?;
            table.raw_set("client", event.client)?;
            // If a client's `info` can't be decoded for Lua, the event is delivered without it.
            if let Some(Ok(info)) = event.info.map(|info| modules::json::decode(lua, info)) {
                table.raw_set("info", info)?;
            }
            table.raw_set("at", event.at_ms as f64 / 1e3)?;
            list.raw_set(index + 1, table)?;
        }
        Ok(list)
    }
}
