//! Creates a VM with Lua's libraries and Veche's functions, and loads the script and its handlers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table, Value};

use super::slice::TurnSlice;
use super::{HANDLERS, HandlerName, Vm};
use crate::AppWorld;
use crate::MessageKind;
use crate::app::ScriptApp;
use crate::clock::VmClock;
use crate::code::{CodeError, SourceCode};
use crate::host_context::HostContext;
use crate::modules;
use crate::raw::{LuaVm, Natives, Reference};
use crate::role::AppRole;
use crate::task::Tasks;
use crate::watch::ThreadWatch;
use veche_runtime::hooks::Hook;
use veche_runtime::{Level, ServiceState};
use veche_types::WorkerId;

const PRELUDE: &str = include_str!("../../lua/prelude.lua");
const LIBRARIES: &str = include_str!("../../lua/libraries.lua");

/// The reason why a script can't run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The source can't be read.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The script does not compile, or raises an error while it is loaded. The text includes a traceback.
    #[error("{0}")]
    Script(String),
    /// The script does not return a table of handlers.
    #[error(
        "{script}: the script returns {what}; expected a table of handlers with at least one of open, message, request and start"
    )]
    NoHandlers {
        /// The path of the script.
        script: String,
        /// The type of the value that the script returns.
        what: String,
    },
    /// The script of a service has no `run`.
    #[error("{script}: a service must return a table with a function named 'run'")]
    NoRun {
        /// The path of the script.
        script: String,
    },
    /// The watchdog's thread can't be started.
    #[error("the watchdog thread can't be started: {0}")]
    Watch(std::io::Error),
}

/// The parts of a VM before its script is loaded.
pub(crate) struct VmParts<'a> {
    pub(crate) context: &'a Rc<HostContext>,
    pub(crate) veche: &'a Table,
    /// The table that the prelude passes to modules.
    pub(crate) inner: &'a Table,
}

/// The module and the handlers of a script that is not an application, such as a test or a load
/// script.
pub(crate) struct VmExtension {
    /// The name under which `require` finds `module`.
    pub(crate) name: &'static str,
    pub(crate) module: Table,
    /// The table of handlers. It is used instead of the script's return value.
    pub(crate) handlers: Table,
}

/// Creates the extension in a VM whose script is not loaded yet.
pub(crate) type Extend<'a> = &'a dyn Fn(&Lua, &VmParts<'_>) -> mlua::Result<VmExtension>;

impl From<mlua::Error> for LoadError {
    fn from(error: mlua::Error) -> Self {
        Self::Script(error.to_string())
    }
}

impl Vm {
    /// Loads an application's script on the thread that will run it. `app.start` begins in the first
    /// [turn](Self::turn).
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn new(
        app: &ScriptApp,
        code: &Arc<SourceCode>,
        world: &AppWorld,
        worker: WorkerId,
    ) -> Result<Self, LoadError> {
        Self::load(app, code, world, worker, None)
    }

    /// Loads an application's script. With `extend`, loads a script that is not an application:
    /// `extend` creates its handlers and an additional module.
    pub(crate) fn load(
        app: &ScriptApp,
        code: &Arc<SourceCode>,
        world: &AppWorld,
        worker: WorkerId,
        extend: Option<Extend<'_>>,
    ) -> Result<Self, LoadError> {
        // The library `jit` must be loaded for the compiler to be enabled. Functions that could
        // escape the sandbox are removed below.
        let libraries =
            StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::OS | StdLib::JIT;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let watch = ThreadWatch::this_thread().map_err(LoadError::Watch)?;
        let context = Rc::new(HostContext::new(
            Rc::clone(&world.0),
            VmClock::new(world.0.pace, watch.clone()),
            worker,
            app.limits.memory_bytes_max,
        ));
        let budget_ns = u64::try_from(app.limits.cpu_budget.as_nanos()).unwrap_or(u64::MAX);
        let shared = Rc::clone(&world.0);
        let is_short = Rc::new(move || shared.is_short.get().is_some_and(|is_short| is_short()));
        let memory_bytes_max = app.limits.memory_bytes_max;
        let machine = LuaVm::new(&lua, watch, budget_ns, memory_bytes_max, is_short)?;
        context.set_memory(Rc::clone(machine.memory()));

        let natives = Natives::new(&lua, &context)?;
        modules::install(
            &lua,
            &context,
            &natives.functions,
            app,
            code.folder(),
            worker,
        )?;
        restrict(&lua)?;
        modules::string::replace(&lua, modules::string::Limits::default())?;
        let libraries = lua.load(LIBRARIES).set_name("=veche:libraries");
        libraries.call::<()>(&natives.functions)?;
        let prelude = lua.load(PRELUDE).set_name("=veche");
        let (veche, inner): (Table, Table) =
            prelude.call((natives.functions.clone(), natives.metatable.clone()))?;
        modules::lua::install(&lua, &veche, &inner)?;
        modules::random::seed_math(&lua, &context)?;
        modules::seeded::install(&lua, &context, &natives.functions)?;
        let parts = VmParts {
            context: &context,
            veche: &veche,
            inner: &inner,
        };
        let extra = extend.map(|extend| extend(&lua, &parts)).transpose()?;
        let required = lua.create_table()?;
        if let Some(extra) = &extra {
            required.set(extra.name, &extra.module)?;
        }
        required.set("veche", veche)?;
        install_require(&lua, code, required)?;

        let (name, source) = code.script()?;
        let main = lua.load(&*source).set_name(name.as_str());
        // The script's top level does not run in a coroutine, so functions that wait fail in it.
        let result: Value = machine.guarded(true, || main.eval())?;
        let app_table = match (extra, result) {
            (Some(extra), _) => extra.handlers,
            (None, Value::Table(table)) => table,
            (None, other) => {
                return Err(LoadError::NoHandlers {
                    script: name.trim_start_matches('@').to_owned(),
                    what: other.type_name().to_owned(),
                });
            }
        };
        inner.get::<Function>("loaded")?.call::<()>(())?;
        let mut handlers = [None; HANDLERS];
        for (handler, name) in HandlerName::ALL {
            let function = match app_table.raw_get(name)? {
                Value::Nil => continue,
                Value::Function(function) => function,
                // The handler is a router, which is a callable table.
                Value::Table(table) if is_callable(&table) => {
                    inner.get::<Function>("as_function")?.call(table)?
                }
                other => {
                    return Err(LoadError::Script(format!(
                        "app.{name} is a {}; a function expected",
                        other.type_name()
                    )));
                }
            };
            handlers[handler as usize] = Some(machine.keep(function)?);
        }
        if app.role != AppRole::Clients && handlers[HandlerName::Run as usize].is_none() {
            let script = name.trim_start_matches('@').to_owned();
            return Err(LoadError::NoRun { script });
        }
        warn_unknown_hooks(&app_table, app.role, &context)?;
        let hooks = hooks(&machine, &app_table, &inner, &context)?;
        let mut client_handlers = [None; HANDLERS];
        for (handler, name) in [
            (HandlerName::Message, "client_message"),
            (HandlerName::Close, "client_closed"),
        ] {
            let function: Function = inner.get(name)?;
            client_handlers[handler as usize] = Some(machine.keep(function)?);
        }

        Ok(Self {
            metatable: machine.keep(natives.metatable)?,
            kinds: [
                machine.keep(MessageKind::Text.name())?,
                machine.keep(MessageKind::Binary.name())?,
            ],
            serve: machine.keep(inner.get::<Function>("serve")?)?,
            shake: machine.keep(inner.get::<Function>("shake")?)?,
            rule: machine.keep(inner.get::<Function>("rule")?)?,
            hooks,
            uncaught: None,
            reports: BTreeSet::new(),
            task_failed: inner.get("task_failed")?,
            reclaim: inner.get("reclaim")?,
            client_handlers,
            retire_clients: inner.get("retire_clients")?,
            machine,
            tasks: Tasks::default(),
            locals: Vec::new(),
            leaving: BTreeMap::new(),
            handlers,
            postponed: VecDeque::new(),
            slice: TurnSlice::default(),
            slow: None,
            has_begun: false,
            name: app.name.as_str().into(),
            role: app.role,
            run: ServiceState::Idle,
            is_handling_events: false,
            is_stopping: false,
            wake_stop_waits: inner.get("wake_stop_waits")?,
            gate: Some(VecDeque::new()),
            context,
            tasks_max: app.limits.tasks_max,
            lua,
        })
    }
}

fn is_callable(table: &Table) -> bool {
    let metatable = table.metatable();
    metatable.is_some_and(|metatable| metatable.contains_key("__call").unwrap_or(false))
}

/// The longest source that a script may load, in bytes. Compiling this much takes some
/// milliseconds, and can't be interrupted.
const CHUNK_BYTES_MAX: usize = 128 << 10;

/// Removes functions that reach beyond the VM or could undo its limits.
fn restrict(lua: &Lua) -> mlua::Result<()> {
    let globals = lua.globals();
    for name in [
        "dofile", "loadfile", "getfenv", "setfenv", "jit", "newproxy", "module", "gcinfo",
    ] {
        globals.set(name, Value::Nil)?;
    }
    let os: Table = globals.get("os")?;
    for name in [
        "execute",
        "exit",
        "remove",
        "rename",
        "tmpname",
        "setlocale",
    ] {
        os.set(name, Value::Nil)?;
    }
    // Bytecode is not verified, so forged bytecode could do anything.
    let load: Function = globals.get("load")?;
    let load_text = lua.create_function(
        move |lua, (chunk, name, mode, env): (Value, Option<LuaString>, Value, Option<Table>)| {
            // A function as `chunk` is refused, because C code would call it, and C code can't be interrupted.
            let Value::String(chunk) = chunk else {
                return Err(modules::fault(
                    "bad argument #1 to 'load': a string expected (collect the pieces first)",
                ));
            };
            let name = match name {
                Some(name) => name,
                None => lua.create_string("=(load)")?,
            };
            let env = match mode {
                // `env` may be passed in place of `mode`, which is not needed, since only source text can be loaded.
                Value::Table(third) if env.is_none() => Some(third),
                Value::Nil => env,
                Value::String(mode) if mode == "t" || mode == "bt" => env,
                Value::String(mode) if mode == "b" => {
                    return Err(modules::fault(
                        "bad argument #3 to 'load': bytecode can't be loaded; the only mode is \"t\"",
                    ));
                }
                _ => {
                    return Err(modules::fault(
                        "bad argument #3 to 'load': \"t\" expected, followed by a table for the environment",
                    ));
                }
            };
            if chunk.as_bytes().len() > CHUNK_BYTES_MAX {
                return Err(modules::fault(
                    "load: a source may have at most 128 KiB, since the compiler can't be interrupted",
                ));
            }
            match env {
                Some(env) => load.call::<mlua::MultiValue>((chunk, name, "t", env)),
                None => load.call::<mlua::MultiValue>((chunk, name, "t")),
            }
        },
    )?;
    globals.set("load", load_text.clone())?;
    globals.set("loadstring", load_text)?;
    let strings: Table = globals.get("string")?;
    strings.set("dump", Value::Nil)?;
    let collect: Function = globals.get("collectgarbage")?;
    let collect_some = lua.create_function(move |_, what: Option<LuaString>| {
        match what.as_ref().map(LuaString::as_bytes).as_deref() {
            // A script may run only a step of the garbage collector. A full collection could block other scripts.
            None | Some(b"collect" | b"step") => collect.call::<Value>("step"),
            Some(b"count") => collect.call::<Value>("count"),
            Some(_) => Err(mlua::Error::runtime(
                "collectgarbage supports only 'count', 'step' and 'collect'",
            )),
        }
    })?;
    globals.set("collectgarbage", collect_some)
}

/// Finds the hook handlers: the functions in `app.centrifuge`. `app.centrifuge.rpc` may be a table with a function
/// per method.
fn hooks(
    machine: &LuaVm,
    app: &Table,
    inner: &Table,
    context: &HostContext,
) -> Result<[Option<Reference>; Hook::ALL.len()], LoadError> {
    let mut hooks = [None; Hook::ALL.len()];
    let table = match app.raw_get("centrifuge")? {
        Value::Nil => return Ok(hooks),
        Value::Table(table) => table,
        other => {
            let what = other.type_name();
            let why = format!("app.centrifuge is a {what}; a table of functions expected");
            return Err(LoadError::Script(why));
        }
    };
    for hook in Hook::ALL {
        let function = match table.raw_get(hook.name())? {
            Value::Nil => continue,
            Value::Function(function) => function,
            Value::Table(table) if is_callable(&table) => {
                inner.get::<Function>("as_function")?.call(table)?
            }
            Value::Table(methods) if hook == Hook::Rpc => {
                inner.get::<Function>("by_method")?.call(methods)?
            }
            other => {
                let (path, what) = (crate::task::hook_path(hook), other.type_name());
                let why = format!("app.{path} is a {what}; a function expected");
                return Err(LoadError::Script(why));
            }
        };
        hooks[hook as usize] = Some(machine.keep(function)?);
    }
    for pair in table.pairs::<Value, Value>() {
        if let (Value::String(key), _) = pair? {
            let key = key.to_string_lossy();
            let names = Hook::ALL.map(Hook::name);
            if !names.contains(&&*key) {
                let names = names.join(", ");
                let words =
                    format!("app.centrifuge.{key} is never called: the handlers are {names}");
                context.log(Level::Warn, words);
            }
        }
    }
    Ok(hooks)
}

/// The longest module name in bytes.
const MODULE_NAME_BYTES_MAX: usize = 1024;

/// Installs `require` for the modules in `loaded` and for modules in the script's folder.
fn install_require(lua: &Lua, code: &Arc<SourceCode>, loaded: Table) -> mlua::Result<()> {
    let (code, under_way) = (Arc::clone(code), RefCell::new(Vec::<String>::new()));
    let require = lua.create_function(move |lua, name: LuaString| {
        if name.as_bytes().len() > MODULE_NAME_BYTES_MAX {
            return Err(mlua::Error::runtime(
                "bad argument #1 to 'require': the name of a module may have at most 1024 bytes",
            ));
        }
        let name = name.to_string_lossy();
        if let Some(value) = loaded.get::<Option<Value>>(name.as_str())? {
            return Ok(value);
        }
        if under_way.borrow().contains(&name) {
            let circle = under_way.borrow().join(" → ");
            return Err(mlua::Error::runtime(format!(
                "modules require each other in a circle: {circle} → {name}"
            )));
        }
        let module = code
            .module(&name)
            .map_err(|error| mlua::Error::runtime(error.to_string()))?;
        let Some((chunk, source)) = module else {
            return Err(mlua::Error::runtime(format!(
                "module '{name}' not found: there is neither {0}.lua nor {0}/init.lua beside the script",
                name.replace('.', "/")
            )));
        };
        under_way.borrow_mut().push(name.clone());
        let result = lua.load(&*source).set_name(chunk).call::<Value>(name.as_str());
        under_way.borrow_mut().pop();
        let value = match result? {
            Value::Nil => Value::Boolean(true),
            value => value,
        };
        loaded.set(name, &value)?;
        Ok(value)
    })?;
    lua.globals().set("require", require)
}

/// Warns of unknown handler names, since a misspelt handler would never be called.
fn warn_unknown_hooks(app: &Table, role: AppRole, context: &HostContext) -> mlua::Result<()> {
    for pair in app.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let (Value::String(key), Value::Function(_)) = (key, value) else {
            continue;
        };
        let key = key.to_string_lossy();
        let ours = HandlerName::ALL
            .iter()
            .filter(|(handler, _)| handler.is_for(role));
        let names: Vec<&str> = ours.map(|(_, name)| *name).collect();
        if !names.contains(&&*key) {
            let names = names.join(", ");
            let words = match role {
                AppRole::Clients => format!("app.{key} is never called: the handlers are {names}"),
                AppRole::Service { .. } => {
                    format!("service.{key} is never called: a service's functions are {names}")
                }
            };
            context.log(Level::Warn, words);
        }
    }
    Ok(())
}
