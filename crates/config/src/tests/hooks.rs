//! Tests of `[hooks]`: which hooks handle which commands of clients.

use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::hooks::HookKind;
use veche_hub::{PublishAccess, SubscribeAccess};

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::types::RouteHandler;

const ROUTE: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n";
const ROOMS: &str = "[[namespace]]\nname = \"room\"\nsubscribe = \"hook\"\npublish = \"hook\"\n";

#[test]
fn hooks_exist_for_the_kinds_with_urls() {
    let hooks = "[hooks]\nsubscribe = \"http://127.0.0.1:9/s\"\npublish = \"http://[::1]/p\"\n\
                 rpc = \"http://localhost/r\"\nsecrets = [\"shh\"]\nclient_headers = [\"X-Token\"]\n";
    let config = good(&format!("{LISTEN}{ROUTE}{ROOMS}{hooks}"));
    assert_eq!(config.warnings, []);
    let access = config.namespaces[0].access;
    assert_eq!(
        (access.subscribe, access.publish),
        (SubscribeAccess::Hook, PublishAccess::Hook)
    );
    let hooks = config.hooks.expect("there are some");
    let kinds = HookKind::BACKEND_KINDS.into_iter();
    let urls: Vec<Option<&str>> = kinds
        .map(|kind| hooks.url(kind).map(SecretUrl::expose))
        .collect();
    let expected = [
        None,
        None,
        Some("http://127.0.0.1:9/s"),
        None,
        Some("http://[::1]/p"),
        Some("http://localhost/r"),
    ];
    assert_eq!(urls, expected);
    assert_eq!(hooks.headers, ["cookie", "authorization"]);
    assert_eq!(hooks.client_headers, ["x-token"]);
    assert_eq!(
        (hooks.timeout, hooks.pause),
        (Duration::from_secs(1), Duration::from_secs(10))
    );
    assert_eq!(
        (hooks.concurrency, hooks.waiting, hooks.failures),
        (32, 4096, 5)
    );
    // The secret is never displayed.
    assert!(!format!("{hooks:?}").contains("shh"));
    assert_eq!(good(LISTEN).hooks, None);
}

#[test]
fn invalid_hooks_settings_are_reported() {
    says_after_listen(
        ROOMS,
        &[
            "5:13: subscribe: \"hook\" needs a back end: subscribe = \"URL\" in a section [hooks], or an app on a route with handler = \"centrifuge\"",
            "6:11: publish: \"hook\" needs a back end: publish = \"URL\" in a section [hooks], or an app on a route with handler = \"centrifuge\"",
        ],
    );
    says_after_listen(
        "[hooks]\nrpc = \"127.0.0.1:3000\"\ntimeout = \"1m\"\nheaders = [\"host\"]\nsubscrib = \"x\"\n",
        &[
            "4:7: rpc: \"127.0.0.1:3000\" is not a URL: relative URL without a base",
            "5:11: timeout: expected a duration from \"1ms\" to \"20s\", found \"1m\"",
            "6:12: headers: this header can't be passed on, found \"host\"",
            "7:1: unknown directive \"subscrib\" in [hooks]; did you mean \"subscribe\"?",
        ],
    );
    says_after_listen(
        "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n[route.hooks]\nconect = \"off\"\nrpc = \"no\"\n",
        &[
            "7:1: hooks: expected one of connect, refresh, subscribe, sub_refresh, publish, rpc, found \"conect\"; did you mean \"connect\"?",
            "8:1: hooks: rpc: \"no\" is not a URL: relative URL without a base",
        ],
    );
}

#[test]
fn ineffective_settings_are_warned_of() {
    let url = "\"http://127.0.0.1/\"";
    for (text, ends) in [
        (
            "[hooks]\nwaiting = 1000\n".to_owned(),
            "waiting: has no effect without a URL",
        ),
        (
            format!("[hooks]\nrpc = {url}\n"),
            "rpc: no route has handler = \"centrifuge\", so this hook is never called",
        ),
        (
            format!("{ROUTE}[hooks]\npublish = {url}\n"),
            "publish: no [[namespace]] has publish = \"hook\", so this hook is never called",
        ),
        (
            format!("{ROUTE}[hooks]\nsub_refresh = {url}\n"),
            "sub_refresh: without subscribe the back end has no subscriptions to refresh",
        ),
        (
            format!("{ROUTE}[hooks]\nconnect = \"https://example.org/\"\n"),
            "connect: without secrets the back end can't verify that requests come from this server",
        ),
    ] {
        let config = good(&format!("{LISTEN}{text}"));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with(ends), "{warnings:?}");
    }
}

#[test]
fn an_app_decides_on_a_route_that_leads_to_it() {
    let app = "[[app]]\nname = \"chat\"\nscript = \"api.lua\"\n";
    for route in [
        "app = \"chat\"\n",
        "script = \"api.lua\"\nmemory = \"2MiB\"\n",
    ] {
        let hooks = "[hooks]\nclient_headers = [\"X-Token\"]\n";
        let config = good(&format!("{LISTEN}{ROUTE}{route}{app}{ROOMS}{hooks}"));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert!(
            warnings.iter().all(|why| why.contains("no route uses it")),
            "{warnings:?}"
        );
        let RouteHandler::Session { app: Some(app), .. } = &config.routes[0].handler else {
            panic!("{:?}", config.routes);
        };
        assert_eq!(*app, usize::from(route.starts_with("script")));
        let hooks = config.hooks.expect("what it gets to see");
        assert_eq!(hooks.headers, ["cookie", "authorization"]);
        assert_eq!(hooks.client_headers, ["x-token"]);
        assert!(
            HookKind::ALL
                .into_iter()
                .all(|kind| hooks.url(kind).is_none())
        );
    }
    let handler = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n";
    says_after_listen(
        &format!("{handler}app = \"caht\"\n{app}"),
        &["6:7: app: no [[app]] has the name \"caht\"; did you mean \"chat\"?"],
    );
    says_after_listen(
        &format!("{handler}memory = \"2MiB\"\n"),
        &["6:1: memory: has no effect without \"script\""],
    );
    let config = good(&format!(
        "{LISTEN}{ROUTE}script = \"api.lua\"\n[hooks]\nwaiting = 1000\n"
    ));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].ends_with("waiting: has no effect without a URL"));
}

#[test]
fn the_query_of_a_routes_url_is_not_shown() {
    let config = good(&format!(
        "{LISTEN}[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n[route.hooks]\nrpc = \"http://127.0.0.1:9/rpc?key=hidden\"\n"
    ));
    let shown = config.effective.to_string();
    assert!(shown.contains("http://127.0.0.1:9/rpc"), "{shown}");
    for text in [format!("{config:?}"), shown] {
        assert!(!text.contains("hidden"), "{text}");
    }
}
