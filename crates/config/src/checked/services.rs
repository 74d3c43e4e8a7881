//! Checks `[[service]]`: scripts, instances and restart policies.

use super::apps::{CheckedApps, app_of};
use super::{Checker, word};
use crate::raw::RawTable;
use crate::types::{RestartPolicy, ServiceConfig};
use crate::value::DirectiveValue;

impl Checker<'_> {
    /// Reads the services; `None` for those with a problem.
    pub(super) fn services<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
        apps: &CheckedApps,
    ) -> Vec<Option<ServiceConfig>> {
        let mut names = Vec::new();
        tables
            .map(|table| self.service(table, apps, &mut names))
            .collect()
    }

    fn service(
        &mut self,
        table: &RawTable,
        apps: &CheckedApps,
        names: &mut Vec<String>,
    ) -> Option<ServiceConfig> {
        let name = self.name_of(table);
        if let Some(name) = &name {
            let taken = match () {
                () if apps.has(name) => Some("an [[app]]"),
                () if names.contains(name) => Some("another [[service]]"),
                () => None,
            };
            if let Some(other) = taken {
                let why = format!("name: {other} is already called {name:?}");
                self.problems.add(table.value_at("name"), why);
            }
            names.push(name.clone());
        }
        let script = self.required(table, "script");
        let script = script.and_then(|script| self.script(table, &script));
        let instances = match table.value("instances") {
            Some(DirectiveValue::Integer(count)) => u32::try_from(count)
                .expect("the range of the directive must fit into the integer type"),
            other => unreachable!("instances must be a number and have a default, not {other:?}"),
        };
        Some(ServiceConfig {
            app: app_of(table, name?, script?),
            instances,
            restart: match word(table, "restart") {
                "always" => RestartPolicy::Always,
                "never" => RestartPolicy::Never,
                _ => RestartPolicy::OnFailure,
            },
        })
    }
}
