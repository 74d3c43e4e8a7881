//! Checks `[hooks]` and the `hooks` of routes.

use veche_calls::SecretUrl;
use veche_frontends::hooks::HookKind;
use veche_hub::{PublishAccess, SubscribeAccess};
use veche_terminal::nearest_hint;

use super::identity::{duration, is_near, number};
use super::{Checker, text};
use crate::hooks::{HooksConfig, RouteHook, RouteHooks};
use crate::names::{parse_header_name, parse_url};
use crate::raw::RawTable;
use crate::types::{NamespaceConfig, RouteConfig, RouteHandler};
use crate::value::DirectiveValue;

impl Checker<'_> {
    /// Reads `[hooks]`. Returns `None` if the section has a problem, or if it is not needed: no hook has a URL, and no
    /// route has an app that decides on commands.
    pub(super) fn hooks<'t>(
        &mut self,
        table: &RawTable,
        namespaces: impl Iterator<Item = (&'t RawTable, &'t Option<NamespaceConfig>)>,
        routes: &[Option<RouteConfig>],
    ) -> Option<HooksConfig> {
        // A route with a problem counts as a route with an app: the problem may concern its app.
        let mut all = routes.iter().map(Option::as_ref);
        let has_app = all.any(|route| route.is_none_or(is_decided_by_app));
        self.channel_hooks(table, namespaces, has_app, routes);
        let kinds = HookKind::BACKEND_KINDS.into_iter();
        let given: Vec<HookKind> = kinds.filter(|kind| table.has(kind.name())).collect();
        let of_routes = urls_of_routes(routes);
        if given.is_empty() && of_routes.is_empty() {
            // An application receives the headers of clients' requests even if no hook has a URL.
            let meant: &[&str] = match has_app {
                true => &["headers", "client_headers"],
                false => &[],
            };
            let idle = OPTIONS.into_iter().filter(|name| !meant.contains(name));
            for option in idle.filter(|option| table.has(option)) {
                let why = format!("{option}: has no effect without a URL");
                self.warn(table.key_at(option), why);
            }
            if !has_app {
                return None;
            }
        }
        let is_it = |route: &Option<RouteConfig>| {
            let handler = route.as_ref().map(|route| &route.handler);
            handler.is_none_or(has_hooks)
        };
        if let Some(first) = given.first().filter(|_| !routes.iter().any(is_it)) {
            let name = first.name();
            let why = format!(
                "{name}: no route has handler = \"centrifuge\", so this hook is never called"
            );
            self.warn(table.key_at(name), why);
        }
        if given.contains(&HookKind::SubRefresh)
            && !given.contains(&HookKind::Subscribe)
            && !has_app
        {
            let why = "sub_refresh: without subscribe the back end has no subscriptions to refresh";
            self.warn(table.key_at("sub_refresh"), why);
        }
        let mut urls: [Option<SecretUrl>; HookKind::ALL.len()] = Default::default();
        let mut is_sound = true;
        let mut is_far = of_routes.iter().any(|(_, url)| !is_near(url));
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
            Some(DirectiveValue::Secrets(sources)) => self.secrets(table, "secrets", sources),
            _ => Vec::new(),
        };
        let files = secrets.iter().filter_map(|(.., file)| file.clone());
        let files = files.collect();
        let secrets: Vec<_> = secrets.into_iter().map(|(_, secret, _)| secret).collect();
        if is_far && secrets.is_empty() {
            let first = given.first().map(|first| first.name());
            let name = first.unwrap_or("secrets");
            let why = format!(
                "{name}: without secrets the back end can't verify that requests come from this server"
            );
            self.warn(first.map_or(table.at, |name| table.value_at(name)), why);
        }
        let headers = self.each(table, "headers", parse_header_name);
        let client_headers = self.each(table, "client_headers", parse_header_name);
        let ca = self.ca(table, "ca");
        is_sound.then_some(())?;
        Some(HooksConfig {
            urls,
            timeout: duration(table, "timeout"),
            secrets,
            files,
            headers: headers?,
            client_headers: client_headers?,
            concurrency: number(table, "concurrency"),
            waiting: number(table, "waiting"),
            failures: number(table, "failures"),
            pause: duration(table, "pause"),
            ca,
        })
    }

    /// Reads `hooks` of a route.
    pub(super) fn route_hooks(&mut self, table: &RawTable) -> Option<RouteHooks> {
        let mut hooks = RouteHooks::default();
        let Some(DirectiveValue::Pairs { pairs, .. }) = table.value("hooks") else {
            return table.is_sound("hooks").then_some(hooks);
        };
        let mut is_sound = true;
        for (item, (name, value)) in pairs.iter().enumerate() {
            let read = match (
                HookKind::BACKEND_KINDS
                    .into_iter()
                    .find(|kind| kind.name() == name),
                &**value,
            ) {
                (None, _) => {
                    let names = HookKind::BACKEND_KINDS.map(HookKind::name);
                    let hint = nearest_hint(name, names);
                    Err(format!(
                        "expected one of {}, found {name:?}{hint}",
                        names.join(", ")
                    ))
                }
                (Some(kind), "off") => Ok((kind, RouteHook::Off)),
                (Some(kind), url) => match parse_url(url) {
                    Ok(url) => Ok((kind, RouteHook::At(url))),
                    Err(why) => Err(format!("{name}: {why}")),
                },
            };
            match read {
                Ok((kind, hook)) => hooks[kind as usize] = hook,
                Err(why) => {
                    let at = table.item_at("hooks", item);
                    self.problems.add(at, format!("hooks: {why}"));
                    is_sound = false;
                }
            }
        }
        is_sound.then_some(hooks)
    }

    /// Checks that a back end or an app can be called for each namespace in which `"hook"` decides on commands, and that
    /// each configured subscribe or publish hook is used by a namespace.
    fn channel_hooks<'t>(
        &mut self,
        table: &RawTable,
        namespaces: impl Iterator<Item = (&'t RawTable, &'t Option<NamespaceConfig>)>,
        has_app: bool,
        routes: &[Option<RouteConfig>],
    ) {
        let (mut subscribe, mut publish) = (Vec::new(), Vec::new());
        for (table, namespace) in namespaces {
            let access = namespace.as_ref().map(|namespace| namespace.access);
            if access.is_some_and(|access| access.subscribe == SubscribeAccess::Hook) {
                subscribe.push(table);
            }
            if access.is_some_and(|access| access.publish == PublishAccess::Hook) {
                publish.push(table);
            }
        }
        let of_routes = urls_of_routes(routes);
        for (kind, asked) in [
            (HookKind::Subscribe, subscribe),
            (HookKind::Publish, publish),
        ] {
            let name = kind.name();
            match table.has(name) {
                false if has_app || of_routes.iter().any(|(of, _)| *of == kind) => {}
                false => {
                    for namespace in asked {
                        let why = format!(
                            "{name}: \"hook\" needs a back end: {name} = \"URL\" in a section [hooks], or an app on a route with handler = \"centrifuge\""
                        );
                        self.problems.add(namespace.value_at(name), why);
                    }
                }
                true if asked.is_empty() => {
                    let why = format!(
                        "{name}: no [[namespace]] has {name} = \"hook\", so this hook is never called"
                    );
                    self.warn(table.key_at(name), why);
                }
                true => {}
            }
        }
    }
}

/// Returns whether an application may decide on commands of a route's clients.
fn is_decided_by_app(route: &RouteConfig) -> bool {
    matches!(&route.handler, RouteHandler::Session { app: Some(_), .. })
}

/// Returns whether a handler supports hooks.
fn has_hooks(handler: &RouteHandler) -> bool {
    matches!(handler, RouteHandler::Session { protocol, .. } if protocol.accepts_method("hooks"))
}

fn urls_of_routes(routes: &[Option<RouteConfig>]) -> Vec<(HookKind, &SecretUrl)> {
    let mut urls = Vec::new();
    for route in routes.iter().flatten() {
        let RouteHandler::Session { hooks, .. } = &route.handler else {
            continue;
        };
        for kind in HookKind::BACKEND_KINDS {
            if let RouteHook::At(url) = &hooks[kind as usize] {
                urls.push((kind, url));
            }
        }
    }
    urls
}

/// Directives that have no effect without a hook.
const OPTIONS: [&str; 9] = [
    "timeout",
    "concurrency",
    "secrets",
    "headers",
    "client_headers",
    "waiting",
    "failures",
    "pause",
    "ca",
];
