//! Checks `[events]`, the webhooks about channel and user events.

use veche_hub::EventLevel;

use super::identity::{duration, is_near, number};
use super::{Checker, text};
use crate::names::parse_url;
use crate::raw::RawTable;
use crate::types::{EventsConfig, NamespaceConfig};
use crate::value::DirectiveValue;

impl Checker<'_> {
    /// Reads the section; `None` if it is not set.
    pub(super) fn events<'t>(
        &mut self,
        table: &RawTable,
        namespaces: impl Iterator<Item = (&'t RawTable, &'t Option<NamespaceConfig>)>,
    ) -> Option<EventsConfig> {
        let has_events = |namespace: &Option<NamespaceConfig>| {
            let namespace = namespace.as_ref();
            namespace.is_some_and(|namespace| namespace.event_level != EventLevel::Off)
        };
        let with_events: Vec<&RawTable> = namespaces
            .filter(|(_, namespace)| has_events(namespace))
            .map(|(table, _)| table)
            .collect();
        let has_app = table.has("app");
        if has_app && with_events.is_empty() {
            let why = "app: no [[namespace]] has events, so there is nothing to send";
            self.warn(table.key_at("app"), why);
        }
        let Some(url) = text(table, "url") else {
            for namespace in with_events.into_iter().filter(|_| !has_app) {
                let why = "events: [events] has neither url nor app, so events are not sent";
                self.problems.add(namespace.value_at("events"), why);
            }
            for option in ["secrets", "timeout", "queue", "ca"] {
                if table.has(option) {
                    let why = format!("{option}: has no effect without url");
                    self.warn(table.key_at(option), why);
                }
            }
            return None;
        };
        if with_events.is_empty() {
            let why = "url: no [[namespace]] has events, so there is nothing to send";
            self.warn(table.key_at("url"), why);
        }
        let url = self.take("url", table.value_at("url"), parse_url(&url));
        let secrets = match table.value("secrets") {
            Some(DirectiveValue::Secrets(sources)) => self.secrets(table, "secrets", sources),
            _ => Vec::new(),
        };
        let files = secrets
            .iter()
            .filter_map(|(.., file)| file.clone())
            .collect();
        let secrets: Vec<_> = secrets.into_iter().map(|(_, secret, _)| secret).collect();
        if let Some(url) = &url
            && secrets.is_empty()
            && !is_near(url)
        {
            let why = "url: without secrets the back end can't verify that requests come from this server";
            self.warn(table.value_at("url"), why);
        }
        Some(EventsConfig {
            url: url?,
            secrets,
            files,
            timeout: duration(table, "timeout"),
            queue: number(table, "queue"),
            ca: self.ca(table, "ca"),
        })
    }
}
