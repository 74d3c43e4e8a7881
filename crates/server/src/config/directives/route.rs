//! The rows of `[[route]]`.

use super::app::{CPU_BUDGET, MEMORY, REQUEST_TIMEOUT, SCRIPT};
use super::{Change, Default, Directive, HANDLERS, Section, WEBSOCKET_HANDLERS};
use crate::config::value::Kind;

pub(super) static ROUTE: &[Directive] = &[
    Directive {
        section: Section::Route,
        name: "path",
        kind: Kind::Text {
            expected: "a path such as \"/app\", \"/app/*\" or \"/room/:id\"",
        },
        default: Default::Required,
        handlers: &[],
        change: Change::Reload,
        doc: "Exactly this path (`/app`), with parameters (`/room/:id`, one piece each), or all that lies below (`/app/*`). At most 32 pieces.",
    },
    Directive {
        section: Section::Route,
        name: "handler",
        kind: Kind::Word {
            words: HANDLERS,
            hidden: &[],
        },
        default: Default::Required,
        handlers: &[],
        change: Change::Reload,
        doc: "Who answers. `\"push\"`: WebSocket clients that the back end pushes to. `\"echo\"`: a WebSocket that sends each message back. `\"static\"`: files. `\"api\"`: the server API, on a listener other than the internal ones, which have it anyway. `\"lua\"`: an app, by WebSocket and by plain HTTP.",
    },
    Directive {
        section: Section::Route,
        name: "listen",
        kind: Kind::Text {
            expected: "a listener's name or a role",
        },
        default: Default::Toml("\"public\""),
        handlers: &[],
        change: Change::Reload,
        doc: "The listeners that have this route: the one with this `name`, or all with this role (`\"public\"` or `\"internal\"`; a push listener has no routes).",
    },
    Directive {
        section: Section::Route,
        name: "methods",
        kind: Kind::List {
            expected: "methods such as [\"GET\", \"POST\"]",
        },
        default: Default::Unset("all that the handler serves"),
        handlers: &["static", "api", "lua"],
        change: Change::Reload,
        doc: "The methods this route is for, in capitals; GET takes HEAD with it. A path can have one route for each method. WebSockets are opened by GET and nothing else.",
    },
    Directive {
        section: Section::Route,
        name: "identity",
        kind: Kind::Text {
            expected: "\"query:NAME\", \"cookie:NAME\", \"header:NAME\", \"mtls\" or \"none\"",
        },
        default: Default::Toml("\"none\""),
        handlers: &["push", "lua"],
        change: Change::Reload,
        doc: "Where the name of a connection's user is: in a parameter of the query, a cookie or a header; a WebSocket without it is refused (a plain request to an app is not, it just has no user). With `\"none\"` it has no user, only channels. The value is believed as it stands. So a query or a header is for demos and trusted networks, such as behind a proxy that sets the header itself, and a cookie should hold something that cannot be guessed. With `\"mtls\"` it is in the certificate that the client has shown on a listener with `client_ca`: its common name, or else its first mail address, host name or URI; `\"mtls:cn\"`, `\"mtls:email\"`, `\"mtls:dns\"` and `\"mtls:uri\"` take that one only.",
    },
    Directive {
        section: Section::Route,
        name: "channels",
        kind: Kind::List {
            expected: "channels such as [\"news\", \"room:*\"]",
        },
        default: Default::Unset("none"),
        handlers: &["push"],
        change: Change::Reload,
        doc: "The channels that clients may subscribe to by `?channel=NAME`: a name, or a beginning and `*`. `\"*\"` is all of them; users' own channels are never among them.",
    },
    Directive {
        section: Section::Route,
        name: "root",
        kind: Kind::Text {
            expected: "a folder or \"builtin:demo\"",
        },
        default: Default::Unset("has to be set for `\"static\"`"),
        handlers: &["static"],
        change: Change::Reload,
        doc: "The folder whose files are served; nothing outside of it ever is. `\"builtin:demo\"` is the demo page inside the binary.",
    },
    Directive {
        section: Section::Route,
        name: "app",
        kind: Kind::Text {
            expected: "the name of an [[app]]",
        },
        default: Default::Unset("`script` says what is run"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "The app that this route leads to, by the `name` of its `[[app]]`. Several routes may lead to one app.",
    },
    Directive {
        section: Section::Route,
        name: "script",
        kind: SCRIPT,
        default: Default::Unset("`app` says what is run"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "The Lua file that this route leads to, instead of `app`. Routes with the same script share one app.",
    },
    Directive {
        section: Section::Route,
        name: "memory",
        kind: MEMORY,
        default: Default::Unset("as of an `[[app]]`"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "Beside `script`: see `memory` of `[[app]]`.",
    },
    Directive {
        section: Section::Route,
        name: "cpu_budget",
        kind: CPU_BUDGET,
        default: Default::Unset("as of an `[[app]]`"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "Beside `script`: see `cpu_budget` of `[[app]]`.",
    },
    Directive {
        section: Section::Route,
        name: "request_timeout",
        kind: REQUEST_TIMEOUT,
        default: Default::Unset("as of an `[[app]]`"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "Beside `script`: see `request_timeout` of `[[app]]`.",
    },
    Directive {
        section: Section::Route,
        name: "options",
        kind: Kind::Table,
        default: Default::Unset("an empty table"),
        handlers: &["lua"],
        change: Change::Reload,
        doc: "Beside `script`: see `options` of `[[app]]`.",
    },
    Directive {
        section: Section::Route,
        name: "origins",
        kind: Kind::List {
            expected: "origins such as [\"same-host\", \"https://*.example.com\"]",
        },
        default: Default::Toml("[\"same-host\"]"),
        handlers: WEBSOCKET_HANDLERS,
        change: Change::Reload,
        doc: "The sites whose pages may open a WebSocket here; others get 403. `\"same-host\"`: pages from the host and port that the request itself names. `\"https://app.example.com\"`: that origin. `\"https://*.example.com\"`: every host below it, the domain itself not included. `\"*\"`: any site, and then cookies don't protect: another site's page connects with its visitor's cookies. Programs that send no `Origin` are not browsers and are let in.",
    },
    Directive {
        section: Section::Route,
        name: "compression",
        kind: Kind::Flag {
            words: &["takeover"],
        },
        default: Default::Toml("false"),
        handlers: WEBSOCKET_HANDLERS,
        change: Change::Reload,
        doc: "Agree to permessage-deflate (RFC 7692) when a client offers it. `true`: each message by itself, so idle connections hold no state and a message for many is compressed once. `\"takeover\"`: each message builds on the ones before, which is smaller for many alike, and costs tens of kilobytes of memory a connection.",
    },
    Directive {
        section: Section::Route,
        name: "message_bytes_max",
        kind: Kind::Size {
            min: 125,
            max: 1 << 30,
        },
        default: Default::Toml("\"64KiB\""),
        handlers: WEBSOCKET_HANDLERS,
        change: Change::Reload,
        doc: "The longest message taken from a client, after inflating; a longer one closes with 1009.",
    },
    Directive {
        section: Section::Route,
        name: "fragments_max",
        kind: Kind::Integer {
            min: 1,
            max: 1 << 24,
            words: &[],
        },
        default: Default::Toml("1024"),
        handlers: WEBSOCKET_HANDLERS,
        change: Change::Reload,
        doc: "The most frames that one message may come in; more close with 1009. Browsers send one; tiny fragments are a cheap way to keep a server busy.",
    },
];
