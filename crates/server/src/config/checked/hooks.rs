//! `[hooks]`: URLs that can be asked, and something to ask about.

use veche_frontends::hooks::Kind;
use veche_hub::{Publishing, Subscribing};

use super::identity::{duration, is_near, number, parse_url};
use super::{Checker, text};
use crate::config::hooks::Hooks;
use crate::config::names::parse_header_name;
use crate::config::raw::Table;
use crate::config::types::{Handler, Namespace, Route};
use crate::config::value::Value;

impl Checker<'_> {
    /// `None`: nobody is asked, or something is wrong with it.
    pub(super) fn hooks<'t>(
        &mut self,
        table: &Table,
        namespaces: impl Iterator<Item = (&'t Table, &'t Option<Namespace>)>,
        routes: &[Option<Route>],
    ) -> Option<Hooks> {
        self.asked_of_channels(table, namespaces);
        let given = Kind::ALL.into_iter().filter(|kind| table.has(kind.name()));
        let given: Vec<Kind> = given.collect();
        let Some(&first) = given.first() else {
            for option in OPTIONS {
                if table.has(option) {
                    let why = format!("{option}: without a URL nobody is asked anything");
                    self.warn(table.key_at(option), why);
                }
            }
            return None;
        };
        let is_it = |route: &Option<Route>| {
            let handler = route.as_ref().map(|route| &route.handler);
            handler.is_none_or(|handler| matches!(handler, Handler::Centrifuge { .. }))
        };
        if !routes.iter().any(is_it) {
            let name = first.name();
            let why = format!(
                "{name}: no route has handler = \"centrifuge\", so there is nothing to ask"
            );
            self.warn(table.key_at(name), why);
        }
        if given.contains(&Kind::SubRefresh) && !given.contains(&Kind::Subscribe) {
            let why = "sub_refresh: without subscribe no subscription is the back end's";
            self.warn(table.key_at("sub_refresh"), why);
        }
        let mut urls: [Option<String>; Kind::ALL.len()] = Default::default();
        let mut is_sound = true;
        let mut is_far = false;
        for kind in given {
            let name = kind.name();
            let Some(url) = text(table, name) else {
                is_sound = false;
                continue;
            };
            let url = self.take(name, table.value_at(name), parse_url(&url));
            is_sound &= url.is_some();
            is_far |= url.as_ref().is_some_and(|url| !is_near(url));
            urls[kind as usize] = url;
        }
        let secrets = match table.value("secrets") {
            Some(Value::Secrets(sources)) => self.secrets(table, "secrets", sources),
            _ => Vec::new(),
        };
        let files = secrets.iter().filter_map(|(.., file)| file.clone());
        let files = files.collect();
        let secrets: Vec<_> = secrets.into_iter().map(|(_, secret, _)| secret).collect();
        if is_far && secrets.is_empty() {
            let name = first.name();
            let why = format!("{name}: without secrets anybody may say that he is this server");
            self.warn(table.value_at(name), why);
        }
        let headers = self.each(table, "headers", parse_header_name);
        let client_headers = self.each(table, "client_headers", parse_header_name);
        let ca = self.ca(table, "ca");
        is_sound.then_some(())?;
        Some(Hooks {
            urls,
            timeout: duration(table, "timeout"),
            secrets,
            files,
            headers: headers?,
            client_headers: client_headers?,
            waiting: number(table, "waiting"),
            failures: number(table, "failures"),
            pause: duration(table, "pause"),
            ca,
        })
    }

    /// Channels about which somebody is asked need somebody to ask, and the other way round.
    fn asked_of_channels<'t>(
        &mut self,
        table: &Table,
        namespaces: impl Iterator<Item = (&'t Table, &'t Option<Namespace>)>,
    ) {
        let (mut subscribe, mut publish) = (Vec::new(), Vec::new());
        for (table, namespace) in namespaces {
            let access = namespace.as_ref().map(|namespace| namespace.access);
            if access.is_some_and(|access| access.subscribe == Subscribing::Hook) {
                subscribe.push(table);
            }
            if access.is_some_and(|access| access.publish == Publishing::Hook) {
                publish.push(table);
            }
        }
        for (name, asked) in [("subscribe", subscribe), ("publish", publish)] {
            match table.has(name) {
                false => {
                    for namespace in asked {
                        let why = format!(
                            "{name}: \"hook\" needs somebody to ask: {name} = \"URL\" in a section [hooks]"
                        );
                        self.problems.add(namespace.value_at(name), why);
                    }
                }
                true if asked.is_empty() => {
                    let why = format!(
                        "{name}: no [[namespace]] has {name} = \"hook\", so there is nothing to ask"
                    );
                    self.warn(table.key_at(name), why);
                }
                true => {}
            }
        }
    }
}

/// Those that mean nothing where nobody is asked.
const OPTIONS: [&str; 8] = [
    "timeout",
    "secrets",
    "headers",
    "client_headers",
    "waiting",
    "failures",
    "pause",
    "ca",
];
