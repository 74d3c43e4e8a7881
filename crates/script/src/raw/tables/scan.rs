//! Scans of tables. Each step writes the values of a slice of rows into a list, from which `lua/table.lua` makes rows.

use std::ffi::{CStr, c_int};

use mlua::ffi::{self, lua_State};
use veche_store::table::{Aggregate, InputValue, Range, Scan, ScanOptions, TableError};

use super::{Call, FaultSubject, boxed, method, push_boxed, row, shown};

/// The number of rows in the first slice. It is small, since most scans are short; later slices are larger.
const FIRST_ROWS: usize = 32;
const SLICE_ROWS: usize = 256;
/// The maximum number of columns of a scan. A table has at most 65 columns, with the key, but a list may repeat a column.
const COLUMNS_MAX: usize = 128;
/// Number of rows that are aggregated each time the lock is held.
const SUMMED_ROWS: usize = 4096;

const SCAN: &CStr = c"veche.scan";
const SUMS: &CStr = c"veche.sums";

/// A scan and the requested columns.
struct ScanRequest {
    scan: Scan,
    /// The numbers of the requested columns.
    columns: Box<[u8]>,
}

impl Call {
    /// Parses the arguments from stack index `from` on: the name of an index, values and options. For error texts,
    /// `number` is the position of the index's name among the arguments of the script's call.
    fn scan(&self, from: c_int, number: c_int) -> Result<Scan, FaultSubject> {
        let state = self.state;
        // SAFETY: the arguments of the call stay on the stack until the call returns.
        let top = unsafe { ffi::lua_gettop(state) };
        // SAFETY: as above.
        let index = match unsafe { row::given(state, from) } {
            InputValue::Text(b"key") => None,
            InputValue::Text(name) => {
                let place = self.table().schema().index(name);
                let missing = || TableError::Index(shown(name));
                Some(place.ok_or_else(|| self.fault(&missing()))?)
            }
            _ => {
                return Err(FaultSubject::argument(
                    self.method,
                    number,
                    "the name of an index or \"key\" expected",
                ));
            }
        };
        let mut options = ScanOptions::default();
        let mut last = top;
        // SAFETY: the arguments, including the options table, stay on the stack until the call returns.
        unsafe {
            if top > from && ffi::lua_type(state, top) == ffi::LUA_TTABLE {
                last = top - 1;
                self.scan_options(top, number + top - from, &mut options)?;
            }
            let values = (from + 1..=last).map(|index| row::given(state, index));
            let values: Vec<InputValue<'_>> = values.collect();
            self.or_fault(self.table().scan(index, &values, &options))
        }
    }

    /// Parses the options table at a stack index. For error texts, `number` is the table's position among the
    /// arguments of the script's call.
    ///
    /// # Safety
    /// There is a table at that index, and it does not change as long as `options` is in use.
    unsafe fn scan_options<'a>(
        &self,
        index: c_int,
        number: c_int,
        options: &mut ScanOptions<'a>,
    ) -> Result<(), FaultSubject> {
        let state = self.state;
        let bad = |words: &str| FaultSubject::argument(self.method, number, words);
        // SAFETY: there is a table at `index`; the stack has room for a key, its value and a column's name.
        unsafe {
            ffi::lua_pushnil(state);
            while ffi::lua_next(state, index) != 0 {
                let (name, value) = (row::given(state, -2), row::given(state, -1));
                let Range {
                    from,
                    to,
                    above,
                    below,
                } = &mut options.range;
                match (name, value) {
                    (InputValue::Text(b"from"), value) => *from = Some(value),
                    (InputValue::Text(b"to"), value) => *to = Some(value),
                    (InputValue::Text(b"above"), value) => *above = Some(value),
                    (InputValue::Text(b"below"), value) => *below = Some(value),
                    (InputValue::Text(b"reverse"), InputValue::Bool(value)) => {
                        options.is_reverse = value
                    }
                    (InputValue::Text(b"limit"), InputValue::Number(value))
                        if value >= 0.0 && value.fract() == 0.0 =>
                    {
                        options.rows_max = Some(value as usize);
                    }
                    // The function `columns` has read this option.
                    (InputValue::Text(b"columns"), InputValue::Other("table")) => {}
                    (InputValue::Text(b"reverse"), _) => {
                        return Err(bad("reverse: true or false expected"));
                    }
                    (InputValue::Text(b"limit"), _) => {
                        return Err(bad("limit: a whole number of at least 0 expected"));
                    }
                    (InputValue::Text(b"columns"), _) => {
                        return Err(bad("columns: a list of names expected"));
                    }
                    _ => {
                        return Err(bad(
                            "the options are from, to, above, below, reverse, limit and columns",
                        ));
                    }
                }
                ffi::lua_settop(state, -2);
            }
        }
        Ok(())
    }

    /// Appends the values of a slice's rows to the list at a stack index; returns the number of rows, and whether there
    /// may be more.
    fn fill(
        &self,
        list: c_int,
        scan: &mut Scan,
        columns: &[u8],
        rows_max: usize,
    ) -> Result<(usize, bool), FaultSubject> {
        let (state, all) = (self.state, self.table().schema().visible());
        let (mut rows, mut at) = (0, 0);
        let result = self.table().next(scan, rows_max, self.now_ms, |row| {
            rows += 1;
            for &column in columns {
                let column = usize::from(column);
                at += 1;
                // SAFETY: `lua/table.lua` passes a table at stack index `list`, and the stack has room for a value.
                unsafe {
                    row::push_cell(state, &all[column], row.get(column));
                    ffi::lua_rawseti(state, list, at);
                }
            }
        });
        let has_more = self.or_fault(result)?;
        Ok((rows, has_more))
    }
}

/// `columns(table, names, as_values, number)` → the numbers of columns, one byte each, for `scan`
/// and `values`; `number` is the position of the argument that has the names, for errors.
pub(super) unsafe extern "C-unwind" fn columns(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` made this Lua function; the type of the second argument is checked before it is read.
    unsafe {
        let name = match ffi::lua_toboolean(state, 3) {
            0 => "scan",
            _ => "values",
        };
        method(state, name, |call| {
            let number = ffi::lua_tonumber(state, 4) as c_int;
            let bad = || FaultSubject::argument(name, number, "columns: a list of names expected");
            if ffi::lua_type(state, 2) != ffi::LUA_TTABLE {
                return Err(bad());
            }
            ffi::lua_settop(state, 2);
            let count = ffi::lua_objlen(state, 2);
            if count > COLUMNS_MAX {
                let words = format!("columns: at most {COLUMNS_MAX} names expected");
                return Err(FaultSubject::argument(name, number, words));
            }
            let mut places = Vec::with_capacity(count);
            for place in 1..=count {
                ffi::lua_rawgeti(state, 2, place as ffi::lua_Integer);
                if ffi::lua_type(state, 3) != ffi::LUA_TSTRING {
                    return Err(bad());
                }
                // A table has at most 65 columns.
                places.push(call.column(3)? as u8);
                ffi::lua_settop(state, 2);
            }
            ffi::lua_pushlstring(state, places.as_ptr().cast(), places.len());
            Ok(1)
        })
    }
}

unsafe fn begin_as(state: *mut lua_State, name: &'static str) -> c_int {
    // SAFETY: `functions` made the calling Lua functions; the third argument is a string made by `columns`.
    unsafe {
        method(state, name, |call| {
            let InputValue::Text(columns) = row::given(state, 3) else {
                return Ok(0);
            };
            let mut scan = call.scan(4, 1)?;
            let (rows, has_more) = call.fill(2, &mut scan, columns, FIRST_ROWS)?;
            ffi::lua_pushnumber(state, rows as f64);
            if !has_more {
                return Ok(1);
            }
            let columns = columns.into();
            push_boxed(state, SCAN, ScanRequest { scan, columns });
            Ok(2)
        })
    }
}

/// `scan(table, list, columns, index, …)` → the number of rows in the list, and a scan for `more` if there may be more rows.
pub(super) unsafe extern "C-unwind" fn begin(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` made this Lua function, as `begin_as` requires.
    unsafe { begin_as(state, "scan") }
}

/// `values(table, list, columns, index, …)` → the same as `scan`, but errors name `values`.
pub(super) unsafe extern "C-unwind" fn begin_values(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` made this Lua function, as `begin_as` requires.
    unsafe { begin_as(state, "values") }
}

/// `more(table, list, scan)` → the number of rows in the list, and whether there may be more.
pub(super) unsafe extern "C-unwind" fn more(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` made this Lua function; the type of the third argument is checked before it is read.
    unsafe {
        method(state, "scan", |call| {
            let Some(ScanRequest { scan, columns }) = boxed(state, 3, SCAN) else {
                return Ok(0);
            };
            let (rows, has_more) = call.fill(2, scan, columns, SLICE_ROWS)?;
            ffi::lua_pushnumber(state, rows as f64);
            ffi::lua_pushboolean(state, has_more.into());
            Ok(2)
        })
    }
}

/// An aggregation in progress.
struct Aggregation {
    scan: Scan,
    /// The aggregated column; `None` counts rows only.
    column: Option<usize>,
    rows: u64,
    aggregate: Aggregate,
}

/// `sum(table, column, index, …)` or `sum(table, sums)` → `true, rows, count, sum, least, greatest, mean`, or an
/// aggregation to continue with. Without a column it only counts rows; without an index it covers all rows. `aggregate`
/// and `count` call it.
pub(super) unsafe extern "C-unwind" fn sum(state: *mut lua_State) -> c_int {
    // SAFETY: `functions` made this Lua function; the type of the second argument is checked before it is read.
    unsafe {
        let is_column = ffi::lua_type(state, 2) > ffi::LUA_TNIL;
        let name = if is_column { "aggregate" } else { "count" };
        method(state, name, |call| {
            if let Some(sums) = boxed::<Aggregation>(state, 2, SUMS) {
                if call.add_up(sums)? {
                    ffi::lua_settop(state, 2);
                    return Ok(1);
                }
                return call.push_sums(sums);
            }
            if !is_column && ffi::lua_gettop(state) < 3 {
                ffi::lua_pushboolean(state, 1);
                ffi::lua_pushnumber(state, call.table().count(call.now_ms) as f64);
                return Ok(2);
            }
            let column = is_column.then(|| call.column(2)).transpose()?;
            let scan = call.scan(3, if is_column { 2 } else { 1 })?;
            if column.is_none()
                && let Some(count) = call.or_fault(call.table().count_ahead(&scan))?
            {
                ffi::lua_pushboolean(state, 1);
                ffi::lua_pushnumber(state, count as f64);
                return Ok(2);
            }
            let mut sums = Aggregation {
                scan,
                column,
                rows: 0,
                aggregate: Aggregate::default(),
            };
            if call.add_up(&mut sums)? {
                push_boxed(state, SUMS, sums);
                return Ok(1);
            }
            call.push_sums(&sums)
        })
    }
}

impl Call {
    /// Continues the aggregation; returns whether there may be more rows.
    fn add_up(&self, sums: &mut Aggregation) -> Result<bool, FaultSubject> {
        let Aggregation {
            scan,
            column,
            rows,
            aggregate,
        } = sums;
        let table = self.table();
        self.or_fault(match column {
            Some(column) => table.aggregate(*column, scan, SUMMED_ROWS, self.now_ms, aggregate),
            None => table.next(scan, SUMMED_ROWS, self.now_ms, |_| *rows += 1),
        })
    }

    fn push_sums(&self, sums: &Aggregation) -> Result<c_int, FaultSubject> {
        let Aggregation {
            rows, aggregate, ..
        } = sums;
        let state = self.state;
        // SAFETY: the stack of a method has room for the seven pushed values.
        unsafe {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_pushnumber(state, *rows as f64);
            ffi::lua_pushnumber(state, aggregate.count as f64);
            ffi::lua_pushnumber(state, aggregate.sum());
            let (Some([least, most]), Some(mean)) = (aggregate.min_max(), aggregate.mean()) else {
                return Ok(4);
            };
            ffi::lua_pushnumber(state, least);
            ffi::lua_pushnumber(state, most);
            ffi::lua_pushnumber(state, mean);
        }
        Ok(7)
    }
}
