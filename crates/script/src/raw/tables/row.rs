//! Transfers rows between Lua's stack and a table.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};
use veche_store::table::{Cell, Column, InputValue, Row, TableError, Type};

use super::{Call, FaultSubject, shown};

/// The integer up to which Lua can represent all integers exactly.
const EXACT_MAX: u128 = 1 << 53;

/// Returns the value at a stack index. The bytes of a string are not copied.
///
/// # Safety
/// A string's bytes are valid only as long as the value stays on the stack.
pub(super) unsafe fn given<'a>(state: *mut lua_State, index: c_int) -> InputValue<'a> {
    // SAFETY: the caller keeps a string on the stack; no call raises an error, since no call converts a value to a
    // string.
    unsafe {
        match ffi::lua_type(state, index) {
            ffi::LUA_TNIL | ffi::LUA_TNONE => InputValue::Null,
            ffi::LUA_TBOOLEAN => InputValue::Bool(ffi::lua_toboolean(state, index) != 0),
            ffi::LUA_TNUMBER => InputValue::Number(ffi::lua_tonumber(state, index)),
            ffi::LUA_TSTRING => {
                let mut length = 0;
                let text = ffi::lua_tolstring(state, index, &raw mut length);
                InputValue::Text(std::slice::from_raw_parts(text.cast::<u8>(), length))
            }
            // A null pointer is `veche.null`.
            ffi::LUA_TLIGHTUSERDATA if ffi::lua_touserdata(state, index).is_null() => {
                InputValue::Null
            }
            ffi::LUA_TTABLE => InputValue::Other("table"),
            ffi::LUA_TFUNCTION => InputValue::Other("function"),
            ffi::LUA_TTHREAD => InputValue::Other("coroutine"),
            _ => InputValue::Other("userdata"),
        }
    }
}

/// Calls `look` with the column's number and the value of each field of the table at a stack index.
///
/// # Safety
/// The table's content is not changed while values are used.
unsafe fn fields<'a>(
    call: &Call,
    index: c_int,
    mut look: impl FnMut(usize, InputValue<'a>) -> Result<(), FaultSubject>,
) -> Result<(), FaultSubject> {
    let state = call.state;
    // SAFETY: the caller does not change the table. A method's stack has room for a key and its value. Each key passed
    // to `lua_next` is one that `lua_next` has returned, so the call raises no error.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TTABLE {
            return Err(FaultSubject::argument(
                call.method,
                index - 1,
                "a table expected",
            ));
        }
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, index) != 0 {
            let name = given(state, -2);
            let column = match name {
                InputValue::Text(name) => call.bound.column(name),
                _ => None,
            };
            let Some(column) = column else {
                let name = match name {
                    InputValue::Text(name) => shown(name),
                    other => other.to_string(),
                };
                return Err(call.fault(&TableError::Column(name)));
            };
            look(column, given(state, -1))?;
            ffi::lua_settop(state, -2);
        }
    }
    Ok(())
}

impl Call {
    /// Returns the row described by the Lua table at a stack index. A missing column is null, or an error if the column
    /// is not nullable.
    pub(super) fn whole_row(&self, index: c_int) -> Result<Vec<Cell<'static>>, FaultSubject> {
        let columns = self.table().schema().visible();
        let mut row = vec![Cell::Null; columns.len()];
        let mut given = 0_u128;
        // SAFETY: the table, and so its contents, stay on the stack during the call; nothing
        // changes the table meanwhile.
        unsafe {
            fields(self, index, |place, value| {
                row[place] = self.or_fault(columns[place].cell(value))?;
                given |= 1 << place;
                Ok(())
            })?;
        }
        let missing =
            |(place, column): &(usize, &Column)| given & 1 << place == 0 && !column.is_nullable;
        match columns.iter().enumerate().find(missing) {
            None => Ok(row),
            Some((_, column)) => self.or_fault(column.cell(InputValue::Null)).map(|_| row),
        }
    }

    /// Returns the columns that the Lua table at a stack index sets, each with its new value.
    pub(super) fn changes(
        &self,
        index: c_int,
    ) -> Result<Vec<(usize, Cell<'static>)>, FaultSubject> {
        let columns = self.table().schema().visible();
        let mut changes = Vec::with_capacity(columns.len());
        // SAFETY: as in `whole_row`.
        unsafe {
            fields(self, index, |place, value| {
                changes.push((place, self.or_fault(columns[place].cell(value))?));
                Ok(())
            })?;
        }
        Ok(changes)
    }
}

/// Pushes the value of a column as a Lua value.
///
/// # Safety
/// The stack has room for the value.
#[inline]
pub(super) unsafe fn push_cell(state: *mut lua_State, column: &Column, cell: Cell<'_>) {
    // SAFETY: the caller guarantees room on the stack.
    unsafe {
        match (cell, &column.kind) {
            (Cell::Null, _) => ffi::lua_pushnil(state),
            (Cell::Text(text), _) => push_bytes(state, text),
            (Cell::Bits(bits), Type::Bool) => ffi::lua_pushboolean(state, (bits != 0).into()),
            (Cell::Bits(bits), Type::Enum(words)) => {
                push_bytes(state, words[bits as usize].as_bytes());
            }
            (Cell::Bits(bits), kind @ (Type::Unsigned(64) | Type::Signed(64))) => {
                match kind.whole(bits) {
                    Some(whole) if whole.unsigned_abs() > EXACT_MAX => {
                        push_bytes(state, whole.to_string().as_bytes());
                    }
                    _ => ffi::lua_pushnumber(state, kind.number(bits)),
                }
            }
            (Cell::Bits(bits), kind) => ffi::lua_pushnumber(state, kind.number(bits)),
        }
    }
}

/// # Safety
/// The stack has room for a value.
unsafe fn push_bytes(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: the caller guarantees room on the stack; the bytes are copied.
    unsafe { _ = ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len()) }
}

/// Pushes a row as a new table.
pub(super) fn push_row(call: &Call, row: Row<'_>) {
    let state = call.state;
    let columns = call.table().schema().visible();
    // SAFETY: in a method, the first value of the stack is the table object, whose environment is the list of column
    // names. The stack has room for four values.
    unsafe {
        ffi::lua_createtable(state, 0, columns.len() as c_int);
        ffi::lua_getfenv(state, 1);
        for (place, column) in columns.iter().enumerate() {
            ffi::lua_rawgeti(state, -1, place as ffi::lua_Integer + 1);
            push_cell(state, column, row.get(place));
            ffi::lua_rawset(state, -4);
        }
        ffi::lua_settop(state, -2);
    }
}
