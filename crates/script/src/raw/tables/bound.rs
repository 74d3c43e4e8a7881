//! The tables used by a VM.

use std::rc::Rc;
use std::sync::Arc;

use mlua::Table as LuaTable;
use veche_store::table::Table;

/// A table of `veche.table` that a VM uses.
pub(crate) struct BoundTable {
    pub(crate) table: Arc<Table>,
    /// Addresses of the column names as Lua strings. Lua stores each string only once, so equal addresses mean equal names.
    pub(super) places: Box<[*const u8]>,
    /// Keeps the Lua strings of the column names alive.
    _names: LuaTable,
}

/// The tables that a VM has used so far; a table's number is its index. The list never shrinks, so the numbers in Lua
/// objects stay valid.
#[derive(Default)]
pub(crate) struct BoundTables {
    pub(super) list: Vec<Rc<BoundTable>>,
}

impl BoundTables {
    /// Returns the number of a table, if it has one.
    pub(crate) fn number(&self, table: &Arc<Table>) -> Option<u32> {
        let mut list = self.list.iter();
        let known = list.position(|bound| Arc::ptr_eq(&bound.table, table));
        known.map(|number| number as u32)
    }

    /// Assigns a number to a table. `names` are the names of the table's columns as Lua strings.
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

    /// Returns the table that has this number.
    pub(crate) fn table(&self, number: u32) -> Arc<Table> {
        Arc::clone(&self.list[number as usize].table)
    }
}
