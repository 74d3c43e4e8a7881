//! `veche.table`: operations on whole tables. Operations on rows are in
//! [`raw::tables`](crate::raw).

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use veche_store::table::{
    Conflict, Job, LoadFormat, LoadOptions, Schema, SchemaDraft, TABLE_BYTES_MIN, TableError, Type,
};

use super::argument::{Arguments, WHOLE_MAX, as_number};
use super::copy_limit::{CopyLimit, ENTRY_BYTES, text_bytes};
use super::{fault, words};
use crate::app::Snapshots;
use crate::host_context::HostContext;
use crate::ttl;

/// The maximum length of a table's name in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The maximum length of a file path in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// The maximum length of a text in a schema or an option, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Maximum total size of a schema's texts in bytes. Each text counts with 64 bytes in addition to its length.
const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// The interval at which a VM in a test polls a file job.
const TEST_PAUSE: Duration = Duration::from_millis(1);

pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    folder: &Path,
    snapshots: &Snapshots,
) -> mlua::Result<()> {
    let table: Table = native.get("table")?;
    let own = Rc::clone(context);
    // `open(name, schema)` returns the table's number. When the VM opens the table for the first
    // time, it also returns the names of the columns, and their types by name.
    let open = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new("table", values);
        let table = find(&own, &arguments)?;
        let mut tables = own.tables.borrow_mut();
        if let Some(number) = tables.number(&table) {
            return Ok((number, None, None));
        }
        let (names, kinds) = (lua.create_table()?, lua.create_table()?);
        for column in table.schema().visible() {
            let kind = match column.kind {
                Type::Bytes(_) => "bytes",
                _ => "other",
            };
            kinds.raw_set(&*column.name, kind)?;
            names.raw_push(lua.create_string(column.name.as_bytes())?)?;
        }
        let number = tables.keep(table, names.clone())?;
        Ok((number, Some(names), Some(kinds)))
    })?;
    table.set("open", open)?;
    let own = Rc::clone(context);
    let clear = lua.create_function(move |_, number: u32| {
        let table = own.tables.borrow().table(number);
        table
            .clear()
            .map_err(|error| lua_error(table.name(), &error))
    })?;
    table.set("clear", clear)?;
    let own = Rc::clone(context);
    let info = lua.create_function(move |lua, number: u32| info(lua, &own, number))?;
    table.set("info", info)?;
    jobs(lua, context, &table, folder, snapshots)?;
    // Compiles a constructor that makes a row from the values in a list, which is much faster than
    // setting each field.
    let compile = lua.create_function(|lua, (names, as_values): (Vec<LuaString>, bool)| {
        let fields = names
            .iter()
            .enumerate()
            .map(|(place, name)| match as_values {
                true => format!("list[at+{}]", place + 1),
                // Names of columns consist of letters, digits and `_`.
                false => format!("[\"{}\"]=list[at+{}]", name.to_string_lossy(), place + 1),
            });
        let fields = fields.collect::<Vec<_>>().join(",");
        let fields = if as_values {
            fields
        } else {
            format!("{{{fields}}}")
        };
        let source = format!("return function(list, at) return {fields} end");
        lua.load(source).set_name("=veche:table").eval::<Value>()
    })?;
    table.set("compile", compile)
}

fn lua_error(name: &str, error: &TableError) -> mlua::Error {
    fault(format!("table {name}: {error}"))
}

fn find(
    context: &HostContext,
    arguments: &Arguments,
) -> mlua::Result<Arc<veche_store::table::Table>> {
    let name = arguments.string(1)?;
    if name.as_bytes().len() > NAME_BYTES_MAX {
        return Err(arguments.bad(1, "a name of 1 to 255 bytes expected"));
    }
    let name = name.to_string_lossy();
    let schema = match arguments.at(2) {
        Value::Nil => None,
        Value::Table(table) => Some(
            schema(table).map_err(|words| arguments.bad(2, &format!("table {name}: {words}")))?,
        ),
        _ => return Err(arguments.expected(2, "a schema")),
    };
    let table = context.world.store.table(&name, schema);
    table.map_err(|error| {
        let number = if matches!(error, TableError::Differs(_)) {
            2
        } else {
            1
        };
        arguments.bad(number, &format!("table {name}: {error}"))
    })
}

/// The error of a schema with invalid `columns`.
const COLUMNS: &str =
    "columns: expected a table of column names and their types, as in { mark = \"u8\" }";

/// The error of a schema with invalid `indexes`.
const INDEXES: &str = "indexes: expected a table of index names, each with a list of columns, as in { by_mark = { \"mark\" } }";

/// Reads a schema; the error is a text.
fn schema(table: &Table) -> Result<Schema, String> {
    let mut draft = SchemaDraft::default();
    let limit = CopyLimit::new(SCHEMA_BYTES_MAX);
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair.map_err(|error| error.to_string())?;
        let name = text(&name).ok_or("the names of a schema's fields must be strings")?;
        match (name.as_str(), &value) {
            ("key", value) => draft.key = text(value).ok_or("key: a string expected")?,
            ("columns", Value::Table(columns)) => draft.columns = columns_of(columns, &limit)?,
            ("columns", _) => {
                return Err(COLUMNS.to_owned());
            }
            ("indexes", Value::Table(indexes)) => draft.indexes = indexes_of(indexes, &limit)?,
            ("indexes", _) => {
                return Err(INDEXES.to_owned());
            }
            ("ttl", Value::Boolean(has_ttl)) => draft.has_ttl = *has_ttl,
            ("ttl", value) => {
                let ttl_ms = as_number(value).and_then(ttl::ms);
                let expected = || format!("ttl: true, or {} expected", ttl::EXPECTED);
                draft.has_ttl = true;
                draft.ttl_ms = Some(ttl_ms.ok_or_else(expected)?);
            }
            ("bytes_max", value) => {
                let bytes = as_number(value).filter(|bytes| {
                    (TABLE_BYTES_MIN as f64..=WHOLE_MAX).contains(bytes) && bytes.fract() == 0.0
                });
                let expected = "bytes_max: a whole number of at least 65536 expected";
                draft.bytes_max = Some(bytes.ok_or(expected)? as usize);
            }
            ("evict", value) => {
                draft.evict = Some(text(value).ok_or("evict: a string expected")?);
            }
            (name, _) => {
                return Err(format!(
                    "a schema has no field \"{name}\": the fields are key, columns, indexes, ttl, bytes_max and evict"
                ));
            }
        }
    }
    draft.check()
}

/// Returns a text of a schema or an option; `None` if the value is not a string or is too long.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.as_bytes().len() <= TEXT_BYTES_MAX => {
            Some(text.to_string_lossy())
        }
        _ => None,
    }
}

/// Counts the size of a schema's text against the limit, before the text is copied.
fn take(limit: &CopyLimit, value: &Value) -> Result<(), String> {
    let bytes = text_bytes(value) + ENTRY_BYTES;
    match limit.take(bytes).map_err(|error| words(&error))? {
        true => Ok(()),
        false => Err("the schema is longer than 1 MiB".to_owned()),
    }
}

fn columns_of(columns: &Table, limit: &CopyLimit) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for pair in columns.pairs::<Value, Value>() {
        let (name, kind) = pair.map_err(|error| error.to_string())?;
        take(limit, &name)?;
        take(limit, &kind)?;
        match (text(&name), text(&kind)) {
            (Some(name), Some(kind)) => found.push((name, kind)),
            _ => {
                return Err(COLUMNS.to_owned());
            }
        }
    }
    Ok(found)
}

fn indexes_of(
    indexes: &Table,
    limit: &CopyLimit,
) -> Result<Vec<(String, Vec<String>, bool)>, String> {
    let mut found = Vec::new();
    for pair in indexes.pairs::<Value, Value>() {
        let (name, about) = pair.map_err(|error| error.to_string())?;
        take(limit, &name)?;
        let (Some(name), Value::Table(about)) = (text(&name), about) else {
            return Err(INDEXES.to_owned());
        };
        let (mut columns, mut is_unique) = (Vec::new(), false);
        for pair in about.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            take(limit, &value)?;
            match (as_number(&key), text(&key).as_deref(), &value) {
                (Some(place), _, value) => {
                    let column = text(value);
                    let column =
                        column.ok_or_else(|| format!("index {name}: names of columns expected"))?;
                    columns.push((place, column));
                }
                (None, Some("unique"), Value::Boolean(value)) => is_unique = *value,
                _ => {
                    return Err(format!(
                        "index {name}: expected names of columns and, optionally, unique = true"
                    ));
                }
            }
        }
        columns.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        found.push((name, columns, is_unique));
    }
    Ok(found)
}

fn info(lua: &Lua, context: &HostContext, number: u32) -> mlua::Result<Table> {
    let table = context.tables.borrow().table(number);
    let (schema, about) = (table.schema(), table.info());
    let (columns, indexes) = (lua.create_table()?, lua.create_table()?);
    for (column, bytes) in schema.columns.iter().zip(&about.columns) {
        columns.raw_set(&*column.name, *bytes)?;
    }
    for (index, bytes) in schema.indexes.iter().zip(&about.indexes) {
        indexes.raw_set(&*index.name, *bytes)?;
    }
    let result = lua.create_table()?;
    result.raw_set("rows", about.rows)?;
    result.raw_set("bytes", about.bytes)?;
    result.raw_set("bytes_max", schema.bytes_max)?;
    result.raw_set("evicted", about.evicted)?;
    result.raw_set("columns", columns)?;
    result.raw_set("indexes", indexes)?;
    Ok(result)
}

/// Adds the functions for file jobs: `begin` starts a job and returns its number; `job` returns a job's progress, and
/// removes the job when it is complete.
fn jobs(
    lua: &Lua,
    context: &Rc<HostContext>,
    table: &Table,
    folder: &Path,
    snapshots: &Snapshots,
) -> mlua::Result<()> {
    let running: Rc<RefCell<HashMap<u64, Arc<Job>>>> = Rc::default();
    let (own, list, folder) = (Rc::clone(context), Rc::clone(&running), folder.to_owned());
    let snapshots = snapshots.clone();
    // `begin(number, method, path, options)` starts a file job of a table, and returns the job's number.
    let begin = lua.create_function(
        move |_, (number, method, path, options): (u32, String, Value, Value)| {
            let arguments = FileArguments {
                method: &method,
                options: &options,
            };
            let path = match &path {
                Value::String(path) if path.as_bytes().len() <= PATH_BYTES_MAX => {
                    path.to_string_lossy()
                }
                _ => return Err(arguments.bad(1, "a path of at most 4096 bytes expected")),
            };
            let path = match method.as_str() {
                "save" => snapshots
                    .to_save(&folder, &path)
                    .map_err(|words| fault(format!("table:save: {words}")))?,
                "load" => snapshots.to_load(&folder, &path),
                _ => folder.join(path),
            };
            let table = own.tables.borrow().table(number);
            let now = own.world.now.get();
            let job = match method.as_str() {
                "save" => table.start_save(path, now),
                "load" => table.start_restore(path, now),
                _ => table.start_load(path, arguments.load_options()?, now),
            };
            let token = own.token().0;
            list.borrow_mut().insert(token, job);
            Ok(token)
        },
    )?;
    table.set("begin", begin)?;
    let (own, list) = (Rc::clone(context), Rc::clone(&running));
    // Returns true and the rows if the job is complete, otherwise false and the progress.
    let job = lua.create_function(move |_, (number, token): (u32, u64)| {
        let job = list.borrow().get(&token).map(Arc::clone);
        let job = job.ok_or_else(|| fault("the job has ended"))?;
        // In a test, the simulated clock would not wait for the job's thread, so the call blocks until the job has ended.
        while own.world.is_seeded() && job.outcome().is_none() {
            std::thread::sleep(TEST_PAUSE);
        }
        if let Some(outcome) = job.outcome() {
            list.borrow_mut().remove(&token);
            return match outcome {
                Ok(rows) => Ok((true, rows as f64, 0.0, 0.0)),
                Err(error) => {
                    let table = own.tables.borrow().table(number);
                    Err(fault(format!("table {}: {error}", table.name())))
                }
            };
        }
        let progress = job.progress();
        let [rows, bytes, total] =
            [progress.rows, progress.bytes, progress.bytes_total].map(|count| count as f64);
        Ok((false, rows, bytes, total))
    })?;
    table.set("job", job)?;
    let cancel = lua.create_function(move |_, token: u64| {
        if let Some(job) = running.borrow_mut().remove(&token) {
            job.cancel();
        }
        Ok(())
    })?;
    table.set("cancel", cancel)
}

/// The arguments of a method that reads or writes a file.
struct FileArguments<'a> {
    method: &'a str,
    options: &'a Value,
}

impl FileArguments<'_> {
    fn bad(&self, number: usize, words: &str) -> mlua::Error {
        let method = self.method;
        fault(format!(
            "bad argument #{number} to 'table:{method}': {words}"
        ))
    }

    fn load_options(&self) -> mlua::Result<LoadOptions> {
        let mut options = LoadOptions::new(match self.method {
            "load_json" => LoadFormat::Json,
            "load_ndjson" => LoadFormat::Ndjson,
            _ => LoadFormat::Csv,
        });
        let table = match self.options {
            Value::Nil => return Ok(options),
            Value::Table(table) => table,
            _ => return Err(self.bad(2, "a table of options expected")),
        };
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            let name = text(&name);
            match (name.as_deref(), text(&value)) {
                (Some("files"), Some(pattern)) => options.files = Some(pattern),
                (Some("list"), Some(list)) if self.method == "load_json" => {
                    options.list = Some(list);
                }
                (Some("conflict"), Some(conflict)) => {
                    options.conflict = match conflict.as_str() {
                        "error" => Conflict::Error,
                        "replace" => Conflict::Replace,
                        "skip" => Conflict::Skip,
                        _ => {
                            let words = "conflict: \"error\", \"replace\" or \"skip\" expected";
                            return Err(self.bad(2, words));
                        }
                    };
                }
                (Some("progress"), _) if matches!(value, Value::Function(_)) => {}
                _ => {
                    let words = "the options are strings (files, conflict, and list for load_json) and a function (progress)";
                    return Err(self.bad(2, words));
                }
            }
        }
        Ok(options)
    }
}
