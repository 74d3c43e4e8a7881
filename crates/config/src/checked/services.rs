//! Checks `[[service]]`: scripts, instances and restart policies.

use super::apps::{Apps, app_of};
use super::{Checker, word};
use crate::raw::Table;
use crate::types::{Restart, Service};
use crate::value::Value;

impl Checker<'_> {
    /// Reads the services; `None` for those with a problem.
    pub(super) fn services<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t Table>,
        apps: &Apps,
    ) -> Vec<Option<Service>> {
        let mut names = Vec::new();
        tables
            .map(|table| self.service(table, apps, &mut names))
            .collect()
    }

    fn service(&mut self, table: &Table, apps: &Apps, names: &mut Vec<String>) -> Option<Service> {
        let name = self.name_of(table);
        if let Some(name) = &name {
            let taken = match () {
                () if apps.has(name) => Some("an [[app]]"),
                () if names.contains(name) => Some("another [[service]]"),
                () => None,
            };
            if let Some(other) = taken {
                let why = format!("name: {other} is called {name:?} already");
                self.problems.add(table.value_at("name"), why);
            }
            names.push(name.clone());
        }
        let script = self.required(table, "script");
        let script = script.and_then(|script| self.script(table, &script));
        let instances = match table.value("instances") {
            Some(Value::Integer(count)) => u32::try_from(count).expect("the table has the range"),
            other => unreachable!("instances has a default and is a number: {other:?}"),
        };
        Some(Service {
            app: app_of(table, name?, script?),
            instances,
            restart: match word(table, "restart") {
                "always" => Restart::Always,
                "never" => Restart::Never,
                _ => Restart::OnFailure,
            },
        })
    }
}
