//! `[hooks]`: URLs that can be asked, and something to ask about.

use veche_calls::SecretUrl;
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
        // A route with a problem may be meant to have one.
        let mut all = routes.iter().map(Option::as_ref);
        let has_app = all.any(|route| route.is_none_or(is_decided_by_app));
        self.asked_of_channels(table, namespaces, has_app);
        let kinds = Kind::OF_BACK_ENDS.into_iter();
        let given: Vec<Kind> = kinds.filter(|kind| table.has(kind.name())).collect();
        if given.is_empty() {
            // What clients' requests say an application gets to see too.
            let meant: &[&str] = match has_app {
                true => &["headers", "client_headers"],
                false => &[],
            };
            let idle = OPTIONS.into_iter().filter(|name| !meant.contains(name));
            for option in idle.filter(|option| table.has(option)) {
                let why = format!("{option}: without a URL nobody is asked anything");
                self.warn(table.key_at(option), why);
            }
            if !has_app {
                return None;
            }
        }
        let is_it = |route: &Option<Route>| {
            let handler = route.as_ref().map(|route| &route.handler);
            handler.is_none_or(|handler| matches!(handler, Handler::Centrifuge { .. }))
        };
        if let Some(first) = given.first().filter(|_| !routes.iter().any(is_it)) {
            let name = first.name();
            let why = format!(
                "{name}: no route has handler = \"centrifuge\", so there is nothing to ask"
            );
            self.warn(table.key_at(name), why);
        }
        if given.contains(&Kind::SubRefresh) && !given.contains(&Kind::Subscribe) && !has_app {
            let why = "sub_refresh: without subscribe no subscription is the back end's";
            self.warn(table.key_at("sub_refresh"), why);
        }
        let mut urls: [Option<SecretUrl>; Kind::ALL.len()] = Default::default();
        let mut is_sound = true;
        let mut is_far = false;
        for &kind in &given {
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
        if let Some(first) = given.first().filter(|_| is_far && secrets.is_empty()) {
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
        has_app: bool,
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
                false if has_app => {}
                false => {
                    for namespace in asked {
                        let why = format!(
                            "{name}: \"hook\" needs somebody to ask: {name} = \"URL\" in a section [hooks], or an app on a route with handler = \"centrifuge\""
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

/// Whether an application may decide on what clients of that route ask.
fn is_decided_by_app(route: &Route) -> bool {
    matches!(&route.handler, Handler::Centrifuge { app: Some(_), .. })
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
