//! Tables as scripts see them: objects whose methods are plain C functions.
//!
//! An object holds the number of its table in the [`HostContext`], and a list with the names of the
//! columns as Lua strings. Arguments are read in place on the stack, and rows are pushed while the
//! table is locked for reading: no value is copied in between.
//!
//! A method returns its error as a value. [`method`] raises the error after all values with a
//! destructor are dropped.

pub(crate) mod bound;
mod row;
mod scan;

use std::ffi::{CStr, c_int};
use std::rc::Rc;
use std::sync::Arc;

use mlua::ffi::{self, lua_State};
use mlua::{Lua, Table as LuaTable};
use veche_store::table::{
    Batch, CHANGES_DEFAULT, CHANGES_MAX, Cell, InputValue, PutMode, RowSnapshot, Table, TableError,
    UpdateResult, Watcher,
};
use veche_store::{QueueItem, Value, WaitSide};

use super::functions::{closure, context};
use super::object;
use crate::ConnectionId;
use crate::host_context::HostContext;
use crate::ttl;
use bound::BoundTable;
use row::{push_cell, push_row};

/// Returns a Lua table with the constructor, the methods and the metatable of table objects.
pub(crate) fn functions(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<LuaTable> {
    let (functions, meta) = (lua.create_table()?, lua.create_table()?);
    let all: [(&str, ffi::lua_CFunction); 21] = [
        ("new", new),
        ("number", number),
        ("get", get),
        ("has", has),
        ("json", json),
        ("insert", insert),
        ("add", add),
        ("upsert", upsert),
        ("update", update),
        ("incr", incr),
        ("delete", delete),
        ("see", see),
        ("update_seen", update_seen),
        ("note", note),
        ("watch", watch),
        ("next", next),
        ("scan", scan::begin),
        ("values", scan::begin_values),
        ("columns", scan::columns),
        ("more", scan::more),
        ("sum", scan::sum),
    ];
    for (name, function) in all {
        functions.set(name, closure(lua, function, context, &meta)?)?;
    }
    functions.set("meta", meta)?;
    Ok(functions)
}

/// Formats an unknown column or index name for an error.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The maximum number of bytes of a name that an error shows; valid names are shorter.
const SHOWN_BYTES_MAX: usize = 256;

/// The text of a method's error.
pub(super) struct FaultSubject(String);

impl FaultSubject {
    fn argument(method: &str, number: c_int, words: impl std::fmt::Display) -> Self {
        Self(format!(
            "bad argument #{number} to 'table:{method}': {words}"
        ))
    }
}

/// A call of a method.
struct Call {
    state: *mut lua_State,
    method: &'static str,
    bound: Rc<BoundTable>,
    now_ms: u64,
}

impl Call {
    fn table(&self) -> &Table {
        &self.bound.table
    }

    fn fault(&self, error: &TableError) -> FaultSubject {
        FaultSubject(format!("table {}: {error}", self.table().name()))
    }

    fn or_fault<T>(&self, result: Result<T, TableError>) -> Result<T, FaultSubject> {
        result.map_err(|error| self.fault(&error))
    }

    /// Returns the key at a stack index; `None` for a key that no row can have, such as a number out of range.
    fn key(&self, index: c_int) -> Result<Option<Cell<'static>>, FaultSubject> {
        // SAFETY: the argument stays on the stack for as long as the call lasts.
        let given = unsafe { row::given(self.state, index) };
        if given == InputValue::Null {
            return Err(FaultSubject::argument(
                self.method,
                index - 1,
                "a key expected",
            ));
        }
        self.or_fault(self.table().key(given))
    }

    /// Returns the number of the column whose name is at a stack index.
    fn column(&self, index: c_int) -> Result<usize, FaultSubject> {
        // SAFETY: as in `key`.
        match unsafe { row::given(self.state, index) } {
            InputValue::Text(name) => {
                let place = self.bound.column(name);
                let missing = || TableError::Column(shown(name));
                place.ok_or_else(|| self.fault(&missing()))
            }
            _ => Err(FaultSubject::argument(
                self.method,
                index - 1,
                "the name of a column expected",
            )),
        }
    }

    /// Returns the time to live at a stack index, in milliseconds; `None` if the argument is nil.
    fn ttl(&self, index: c_int) -> Result<Option<u64>, FaultSubject> {
        // SAFETY: as in `key`.
        match unsafe { row::given(self.state, index) } {
            InputValue::Null => Ok(None),
            _ if !self.table().schema().has_ttl => Err(FaultSubject::argument(
                self.method,
                index - 1,
                "the table has no ttl",
            )),
            given => {
                let ttl_ms = match given {
                    InputValue::Number(seconds) => ttl::ms(seconds),
                    _ => None,
                };
                let expected = || format!("{} expected", ttl::EXPECTED);
                let fault = || FaultSubject::argument(self.method, index - 1, expected());
                ttl_ms.map(Some).ok_or_else(fault)
            }
        }
    }
}

impl BoundTable {
    fn column(&self, name: &[u8]) -> Option<usize> {
        self.places.iter().position(|place| *place == name.as_ptr())
    }
}

/// Runs a method; raises its error after all values of the method are dropped.
///
/// # Safety
/// Must be called in a function made by [`functions`], as its last step.
unsafe fn method(
    state: *mut lua_State,
    name: &'static str,
    run: impl FnOnce(&Call) -> Result<c_int, FaultSubject>,
) -> c_int {
    // SAFETY: `functions` created the calling closure. Each object with this metatable was created
    // by `new` with a number that the host context has issued.
    unsafe {
        let found = object::read(state, 1, ffi::lua_upvalueindex(2));
        let result = match found {
            None => Err(FaultSubject(format!(
                "bad argument #1 to 'table:{name}': a table of veche.table expected (call it with a colon)"
            ))),
            Some(id) => {
                let context = context(state);
                let bound = Rc::clone(&context.tables.borrow().list[id.index as usize]);
                let call = Call {
                    state,
                    method: name,
                    bound,
                    now_ms: context.world.now.get().mono_ms,
                };
                run(&call)
            }
        };
        let Err(FaultSubject(words)) = result else {
            // LuaJIT reads all 64 bits of the returned value although an `int` fills only the lower half. Passing it
            // through memory zeroes the upper half, however the compiler has merged the branches.
            return std::hint::black_box(result.unwrap_or(0));
        };
        ffi::luaL_where(state, 1);
        ffi::lua_pushlstring(state, words.as_ptr().cast(), words.len());
        drop(words);
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// `new(number, names)` → an object for the table with this number and these column names.
unsafe extern "C-unwind" fn new(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure with its metatable as the second upvalue. `lua/table.lua`
    // passes two arguments: a number that the host context issued, and a list. The stack has room.
    unsafe {
        let index = ffi::lua_tonumber(state, 1) as u32;
        ffi::lua_settop(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        let id = ConnectionId {
            index,
            generation: 0,
        };
        object::push(state, id);
        ffi::lua_pushvalue(state, 2);
        ffi::lua_setfenv(state, -2);
        1
    }
}

/// `number(object)` → the number of the object's table; nil if the value is not such an object.
unsafe extern "C-unwind" fn number(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure with its metatable as the second upvalue; the stack has room for a
    // value.
    unsafe {
        match object::read(state, 1, ffi::lua_upvalueindex(2)) {
            Some(id) => ffi::lua_pushnumber(state, id.index.into()),
            None => ffi::lua_pushnil(state),
        }
    }
    1
}

/// `get(table, key, …)` → the whole row or, if further arguments name columns, the values of these columns; nil if there
/// is no such row.
unsafe extern "C-unwind" fn get(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires; there are at most as many
    // columns as arguments, and room is made for them.
    unsafe {
        method(state, "get", |call| {
            let top = ffi::lua_gettop(state);
            let Some(key) = call.key(2)? else {
                ffi::lua_pushnil(state);
                return Ok(1);
            };
            if top < 3 {
                let found = call
                    .table()
                    .read(key, call.now_ms, |row| push_row(call, row));
                if found.is_none() {
                    ffi::lua_pushnil(state);
                }
                return Ok(1);
            }
            if ffi::lua_checkstack(state, top) == 0 {
                return Err(FaultSubject::argument("get", 2, "too many columns"));
            }
            // Most calls read one column, which needs no list.
            let (one, many);
            let columns = match top {
                3 => {
                    one = [call.column(3)?];
                    &one[..]
                }
                _ => {
                    let columns = (3..=top).map(|index| call.column(index));
                    many = columns.collect::<Result<Vec<_>, _>>()?;
                    &many
                }
            };
            let all = call.table().schema().visible();
            let found = call.table().read(key, call.now_ms, |row| {
                for &column in columns {
                    push_cell(state, &all[column], row.get(column));
                }
            });
            match found {
                Some(()) => Ok(top - 2),
                None => {
                    ffi::lua_pushnil(state);
                    Ok(1)
                }
            }
        })
    }
}

/// `has(table, key)` → whether the table has a row with this key.
unsafe extern "C-unwind" fn has(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "has", |call| {
            let key = call.key(2)?;
            let found = key.and_then(|key| call.table().read(key, call.now_ms, |_| ()));
            ffi::lua_pushboolean(state, found.is_some().into());
            Ok(1)
        })
    }
}

/// `json(table, key)` → a row as JSON.
unsafe extern "C-unwind" fn json(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "json", |call| {
            let key = call.key(2)?;
            let mut out = Vec::with_capacity(256);
            let found = key.and_then(|key| {
                call.table()
                    .read(key, call.now_ms, |row| row.write_json(&mut out))
            });
            match found {
                Some(()) => _ = ffi::lua_pushlstring(state, out.as_ptr().cast(), out.len()),
                None => ffi::lua_pushnil(state),
            }
            Ok(1)
        })
    }
}

unsafe fn put(
    state: *mut lua_State,
    name: &'static str,
    how: PutMode,
    returns_result: bool,
) -> c_int {
    // SAFETY: every caller is a closure created by `functions`, as `method` requires.
    unsafe {
        method(state, name, |call| {
            let row = call.whole_row(2)?;
            let ttl_ms = call.ttl(3)?;
            let is_new = call.or_fault(call.table().put(how, &row, ttl_ms, call.now_ms))?;
            if !returns_result {
                return Ok(0);
            }
            ffi::lua_pushboolean(state, is_new.into());
            Ok(1)
        })
    }
}

/// The Lua function `insert(table, row, ttl)`.
unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `put` requires.
    unsafe { put(state, "insert", PutMode::Insert, false) }
}

/// `add(table, row, ttl)` → whether the row was added.
unsafe extern "C-unwind" fn add(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `put` requires.
    unsafe { put(state, "add", PutMode::Add, true) }
}

/// `upsert(table, row, ttl)` → whether the row is new.
unsafe extern "C-unwind" fn upsert(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `put` requires.
    unsafe { put(state, "upsert", PutMode::Upsert, true) }
}

/// `update(table, key, changes)` → whether the table has a row with this key.
unsafe extern "C-unwind" fn update(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "update", |call| {
            let key = call.key(2)?;
            let changes = call.changes(3)?;
            let updated = match key {
                Some(key) => {
                    call.or_fault(call.table().update(key, &changes, None, call.now_ms))?
                }
                None => UpdateResult::NoRow,
            };
            ffi::lua_pushboolean(state, (updated == UpdateResult::Updated).into());
            Ok(1)
        })
    }
}

/// `incr(table, key, column, by)` → the new value of the column; nil if there is no such row.
unsafe extern "C-unwind" fn incr(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "incr", |call| {
            let key = call.key(2)?;
            let column = call.column(3)?;
            let by = match row::given(state, 4) {
                InputValue::Null => InputValue::Whole(1),
                by @ (InputValue::Number(_) | InputValue::Whole(_)) => by,
                _ => return Err(FaultSubject::argument("incr", 3, "a number expected")),
            };
            let sum = match key {
                Some(key) => call.or_fault(call.table().incr(key, column, by, call.now_ms))?,
                None => None,
            };
            let sum = sum.map_or(Cell::Null, Cell::Bits);
            push_cell(state, &call.table().schema().columns[column], sum);
            Ok(1)
        })
    }
}

/// `delete(table, key)` → whether the table had a row with this key.
unsafe extern "C-unwind" fn delete(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "delete", |call| {
            let deleted = match call.key(2)? {
                Some(key) => call.or_fault(call.table().delete(key, call.now_ms))?,
                None => false,
            };
            ffi::lua_pushboolean(state, deleted.into());
            Ok(1)
        })
    }
}

/// `see(table, key)` → a row, and the snapshot with which `update_seen` compares it.
unsafe extern "C-unwind" fn see(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "update", |call| {
            let Some(key) = call.key(2)? else {
                return Ok(0);
            };
            let seen = call.table().read(key, call.now_ms, |row| {
                push_row(call, row);
                row.snapshot()
            });
            let Some(seen) = seen else {
                return Ok(0);
            };
            push_boxed(state, c"veche.seen", seen);
            Ok(2)
        })
    }
}

/// `update_seen(table, key, changes, snapshot)` → whether the table has a row with this key; nil if the row has changed
/// since the snapshot.
unsafe extern "C-unwind" fn update_seen(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires; `boxed` checks the type of the fourth argument.
    unsafe {
        method(state, "update", |call| {
            let changes = call.changes(3)?;
            let (Some(key), Some(seen)) =
                (call.key(2)?, boxed::<RowSnapshot>(state, 4, c"veche.seen"))
            else {
                return Ok(0);
            };
            match call.or_fault(call.table().update(key, &changes, Some(seen), call.now_ms))? {
                UpdateResult::Conflict => ffi::lua_pushnil(state),
                updated => ffi::lua_pushboolean(state, (updated == UpdateResult::Updated).into()),
            }
            Ok(1)
        })
    }
}

/// `note(table)` → a new batch; `note(table, batch, kind, …)` adds a change; `note(table, batch)` executes it.
unsafe extern "C-unwind" fn note(state: *mut lua_State) -> c_int {
    const BATCH: &CStr = c"veche.batch";
    // SAFETY: `functions` created this closure, as `method` requires; `boxed` checks the type of the second argument.
    unsafe {
        method(state, "batch", |call| {
            let Some(batch) = boxed::<Batch>(state, 2, BATCH) else {
                push_boxed(state, BATCH, Batch::default());
                return Ok(1);
            };
            let needed = |key: Option<Cell<'static>>| {
                let no_row = || call.fault(&TableError::NoRow(row::given(state, 4).to_string()));
                key.ok_or_else(no_row)
            };
            let noted = match row::given(state, 3) {
                InputValue::Text(b"insert") | InputValue::Text(b"upsert") => {
                    let how = match row::given(state, 3) {
                        InputValue::Text(b"insert") => PutMode::Insert,
                        _ => PutMode::Upsert,
                    };
                    let row = call.whole_row(4)?;
                    let ttl_ms = call.ttl(5)?;
                    batch.put(how, &row, ttl_ms)
                }
                InputValue::Text(b"update") => {
                    let changes = call.changes(5)?;
                    batch.update(needed(call.key(4)?)?, &changes)
                }
                InputValue::Text(b"delete") => match call.key(4)? {
                    Some(key) => batch.delete(key),
                    None => Ok(()),
                },
                _ => call.table().apply(batch, call.now_ms),
            };
            call.or_fault(noted)?;
            Ok(0)
        })
    }
}

const CHANGES: &CStr = c"veche.changes";

/// `watch(table, capacity)` → an object that receives the table's changes.
unsafe extern "C-unwind" fn watch(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires.
    unsafe {
        method(state, "changes", |call| {
            let capacity = match row::given(state, 2) {
                InputValue::Null => CHANGES_DEFAULT,
                InputValue::Number(number)
                    if (1.0..=CHANGES_MAX as f64).contains(&number) && number.fract() == 0.0 =>
                {
                    number as usize
                }
                _ => {
                    let words =
                        format!("capacity: a whole number from 1 to {CHANGES_MAX} expected");
                    return Err(FaultSubject::argument("changes", 1, words));
                }
            };
            push_boxed(state, CHANGES, call.table().watch(capacity));
            Ok(1)
        })
    }
}

/// `next(table, changes, waits)` → the next change as JSON; if there is none, false, and the token of a wait if `waits`
/// is true.
unsafe extern "C-unwind" fn next(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` created this closure, as `method` requires; `boxed` checks the type of the second argument.
    unsafe {
        method(state, "changes", |_| {
            let Some(changes) = boxed::<Arc<Watcher>>(state, 2, CHANGES) else {
                return Ok(0);
            };
            let context = context(state);
            let token = (ffi::lua_toboolean(state, 3) != 0).then(|| context.token());
            let waiter = token.map(|token| context.world.queues.waiter(token));
            if let Some(QueueItem {
                value: Value::Bytes(text),
                ..
            }) = changes.next(waiter)
            {
                ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
                return Ok(1);
            }
            ffi::lua_pushboolean(state, 0);
            let Some(token) = token else {
                return Ok(1);
            };
            let queue = Arc::clone(changes.queue());
            context.world.queues.begin(token, queue, WaitSide::Pop);
            ffi::lua_pushnumber(state, token.0 as f64);
            Ok(2)
        })
    }
}

/// Pushes an object that owns a Rust value.
///
/// # Safety
/// The stack has room for three values, and all objects of that `kind` own a `T`.
unsafe fn push_boxed<T>(state: *mut lua_State, kind: &'static CStr, value: T) {
    unsafe extern "C-unwind" fn collect<T>(state: *mut lua_State) -> c_int {
        // SAFETY: only the metatables made below have this `__gc`; the collector calls it once per object.
        unsafe {
            let place = ffi::lua_touserdata(state, 1).cast::<*mut T>();
            drop(Box::from_raw(place.read()));
        }
        0
    }
    // SAFETY: the memory has room for a pointer, which is written before the object gets the
    // metatable that frees it.
    unsafe {
        let place = ffi::lua_newuserdata(state, size_of::<*mut T>()).cast::<*mut T>();
        place.write(Box::into_raw(Box::new(value)));
        if ffi::luaL_newmetatable(state, kind.as_ptr()) != 0 {
            ffi::lua_pushcclosure(state, collect::<T>, 0);
            ffi::lua_setfield(state, -2, c"__gc".as_ptr());
            ffi::lua_pushboolean(state, 0);
            ffi::lua_setfield(state, -2, c"__metatable".as_ptr());
        }
        ffi::lua_setmetatable(state, -2);
    }
}

/// Returns the value owned by the object at `index`, if it is of that `kind`.
///
/// # Safety
/// As for [`push_boxed`]; the value is used only while the object is on the stack, and there is no
/// other reference to it.
unsafe fn boxed<'a, T>(
    state: *mut lua_State,
    index: c_int,
    kind: &'static CStr,
) -> Option<&'a mut T> {
    // SAFETY: all objects of that `kind` own a `T`, as the caller guarantees; the pushed values are popped.
    unsafe {
        let memory = ffi::lua_touserdata(state, index);
        if memory.is_null() || ffi::lua_getmetatable(state, index) == 0 {
            return None;
        }
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, kind.as_ptr());
        let is_one = ffi::lua_rawequal(state, -1, -2) != 0;
        ffi::lua_settop(state, -3);
        is_one.then(|| &mut **memory.cast::<*mut T>())
    }
}
