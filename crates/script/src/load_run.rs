//! Load scripts: the functions for a script that simulates users, and the interface to the load tester.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Lua, LuaString, Table};
use veche_types::WorkerId;

use crate::app::{AppWorld, ScriptApp};
use crate::code::SourceCode;
use crate::modules::fault;
use crate::role::AppRole;
use crate::vm::load::{VmExtension, VmParts};
use crate::vm::{LoadError, Vm};

const SOURCE: &str = include_str!("../lua/bench.lua");

/// Nanoseconds in a second.
const SECOND_NS: f64 = 1e9;

/// A load test, as seen by its script. Threads and users are counted from 0; times are nanoseconds of a monotonic
/// clock.
pub trait LoadRun: fmt::Debug + Send + Sync {
    /// Returns the URL of the server.
    fn url(&self) -> &str;

    /// Returns the users simulated by a thread.
    fn users(&self, thread: u32) -> Range<u32>;

    /// Returns the seconds until a user starts; `None` while the start of the test is not known.
    fn begins_in(&self, user: u32) -> Option<f64>;

    /// Counts a user that starts its first session.
    fn user_begins(&self);

    /// Returns whether the test's time is over.
    fn is_over(&self) -> bool;

    /// Returns the current time of the monotonic clock in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Starts an action; returns the time, or `None` if the test is over.
    fn action_begins(&self, thread: u32) -> Option<u64>;

    /// Ends an action, with its error if it failed.
    fn action_ended(&self, thread: u32, name: &str, began_ns: u64, error: Option<&str>);

    /// Records the latency of a successful operation that is timed like an action.
    fn record(&self, thread: u32, name: &str, latency_ns: u64);

    /// Ends a session. If it failed, `error` is its error; but `None` if the error is that of an action, which is already
    /// counted.
    fn session_ended(&self, thread: u32, is_well: bool, error: Option<&str>);
}

impl Vm {
    /// Loads a load script as the service of one thread, selected by its instance number. [`Vm::serve`] simulates the
    /// users.
    ///
    /// # Errors
    /// See [`LoadError`]; also a script that never calls `bench.user`.
    pub fn load_script(
        app: &ScriptApp,
        code: &Arc<SourceCode>,
        world: &AppWorld,
        worker: WorkerId,
        run: &Arc<dyn LoadRun>,
    ) -> Result<Self, LoadError> {
        let has_session = Rc::new(Cell::new(false));
        let thread = match app.role {
            AppRole::Service { instance, .. } => instance - 1,
            AppRole::Clients => 0,
        };
        let extend =
            |lua: &Lua, parts: &VmParts<'_>| install(lua, parts, run, thread, &has_session);
        let vm = Self::load(app, code, world, worker, Some(&extend))?;
        match has_session.get() {
            true => Ok(vm),
            false => Err(LoadError::Script(
                "the script never calls bench.user, so there are no users to simulate".to_owned(),
            )),
        }
    }
}

fn install(
    lua: &Lua,
    parts: &VmParts<'_>,
    run: &Arc<dyn LoadRun>,
    thread: u32,
    has_session: &Rc<Cell<bool>>,
) -> mlua::Result<VmExtension> {
    let native = lua.create_table()?;
    native.set("url", run.url())?;
    let own = Rc::clone(has_session);
    let function = lua.create_function(move |_, ()| {
        own.set(true);
        Ok(())
    })?;
    native.set("has_session", function)?;
    let own = Arc::clone(run);
    // Returns the numbers of the thread's first and last user.
    let users = lua.create_function(move |_, ()| {
        let users = own.users(thread);
        Ok((users.start, i64::from(users.end) - 1))
    })?;
    native.set("users", users)?;
    let own = Arc::clone(run);
    let begins_in = lua.create_function(move |_, user: u32| Ok(own.begins_in(user)))?;
    native.set("begins_in", begins_in)?;
    let own = Arc::clone(run);
    let user_begins = lua.create_function(move |_, ()| {
        own.user_begins();
        Ok(())
    })?;
    native.set("user_begins", user_begins)?;
    let own = Arc::clone(run);
    native.set(
        "is_over",
        lua.create_function(move |_, ()| Ok(own.is_over()))?,
    )?;
    let own = Arc::clone(run);
    let now = lua.create_function(move |_, ()| Ok(own.now_ns() as f64 / SECOND_NS))?;
    native.set("now", now)?;
    let own = Arc::clone(run);
    // A double holds the nanoseconds of a hundred days exactly.
    let begins = lua.create_function(move |_, ()| {
        Ok(own.action_begins(thread).map(|began_ns| began_ns as f64))
    })?;
    native.set("action_begins", begins)?;
    let own = Arc::clone(run);
    let ended = lua.create_function(
        move |_, (name, began_ns, error): (LuaString, f64, Option<LuaString>)| {
            let error = error.map(|error| error.to_string_lossy());
            let name = text(&name)?;
            own.action_ended(thread, &name, began_ns as u64, error.as_deref());
            Ok(())
        },
    )?;
    native.set("action_ended", ended)?;
    let own = Arc::clone(run);
    let record = lua.create_function(move |_, (name, seconds): (LuaString, f64)| {
        own.record(thread, &text(&name)?, (seconds * SECOND_NS) as u64);
        Ok(())
    })?;
    native.set("record", record)?;
    let own = Arc::clone(run);
    let ended = lua.create_function(move |_, (is_well, error): (bool, Option<LuaString>)| {
        let error = error.map(|error| error.to_string_lossy());
        own.session_ended(thread, is_well, error.as_deref());
        Ok(())
    })?;
    native.set("session_ended", ended)?;
    let chunk = lua.load(SOURCE).set_name("=veche:bench");
    let (module, handlers): (Table, Table) = chunk.call((native, parts.inner, parts.veche))?;
    Ok(VmExtension {
        name: "veche.bench",
        module,
        handlers,
    })
}

fn text(name: &LuaString) -> mlua::Result<String> {
    let name = name.to_str();
    name.map(|name| name.to_owned())
        .map_err(|_| fault("the name of an action is not UTF-8"))
}
