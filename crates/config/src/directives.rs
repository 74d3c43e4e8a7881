//! The table of all directives.
//!
//! It is the basis of the parser, `veche check`, `veche config`, the reference
//! (docs/reference/config.md) and the comparison at a reload. To add a directive, add a row here
//! and the field that `checked` fills from it.

use super::names::METHODS;
use super::value::{DirectiveKind, WORKERS_MAX};
use row::{KEEP, NETWORKS, ROTATE};

mod access_log;
mod acme;
mod app;
mod database;
mod engine;
mod events;
mod history;
mod hooks;
mod identity;
mod limits;
mod namespace;
mod pam;
mod route;
mod row;
mod service;

pub(crate) use row::{DefaultValue, Directive, ROLES, ReloadEffect, Section};

impl Section {
    /// Returns the section's directives.
    pub(crate) fn directives(self) -> impl Iterator<Item = &'static Directive> {
        all().filter(move |directive| directive.section == self)
    }
}

/// Returns all directives in the order of the reference.
pub(crate) fn all() -> impl Iterator<Item = &'static Directive> {
    SERVER
        .iter()
        .chain(access_log::ACCESS_LOG)
        .chain(LISTEN)
        .chain(acme::ACME)
        .chain(app::APP)
        .chain(service::SERVICE)
        .chain(database::DATABASE)
        .chain(route::ROUTE)
        .chain(namespace::NAMESPACE)
        .chain(history::HISTORY)
        .chain(engine::ENGINE)
        .chain(engine::NODE)
        .chain(limits::LIMITS)
        .chain(identity::JWT)
        .chain(identity::JWT_PLACES)
        .chain(identity::SUBSCRIPTION_JWT)
        .chain(identity::HOOK)
        .chain(hooks::HOOKS)
        .chain(pam::PAM)
        .chain(events::EVENTS)
        .chain(API)
        .chain(ADMIN)
}

static SERVER: &[Directive] = &[
    Directive {
        section: Section::Server,
        name: "workers",
        kind: DirectiveKind::Integer {
            min: 1,
            max: WORKERS_MAX as u64,
            words: &["auto"],
        },
        default: DefaultValue::Toml("\"auto\""),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The number of worker threads; each has its share of the connections. `\"auto\"` is one per core available to the process.",
    },
    Directive {
        section: Section::Server,
        name: "io",
        kind: DirectiveKind::Word {
            words: &["auto", "epoll", "io_uring"],
            hidden: &["delayed"],
        },
        default: DefaultValue::Toml("\"auto\""),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "How workers wait for sockets. `\"io_uring\"` costs up to a fifth less CPU per message, or about the same; before Linux 6.12, bulk input costs up to a fifth more. It needs Linux 6.1 and a container that permits it; otherwise the server does not start. `\"auto\"` uses it from Linux 6.12 on where permitted, else epoll; the log shows the choice and the reason.",
    },
    Directive {
        section: Section::Server,
        name: "log",
        kind: DirectiveKind::Word {
            words: &["off", "error", "warn", "info", "debug", "trace"],
            hidden: &[],
        },
        default: DefaultValue::Toml("\"info\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The lowest level that is logged. `\"debug\"` has a line for each connection.",
    },
    Directive {
        section: Section::Server,
        name: "log_format",
        kind: DirectiveKind::Word {
            words: &["text", "json"],
            hidden: &[],
        },
        default: DefaultValue::Toml("\"text\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "`\"text\"` for people; `\"json\"`, one object per line, for collectors.",
    },
    Directive {
        section: Section::Server,
        name: "log_file",
        kind: DirectiveKind::Text {
            expected: "the path of a file",
        },
        default: DefaultValue::Unset("standard error"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The file to which both processes of the server append the log. Its folder has to exist. SIGUSR1 reopens it, so that another program may move it away.",
    },
    Directive {
        section: Section::Server,
        name: "log_rotate",
        kind: ROTATE,
        default: DefaultValue::Unset("the file grows"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The size at which a new log file is begun: the old one is renamed to `log_file.1`, an existing `log_file.1` to `log_file.2`, and so on. The server's user must be able to rename files in its folder.",
    },
    Directive {
        section: Section::Server,
        name: "log_keep",
        kind: KEEP,
        default: DefaultValue::Toml("8"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The number of old files that `log_rotate` keeps.",
    },
    Directive {
        section: Section::Server,
        name: "control",
        kind: DirectiveKind::Text {
            expected: "the path of a socket",
        },
        default: DefaultValue::Toml("\"veche.sock\""),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The path of the Unix socket by which `veche status`, `reload` and `stop` reach the server. Only the server's user can open it. At most 107 bytes long; its folder has to exist. A packaged server keeps it under `/run/veche`.",
    },
    Directive {
        section: Section::Server,
        name: "user",
        kind: DirectiveKind::Text {
            expected: "the name or number of a user",
        },
        default: DefaultValue::Unset("the user that starts the server"),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The user of the server process, where the server is started as root: the supervisor binds ports and stays root, and the process that serves the network is unprivileged and has no supplementary groups. That user must be able to read scripts, pages, certificates and keys, and to rename files in the folders of rotated logs; log files are given to it.",
    },
    Directive {
        section: Section::Server,
        name: "group",
        kind: DirectiveKind::Text {
            expected: "the name or number of a group",
        },
        default: DefaultValue::Unset("the user's primary group"),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The group of the server process; used together with `user`.",
    },
    Directive {
        section: Section::Server,
        name: "sandbox",
        kind: DirectiveKind::Flag { words: &[] },
        default: DefaultValue::Toml("false"),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "Confines the server process (Landlock): it can read the folders of the files named here (scripts, pages, certificates, keys, this file's own) and what libraries need for names, time zones and authorities, write to the folders of its logs, of ordered certificates, of `history.path`, `api.blocks` and `server.snapshots`, and execute nothing. Newer kernels also prevent it from binding TCP ports, from connecting to ports that are not named here (without scripts and `[acme]` only), and from sending signals outside; the log lists at the start what is enforced. A reload that names other folders or ports needs a restart. The server does not start where the kernel lacks support.",
    },
    Directive {
        section: Section::Server,
        name: "snapshots",
        kind: DirectiveKind::Text {
            expected: "the path of a folder",
        },
        default: DefaultValue::Unset("the folder of each script"),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The folder to which relative paths of `table:save` and `table:load` refer, and the only one that `table:save` can write to if `sandbox` is on. Created if its parent exists, accessible to the server's user only.",
    },
];

static LISTEN: &[Directive] = &[
    Directive {
        section: Section::Listen,
        name: "address",
        kind: DirectiveKind::Text {
            expected: "an IP address and a port such as \"127.0.0.1:8080\" or \"[::]:8080\"",
        },
        default: DefaultValue::Required,
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "IP address and port: `\"0.0.0.0:80\"` is every IPv4 address of the machine, `\"[::]:80\"` every IPv6 address. With port 0 the system chooses a free port, which `veche status` shows.",
    },
    Directive {
        section: Section::Listen,
        name: "role",
        kind: DirectiveKind::Word {
            words: ROLES,
            hidden: &[],
        },
        default: DefaultValue::Toml("\"public\""),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The kind of peers. `\"public\"`: clients, served by the routes. `\"internal\"`: back ends and operators, with `/api/*`, `/health` and `/metrics` without a route; on addresses other than loopback it needs `api.keys`. `\"push\"`: back ends over plain TCP, one JSON object per line; it has no key, so keep it on loopback or a trusted network.",
    },
    Directive {
        section: Section::Listen,
        name: "name",
        kind: DirectiveKind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        default: DefaultValue::Unset("the address is its name"),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The name of this listener for routes and metrics. Unique among listeners, and different from the roles.",
    },
    Directive {
        section: Section::Listen,
        name: "tls",
        kind: DirectiveKind::Certificates,
        default: DefaultValue::Unset("no TLS"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "TLS 1.2 and 1.3 on this listener: `https://` and `wss://`, or encrypted push lines. Both files are PEM, `certificate` with the intermediate certificates. `{ acme = [\"push.example.org\"] }` is a certificate for these names that the server orders and renews itself, see `[acme]`. From a list, a client gets the certificate that has the requested name, else one with a matching wildcard, else the first. Changed files are loaded automatically; existing connections are not affected.",
    },
    Directive {
        section: Section::Listen,
        name: "client_ca",
        kind: DirectiveKind::Text {
            expected: "the path of a PEM file",
        },
        default: DefaultValue::Unset("client certificates are not requested"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "CA certificates for client certificates: clients need a certificate signed by one of them. Routes with `identity = \"mtls\"` use it to determine the user.",
    },
    Directive {
        section: Section::Listen,
        name: "client_certificate",
        kind: DirectiveKind::Word {
            words: &["required", "optional"],
            hidden: &[],
        },
        default: DefaultValue::Toml("\"required\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "With `client_ca`: whether clients without a certificate are refused. An invalid certificate is refused in any case.",
    },
    Directive {
        section: Section::Listen,
        name: "allow",
        kind: NETWORKS,
        default: DefaultValue::Unset("all addresses"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "Networks that may connect; all others are closed at once, before any input is read. Behind `trusted_proxies` the client's address is checked instead, and the answer is 403; requests of a proxy itself, such as health checks, have the proxy's address.",
    },
    Directive {
        section: Section::Listen,
        name: "deny",
        kind: NETWORKS,
        default: DefaultValue::Unset("no addresses"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "Networks that may not connect even if `allow` includes them.",
    },
    Directive {
        section: Section::Listen,
        name: "trusted_proxies",
        kind: NETWORKS,
        default: DefaultValue::Unset("none"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "Networks of the proxies and load balancers in front. Their headers determine the client's address, which limits, `allow`, `deny`, applications and the log then use. Headers of all others are ignored, so they cannot be forged. In a chain of proxies list all of them.",
    },
    Directive {
        section: Section::Listen,
        name: "proxy_protocol",
        kind: DirectiveKind::Flag { words: &[] },
        default: DefaultValue::Toml("false"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "Every connection begins with a header of the PROXY protocol, version 1 or 2, before TLS: `send-proxy` and `send-proxy-v2` in HAProxy, `proxy_protocol on` in nginx. The client's address in it becomes the connection's. Only `trusted_proxies` may connect; others, and peers that send no such header within `handshake_timeout`, are closed. `LOCAL` and `UNKNOWN`, as in health checks, keep the proxy's address. A header has at most 4 KiB of addresses and TLVs, and TLVs are ignored.",
    },
    Directive {
        section: Section::Listen,
        name: "client_address",
        kind: DirectiveKind::Text {
            expected: "\"x-forwarded-for\", \"forwarded\" or \"header:NAME\"",
        },
        default: DefaultValue::Toml("\"x-forwarded-for\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The header in which trusted proxies send the client's address: `X-Forwarded-For`, `Forwarded` (RFC 7239), or a header that contains only the address, such as `\"header:CF-Connecting-IP\"`. Only this header is read, because proxies pass on other headers as the client sent them. If it lists several addresses, the last one that is not a trusted proxy's is used.",
    },
    Directive {
        section: Section::Listen,
        name: "hosts",
        kind: DirectiveKind::List {
            expected: "names such as [\"example.com\", \"*.example.com\"]",
        },
        default: DefaultValue::Unset(
            "on loopback addresses the names of this machine, elsewhere every name",
        ),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The accepted names in `Host`; others get 421. `\"*\"` is every name. A listener on a loopback address accepts `localhost`, names below it and loopback addresses by default: a page of another site whose name resolves to 127.0.0.1 (DNS rebinding) must not reach it. Without a list, a trusted proxy may request any name.",
    },
];

static API: &[Directive] = &[
    Directive {
        section: Section::Api,
        name: "keys",
        kind: DirectiveKind::Secrets,
        default: DefaultValue::Toml("[]"),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The API keys. Each request must have one of them in `X-API-Key`; otherwise the answer is 401. A key is written here as a string; as `{ file = \"FILE\" }`, a file that contains only the key; or as `{ env = \"NAME\" }`, an environment variable that is read at the server's start. With several keys, one can be replaced without a gap. If there are no keys, requests need none; this is allowed only for internal listeners on loopback. The server never shows the keys. Create one with `openssl rand -hex 32`.",
    },
    Directive {
        section: Section::Api,
        name: "blocks",
        kind: DirectiveKind::Text {
            expected: "the path of a file",
        },
        default: DefaultValue::Unset(
            "blocked users and revoked tokens end with the server process",
        ),
        handlers: &[],
        change: ReloadEffect::Restart,
        doc: "The file that stores the effects of `block_user`, `revoke_token` and `invalidate_user_tokens`, so that they survive a restart. Each entry is a line of JSON, written before the call is answered. The file is read at the server's start, or created if it is missing; the server's user must be able to create files in its folder. Expired entries are removed once most entries have expired, but not in the first hour, because the clock may be ahead until it is set.",
    },
    Directive {
        section: Section::Api,
        name: "unknown_fields",
        kind: DirectiveKind::Word {
            words: &["refuse", "accept"],
            hidden: &[],
        },
        default: DefaultValue::Toml("\"refuse\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "How to treat unknown fields of an HTTP call. `\"refuse\"`: error 107, which names the nearest field. `\"accept\"`: they are ignored, as by Centrifugo; meant for older clients of Centrifugo's API and for those of its commercial edition.",
    },
    Directive {
        section: Section::Api,
        name: "publish_rate",
        kind: DirectiveKind::Rate { bytes: false },
        default: DefaultValue::Toml("\"off\""),
        handlers: &[],
        change: ReloadEffect::Reload,
        doc: "The rate of publications with each key: `\"1000/s\"`, or `\"60000/m\"`, which permits larger bursts. Every user and channel that a command names counts as one. Publications above the rate are refused without any effect: by HTTP with 429 and `Retry-After`, on `/api/socket` and on push lines with error 111. All callers without a key, as on push listeners, share one rate. A reload resets the rates.",
    },
];

static ADMIN: &[Directive] = &[Directive {
    section: Section::Admin,
    name: "keys",
    kind: DirectiveKind::Secrets,
    default: DefaultValue::Toml("[]"),
    handlers: &[],
    change: ReloadEffect::Reload,
    doc: "The keys that open the admin page, each written like those of `[api]`. They open nothing else, and the keys of `[api]` do not open the page. Without any keys the page is disabled. The server never shows the keys. Create one with `openssl rand -hex 32`.",
}];

/// Lists the methods for documentation and errors.
pub(crate) fn methods_listed() -> String {
    METHODS.map(|method| format!("{method:?}")).join(", ")
}
