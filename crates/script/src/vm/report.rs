//! Reports uncaught errors: a log record and a call of `app.error`.

use mlua::Table;

use super::{HandlerName, START_FAILED, Vm};
use crate::raw::{Argument, LuaError};
use crate::task::TaskOwner;
use veche_runtime::Level;

/// Maximum number of concurrent calls of `app.error`. While that many run, errors are only logged.
const REPORTS_MAX: usize = 64;

impl Vm {
    /// Logs an error and passes it to `app.error` in a new coroutine.
    pub(super) fn report(&mut self, owner: TaskOwner, failure: &LuaError) {
        let is_of_report =
            matches!(owner, TaskOwner::Spawned(number) if self.reports.remove(&number));
        self.context.set_running(owner);
        let before = match owner {
            TaskOwner::Start => START_FAILED,
            _ if is_of_report => "app.error has failed: ",
            _ => "",
        };
        let level = level_of(failure);
        if level == Level::Error && self.uncaught.is_none() {
            self.uncaught = Some(failure.clone());
        }
        let words = format!("{before}{}", failure.traceback);
        self.context.log(level, words);
        let Some(function) = self.handlers[HandlerName::Error as usize] else {
            return;
        };
        // An error in `app.error` itself would repeat forever.
        if is_of_report || level != Level::Error || self.reports.len() >= REPORTS_MAX {
            return;
        }
        let context = self.machine.guarded(false, || self.context(owner, failure));
        // Without memory for the call, the error is only logged.
        let Ok(context) = context.and_then(|context| self.machine.keep(context)) else {
            return;
        };
        let arguments = [
            Argument::Bytes(failure.words.as_bytes()),
            Argument::Registered(context),
        ];
        let coroutine = self.machine.prepare(function, &arguments);
        self.machine.release(context);
        self.reports.insert(self.context.spawned(coroutine, false));
    }

    /// Takes the first uncaught error since this function was last called; `None` if there was none.
    pub(crate) fn take_uncaught(&mut self) -> Option<LuaError> {
        self.uncaught.take()
    }

    fn context(&self, owner: TaskOwner, failure: &LuaError) -> mlua::Result<Table> {
        let table = self.lua.create_table()?;
        let handler = match owner {
            TaskOwner::Connection(..) => "connection",
            TaskOwner::Spawned(_) => "task",
            owner => owner.name(),
        };
        table.raw_set("handler", handler)?;
        table.raw_set("app", &*self.name)?;
        table.raw_set("worker", self.context.worker.0)?;
        table.raw_set("traceback", failure.traceback.as_str())?;
        if let Some(about) = self.context.about() {
            table.raw_set("connection", about.connection)?;
            table.raw_set("user", about.user)?;
            table.raw_set("method", about.method)?;
            table.raw_set("path", about.path)?;
        }
        Ok(table)
    }
}

/// Returns the log level of an error. A client that disconnects during a handler is not an error of
/// the script.
fn level_of(failure: &LuaError) -> Level {
    let left = [veche_runtime::CLOSED, veche_runtime::GONE];
    match left.iter().any(|words| failure.words.ends_with(words)) {
        true => Level::Debug,
        false => Level::Error,
    }
}
