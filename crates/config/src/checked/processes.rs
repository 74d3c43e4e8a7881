//! Reads an `[[app]]` that runs in worker processes: the command, and the limits.

use std::time::Duration;

use super::identity::{duration, number};
use super::{Checker, list};
use crate::raw::RawTable;
use crate::types::{AppConfig, Processes};
use crate::value::DirectiveValue;

/// Directives without a default that apply only to Lua scripts.
const OF_LUA: [&str; 1] = ["script"];

/// Directives without a default that apply only to applications in worker processes.
pub(super) const OF_PROCESSES: [&str; 4] = ["command", "group", "user", "watch"];

impl Checker<'_> {
    /// Reports directives that the app's runtime does not use.
    pub(super) fn of_another_runtime(&mut self, table: &RawTable, names: &[&str], runtime: &str) {
        for name in names.iter().filter(|name| table.has(name)) {
            let why = format!("{name}: has no effect with runtime = {runtime:?}");
            self.problems.add(table.key_at(name), why);
        }
    }

    /// Checks an application in worker processes; returns `None` if a value is invalid.
    pub(super) fn processes(
        &mut self,
        table: &RawTable,
        name: Option<&str>,
        app: AppConfig,
    ) -> Option<AppConfig> {
        self.of_another_runtime(table, &OF_LUA, super::word(table, "runtime"));
        let command = list(table, "command");
        if command.is_empty() && table.is_sound("command") {
            let why = "[[app]] lacks \"command\", which its runtime requires";
            self.problems.add(table.at, why);
        }
        let is_empty = command.first().is_none_or(String::is_empty);
        if is_empty && !command.is_empty() {
            let why = "command: the name of the program is empty";
            self.problems.add(table.value_at("command"), why);
        }
        let files = self.files_of_app(table)?;
        let whole = |name| match table.value(name) {
            Some(DirectiveValue::Integer(number)) => number,
            _ => 0,
        };
        let processes = Processes {
            command,
            folder: self.base.clone(),
            run_as: self.run_as(table),
            watch: list(table, "watch")
                .iter()
                .map(|path| self.base.join(path))
                .collect(),
            workers: number(table, "workers"),
            jobs_max: whole("max_jobs"),
            ttl: Some(duration(table, "ttl")).filter(|ttl| *ttl > Duration::ZERO),
            idle_ttl: Some(duration(table, "idle_ttl")).filter(|ttl| *ttl > Duration::ZERO),
            queue: number(table, "queue") as usize,
            queue_timeout: duration(table, "queue_timeout"),
            start_timeout: duration(table, "start_timeout"),
            stop_timeout: duration(table, "stop_timeout"),
            event_timeout: duration(table, "event_timeout"),
            rss_bytes_max: match table.value("rss_max") {
                Some(DirectiveValue::Size(bytes)) => Some(bytes),
                _ => None,
            },
        };
        (!is_empty).then_some(())?;
        Some(AppConfig {
            name: name?.to_owned(),
            files,
            processes: Some(processes),
            ..app
        })
    }
}
