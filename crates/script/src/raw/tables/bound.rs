//! The tables that a VM has asked for.

use std::rc::Rc;
use std::sync::Arc;

use mlua::Table as LuaTable;
use veche_store::table::Table;

/// A table that a VM has asked for.
pub(crate) struct BoundTable {
    pub(crate) table: Arc<Table>,
    /// Where Lua keeps the names of the columns: it has each string once, so equal places mean equal
    /// name.
    pub(super) places: Box<[*const u8]>,
    /// Keeps them there.
    _names: LuaTable,
}

/// What a VM has asked for so far, by number. It never shrinks: an object's number stays good.
#[derive(Default)]
pub(crate) struct BoundTables {
    pub(super) list: Vec<Rc<BoundTable>>,
}

impl BoundTables {
    /// The number of a table, if it has one.
    pub(crate) fn number(&self, table: &Arc<Table>) -> Option<u32> {
        let mut list = self.list.iter();
        let known = list.position(|bound| Arc::ptr_eq(&bound.table, table));
        known.map(|number| number as u32)
    }

    /// Gives a table a number; `names` are its columns', as Lua's strings.
    pub(crate) fn keep(&mut self, table: Arc<Table>, names: LuaTable) -> mlua::Result<u32> {
        let places = names
            .sequence_values::<mlua::LuaString>()
            .map(|name| Ok(name?.as_bytes().as_ptr()))
            .collect::<mlua::Result<_>>()?;
        self.list.push(Rc::new(BoundTable {
            table,
            places,
            _names: names,
        }));
        Ok(self.list.len() as u32 - 1)
    }

    /// The table of a number that was given out.
    pub(crate) fn table(&self, number: u32) -> Arc<Table> {
        Arc::clone(&self.list[number as usize].table)
    }
}
