//! The table of directives: the one place that says which there are.
//!
//! The parser, `veche check`, `veche config`, the reference (docs/reference/config.md) and the comparison at
//! reload all read it. To add a directive, add a row and the field that `checked` fills from it.

use std::time::Duration;

use veche_frontends::registry::{PROTOCOLS, protocol};
use veche_types::nearest;

use super::names::METHODS;
use super::types::WORKERS_MAX;
use super::value::Kind;

mod access_log;
mod acme;
mod app;
mod events;
mod history;
mod hooks;
mod identity;
mod limits;
mod namespace;
mod pam;
mod route;
mod service;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Server,
    AccessLog,
    Listen,
    Acme,
    App,
    Service,
    Route,
    Namespace,
    History,
    Limits,
    Jwt,
    SubscriptionJwt,
    IdentityHook,
    Hooks,
    Pam,
    Events,
    Api,
    Admin,
}

impl Section {
    /// In the order of the reference.
    pub(crate) const ALL: [Self; 18] = [
        Self::Server,
        Self::AccessLog,
        Self::Listen,
        Self::Acme,
        Self::App,
        Self::Service,
        Self::Route,
        Self::Namespace,
        Self::History,
        Self::Limits,
        Self::Jwt,
        Self::SubscriptionJwt,
        Self::IdentityHook,
        Self::Hooks,
        Self::Pam,
        Self::Events,
        Self::Api,
        Self::Admin,
    ];

    /// Its name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::AccessLog => "access_log",
            Self::Listen => "listen",
            Self::Acme => "acme",
            Self::App => "app",
            Self::Service => "service",
            Self::Route => "route",
            Self::Namespace => "namespace",
            Self::History => "history",
            Self::Limits => "limits",
            Self::Jwt => "jwt",
            Self::SubscriptionJwt => "subscription_jwt",
            Self::IdentityHook => "identity_hook",
            Self::Hooks => "hooks",
            Self::Pam => "pam",
            Self::Events => "events",
            Self::Api => "api",
            Self::Admin => "admin",
        }
    }

    /// Returns the section that had this name in an earlier version.
    pub(crate) fn formerly(name: &str) -> Option<Self> {
        match name {
            "hook" => Some(Self::IdentityHook),
            _ => None,
        }
    }

    /// Returns the section of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns the section that this name most likely stands for.
    pub(crate) fn meant_by(name: &str) -> Option<Self> {
        let near = || nearest(name, Self::ALL.map(Self::name)).and_then(Self::named);
        Self::named(name)
            .or_else(|| Self::formerly(name))
            .or_else(near)
    }

    /// As written above its directives.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Server => "[server]",
            Self::AccessLog => "[access_log]",
            Self::Listen => "[[listen]]",
            Self::Acme => "[acme]",
            Self::App => "[[app]]",
            Self::Service => "[[service]]",
            Self::Route => "[[route]]",
            Self::Namespace => "[[namespace]]",
            Self::History => "[history]",
            Self::Limits => "[limits]",
            Self::Jwt => "[jwt]",
            Self::SubscriptionJwt => "[subscription_jwt]",
            Self::IdentityHook => "[identity_hook]",
            Self::Hooks => "[hooks]",
            Self::Pam => "[pam]",
            Self::Events => "[events]",
            Self::Api => "[api]",
            Self::Admin => "[admin]",
        }
    }

    /// Whether there may be several.
    pub(crate) fn repeats(self) -> bool {
        matches!(
            self,
            Self::Listen | Self::App | Self::Service | Self::Route | Self::Namespace
        )
    }

    /// What it is for.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test writes the reference from it")
    )]
    pub(crate) fn doc(self) -> &'static str {
        match self {
            Self::Server => "The process: its threads, its log, its control socket.",
            Self::AccessLog => {
                "A line for each request that was answered and each WebSocket session that has ended, in a file of its own. There is none unless `file` says where."
            }
            Self::Listen => {
                "An address to listen on, and who is expected there. Write one for each address; there is at least one. A peer that is silent for a minute is asked by TCP whether it is there (keep-alive), then every 15 seconds, and after four questions without an answer its connection ends: one that vanished is noticed within two minutes."
            }
            Self::Acme => {
                "Who issues the certificates of listeners with `tls = { acme = [\"NAME\"] }`, and where they are kept. Without the section the defaults count. See [the guide](../guide/tls.md#certificates-by-acme)."
            }
            Self::App => {
                "A script that routes with `handler = \"lua\"` lead to. It runs once in each worker, for all its routes together. A script that needs no options can be named by its route, without a section of its own."
            }
            Self::Service => {
                "A script that works by itself, without clients: it returns a table with the function `run`, which is called once the server is up, in a VM of its own, beside the connections of one of the workers."
            }
            Self::Route => {
                "Which requests a handler gets. The most specific path wins, whatever the order in the file: a literal piece before a parameter, a parameter before a prefix."
            }
            Self::Namespace => {
                "What channels of one kind do beside reaching those who are subscribed. Channels of a namespace that is not named here remember nothing. See [the guide](../guide/history.md)."
            }
            Self::History => {
                "Where what channels remember is kept, beyond the life of the server process. See [the guide](../guide/history.md#on-disk)."
            }
            Self::Limits => {
                "What one client may take, and all of them together. The defaults are meant for a server on the open internet."
            }
            Self::Jwt => {
                "Tokens that say who a client is, for routes with `identity = \"jwt\"`: whose, and by which keys they are checked. See [the guide](../guide/identity.md)."
            }
            Self::SubscriptionJwt => {
                "Keys and rules for the subscription tokens of routes with `handler = \"centrifuge\"` and `identity = \"jwt\"`, where they differ from those of connection tokens. Without the section `[jwt]` counts for both; with it nothing of `[jwt]` counts for subscription tokens."
            }
            Self::IdentityHook => {
                "How the back end is asked who a client is, for routes with `identity = \"http:URL\"`. See [the guide](../guide/identity.md)."
            }
            Self::Hooks => {
                "What clients of routes with `handler = \"centrifuge\"` may do by the word of the back end, which is asked over HTTP before their command is carried out, as Centrifugo asks its proxies. Each kind of command has a URL of its own, and those without one are not asked about; it is one back end for all such routes, and which channels are asked about each `[[namespace]]` says. See [the guide](../guide/hooks.md)."
            }
            Self::Pam => {
                "How the passwords of clients are judged by the machine's PAM, for routes with `identity = \"pam:SERVICE\"`. See [the guide](../guide/identity.md#passwords-of-the-machine)."
            }
            Self::Events => {
                "What happens to channels and users, told to the back end. See [the guide](../guide/events.md)."
            }
            Self::Api => {
                "The API for the back end, on every internal listener under `/api/` and on routes with `handler = \"api\"`."
            }
            Self::Admin => {
                "The operator's page, on every internal listener under `/admin/`: figures as they change, channels and users, the log. There is none without a key. See [the guide](../guide/admin.md)."
            }
        }
    }

    /// Its directives.
    pub(crate) fn directives(self) -> impl Iterator<Item = &'static Directive> {
        all().filter(move |directive| directive.section == self)
    }
}

/// One row.
#[derive(Debug)]
pub(crate) struct Directive {
    pub section: Section,
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    /// Of `[[route]]`: see [`Directive::handlers`]; empty for all.
    pub handlers: &'static [&'static str],
    pub change: Change,
    /// Markdown, one paragraph.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test writes the reference from it")
    )]
    pub doc: &'static str,
}

impl Directive {
    /// Returns the handlers that it means something to; none where it means something to all.
    pub fn handlers(&self) -> impl Iterator<Item = &'static str> {
        let is_meant = move |word: &str, name: &str| match word {
            EACH_PROTOCOL => protocol(name).is_some(),
            ITS_PROTOCOLS => protocol(name).is_some_and(|protocol| protocol.takes(self.name)),
            word => word == name,
        };
        let all = HANDLERS.iter().copied();
        all.filter(move |name| self.handlers.iter().any(|word| is_meant(word, name)))
    }

    /// Whether it means something to a handler.
    pub fn concerns(&self, handler: &str) -> bool {
        self.handlers.is_empty() || self.handlers().any(|one| one == handler)
    }
}

/// What counts where the file says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Default {
    /// The file has to say it.
    Required,
    /// Nothing; in words, what that means.
    Unset(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "a test writes the reference from it")
        )]
        &'static str,
    ),
    /// This, in TOML.
    Toml(&'static str),
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Reload,
    Restart,
}

/// Every row, in the order of the reference.
pub(crate) fn all() -> impl Iterator<Item = &'static Directive> {
    SERVER
        .iter()
        .chain(access_log::ACCESS_LOG)
        .chain(LISTEN)
        .chain(acme::ACME)
        .chain(app::APP)
        .chain(service::SERVICE)
        .chain(route::ROUTE)
        .chain(namespace::NAMESPACE)
        .chain(history::HISTORY)
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

/// Handlers that are no client protocols.
const OTHER_HANDLERS: [&str; 3] = ["static", "api", "lua"];

/// So many client protocols stand before those in the reference.
const BEFORE_OTHERS: usize = 2;

/// The names that `handler` takes, in the order of the reference.
pub(crate) static HANDLERS: [&str; PROTOCOLS.len() + OTHER_HANDLERS.len()] = {
    let mut all = [""; PROTOCOLS.len() + OTHER_HANDLERS.len()];
    let mut next = 0;
    while next < all.len() {
        all[next] = if next < BEFORE_OTHERS {
            PROTOCOLS[next].name
        } else if next < BEFORE_OTHERS + OTHER_HANDLERS.len() {
            OTHER_HANDLERS[next - BEFORE_OTHERS]
        } else {
            PROTOCOLS[next - OTHER_HANDLERS.len()].name
        };
        next += 1;
    }
    all
};

/// Among a directive's handlers: each client protocol.
const EACH_PROTOCOL: &str = "each protocol";
/// Among a directive's handlers: each client protocol that has the directive among its options.
const ITS_PROTOCOLS: &str = "protocols with this option";

/// Handlers that open WebSockets.
pub(crate) const WEBSOCKET_HANDLERS: &[&str] = &[EACH_PROTOCOL, "api", "lua"];
/// An application, and client protocols with this option.
pub(crate) const APP_HANDLERS: &[&str] = &[ITS_PROTOCOLS, "lua"];
/// Client protocols with this option alone.
pub(crate) const PROTOCOL_HANDLERS: &[&str] = &[ITS_PROTOCOLS];
/// The names that `role` takes.
pub(crate) const ROLES: &[&str] = &["public", "internal", "push"];

static SERVER: &[Directive] = &[
    Directive {
        section: Section::Server,
        name: "workers",
        kind: Kind::Integer {
            min: 1,
            max: WORKERS_MAX as u64,
            words: &["auto"],
        },
        default: Default::Toml("\"auto\""),
        handlers: &[],
        change: Change::Restart,
        doc: "Worker threads; each holds its share of the connections. `\"auto\"` is one for each core that the process may use.",
    },
    Directive {
        section: Section::Server,
        name: "io",
        kind: Kind::Word {
            words: &["auto", "epoll", "io_uring"],
            hidden: &["delayed"],
        },
        default: Default::Toml("\"auto\""),
        handlers: &[],
        change: Change::Restart,
        doc: "How workers wait for sockets. `\"io_uring\"` costs up to a fifth less for each message, or about the same, before Linux 6.12 up to a fifth more where much comes at once; it takes Linux 6.1 and a container that allows it, and the server does not start without. `\"auto\"` takes it from Linux 6.12 on where it is allowed, else epoll; a line of the log says which and why.",
    },
    Directive {
        section: Section::Server,
        name: "log",
        kind: Kind::Word {
            words: &["off", "error", "warn", "info", "debug", "trace"],
            hidden: &[],
        },
        default: Default::Toml("\"info\""),
        handlers: &[],
        change: Change::Reload,
        doc: "The least important lines that are still logged. `\"debug\"` has a line for each connection.",
    },
    Directive {
        section: Section::Server,
        name: "log_format",
        kind: Kind::Word {
            words: &["text", "json"],
            hidden: &[],
        },
        default: Default::Toml("\"text\""),
        handlers: &[],
        change: Change::Reload,
        doc: "`\"text\"` for people, `\"json\"`, an object a line, for collectors.",
    },
    Directive {
        section: Section::Server,
        name: "log_file",
        kind: Kind::Text {
            expected: "the path of a file",
        },
        default: Default::Unset("standard error"),
        handlers: &[],
        change: Change::Reload,
        doc: "The file that the log is appended to, by both processes of the server. Its folder has to exist. On SIGUSR1 it is opened anew, so that another program may move it away.",
    },
    Directive {
        section: Section::Server,
        name: "log_rotate",
        kind: ROTATE,
        default: Default::Unset("the file grows"),
        handlers: &[],
        change: Change::Reload,
        doc: "Before `log_file` would be larger than this it becomes `log_file.1`, which becomes `log_file.2`, and a new one is begun. The server's user has to be allowed to rename files in its folder.",
    },
    Directive {
        section: Section::Server,
        name: "log_keep",
        kind: KEEP,
        default: Default::Toml("8"),
        handlers: &[],
        change: Change::Reload,
        doc: "How many old files `log_rotate` leaves.",
    },
    Directive {
        section: Section::Server,
        name: "control",
        kind: Kind::Text {
            expected: "the path of a socket",
        },
        default: Default::Toml("\"veche.sock\""),
        handlers: &[],
        change: Change::Restart,
        doc: "The Unix socket by which `veche status`, `reload` and `stop` reach the server, open to its user only. At most 107 bytes long; its folder has to exist. A packaged server keeps it under `/run/veche`.",
    },
    Directive {
        section: Section::Server,
        name: "user",
        kind: Kind::Text {
            expected: "the name or number of a user",
        },
        default: Default::Unset("whoever starts the server"),
        handlers: &[],
        change: Change::Restart,
        doc: "Whom the server process belongs to, where the server is started as root: the supervisor binds ports and stays root, and what speaks with the network is nobody of importance. Without supplementary groups. That user has to be able to read scripts, pages, certificates and their keys, and to rename files in the folders of logs that are rotated; log files are given to it.",
    },
    Directive {
        section: Section::Server,
        name: "group",
        kind: Kind::Text {
            expected: "the name or number of a group",
        },
        default: Default::Unset("the user's own"),
        handlers: &[],
        change: Change::Restart,
        doc: "The group that goes with `user`.",
    },
    Directive {
        section: Section::Server,
        name: "sandbox",
        kind: Kind::Flag { words: &[] },
        default: Default::Toml("false"),
        handlers: &[],
        change: Change::Restart,
        doc: "Locks the server process in (Landlock): it can read the folders of the files that are named here (scripts, pages, certificates, keys, this file's own) and what libraries need for names, zones and authorities, write to the folders of its logs, of ordered certificates, of `history.path`, `api.blocks` and `server.snapshots`, and run nothing. Newer kernels also keep it from binding TCP ports, from connecting to ports that are not named here (without scripts and `[acme]` only), and from sending signals outside; the log says at start what is enforced. A reload that names other folders or ports needs a restart. Refuses to start where the kernel can't do it.",
    },
    Directive {
        section: Section::Server,
        name: "snapshots",
        kind: Kind::Text {
            expected: "the path of a folder",
        },
        default: Default::Unset("the folder of each script"),
        handlers: &[],
        change: Change::Restart,
        doc: "The folder from which the paths of `table:save` and `table:load` begin, and the only one that `table:save` can write to where `sandbox` is on. Made if its own folder is there, for the server's user only.",
    },
];

/// What `rotate` is made of.
const ROTATE: Kind = Kind::Size {
    min: 4 << 10,
    max: 1 << 40,
    words: &[],
};
/// What `keep` is made of.
const KEEP: Kind = Kind::Integer {
    min: 1,
    max: 1_000,
    words: &[],
};

static LISTEN: &[Directive] = &[
    Directive {
        section: Section::Listen,
        name: "address",
        kind: Kind::Text {
            expected: "an IP address and a port such as \"127.0.0.1:8080\" or \"[::]:8080\"",
        },
        default: Default::Required,
        handlers: &[],
        change: Change::Restart,
        doc: "IP address and port: `\"0.0.0.0:80\"` is every IPv4 address of the machine, `\"[::]:80\"` every IPv6 address. With port 0 the system picks a free port, which `veche status` shows.",
    },
    Directive {
        section: Section::Listen,
        name: "role",
        kind: Kind::Word {
            words: ROLES,
            hidden: &[],
        },
        default: Default::Toml("\"public\""),
        handlers: &[],
        change: Change::Restart,
        doc: "Who is expected. `\"public\"`: clients, served by the routes. `\"internal\"`: the back end and the operator, with `/api/*`, `/health` and `/metrics` without a route; on other than loopback addresses it needs `api.keys`. `\"push\"`: the back end over plain TCP, one JSON object a line; it asks for no key, so keep it on loopback or on a network you trust.",
    },
    Directive {
        section: Section::Listen,
        name: "name",
        kind: Kind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        default: Default::Unset("known by its address"),
        handlers: &[],
        change: Change::Restart,
        doc: "What routes and metrics call this listener. Unlike the other names of listeners, and unlike the roles.",
    },
    Directive {
        section: Section::Listen,
        name: "tls",
        kind: Kind::Certificates,
        default: Default::Unset("no TLS"),
        handlers: &[],
        change: Change::Reload,
        doc: "TLS 1.2 and 1.3 on this listener: `https://` and `wss://`, or sealed push lines. Both files are PEM, `certificate` with the chain behind the server's own. `{ acme = [\"push.example.org\"] }` is a certificate for these names that the server gets and renews by itself, see `[acme]`. With a list of several, clients get the one for the name that they ask for: exactly, else by a wildcard, else the first. Files that change are read again by themselves; connections stay as they are.",
    },
    Directive {
        section: Section::Listen,
        name: "client_ca",
        kind: Kind::Text {
            expected: "the path of a PEM file",
        },
        default: Default::Unset("clients show no certificates"),
        handlers: &[],
        change: Change::Reload,
        doc: "Certificates of the authorities that vouch for clients: clients have to show a certificate of theirs. Routes with `identity = \"mtls\"` take the user's name from it.",
    },
    Directive {
        section: Section::Listen,
        name: "client_certificate",
        kind: Kind::Word {
            words: &["required", "optional"],
            hidden: &[],
        },
        default: Default::Toml("\"required\""),
        handlers: &[],
        change: Change::Reload,
        doc: "With `client_ca`: whether clients without a certificate are sent away. One that is shown has to be good either way.",
    },
    Directive {
        section: Section::Listen,
        name: "allow",
        kind: NETWORKS,
        default: Default::Unset("everybody"),
        handlers: &[],
        change: Change::Reload,
        doc: "Networks that may connect; all others are closed at once, before a byte of theirs is read. Behind `trusted_proxies` it is the client's address that counts, and the answer is 403; what a proxy asks for itself, such as its health checks, counts as its own.",
    },
    Directive {
        section: Section::Listen,
        name: "deny",
        kind: NETWORKS,
        default: Default::Unset("nobody"),
        handlers: &[],
        change: Change::Reload,
        doc: "Networks that may not connect, though `allow` has them.",
    },
    Directive {
        section: Section::Listen,
        name: "trusted_proxies",
        kind: NETWORKS,
        default: Default::Unset("none"),
        handlers: &[],
        change: Change::Reload,
        doc: "Networks of the proxies and load balancers in front. What they say of the client's address is believed, and limits, `allow`, `deny`, applications and the log then mean the client. What others say is ignored, so anybody may send such headers. Where several proxies stand in a row, list all of them.",
    },
    Directive {
        section: Section::Listen,
        name: "proxy_protocol",
        kind: Kind::Flag { words: &[] },
        default: Default::Toml("false"),
        handlers: &[],
        change: Change::Reload,
        doc: "Every connection begins with a header of the PROXY protocol, version 1 or 2, before TLS and all else: what HAProxy calls `send-proxy` and `send-proxy-v2`, nginx `proxy_protocol on`, and the balancers of clouds the PROXY protocol. The client's address in it is then the connection's own. Only `trusted_proxies` may connect; others, and whoever sends no such header within `handshake_timeout`, are closed. `LOCAL` and `UNKNOWN`, as in health checks, leave the proxy's address. A header has at most 4 KiB of addresses and TLVs, and TLVs are not looked at.",
    },
    Directive {
        section: Section::Listen,
        name: "client_address",
        kind: Kind::Text {
            expected: "\"x-forwarded-for\", \"forwarded\" or \"header:NAME\"",
        },
        default: Default::Toml("\"x-forwarded-for\""),
        handlers: &[],
        change: Change::Reload,
        doc: "Where trusted proxies write the client's address: `X-Forwarded-For`, `Forwarded` (RFC 7239), or a header of their own that has it alone, such as `\"header:CF-Connecting-IP\"`. Only this one is read: proxies pass on what they don't write themselves, as the client sent it. Of a list the last address counts that is no trusted proxy's.",
    },
    Directive {
        section: Section::Listen,
        name: "hosts",
        kind: Kind::List {
            expected: "names such as [\"example.com\", \"*.example.com\"]",
        },
        default: Default::Unset(
            "on loopback addresses the names of this machine, elsewhere every name",
        ),
        handlers: &[],
        change: Change::Reload,
        doc: "The names that clients may have asked for in `Host`; others get 421. `\"*\"` is every name. A listener on a loopback address answers to `localhost`, to what is below it and to loopback addresses only, unless told otherwise here: a page of a foreign site whose name leads to 127.0.0.1 (DNS rebinding) must not reach it. Where a trusted proxy has nothing listed here, it may ask for any name.",
    },
];

const NETWORKS: Kind = Kind::List {
    expected: "networks such as [\"10.0.0.0/8\", \"2001:db8::/32\", \"192.0.2.7\"]",
};

static API: &[Directive] = &[
    Directive {
        section: Section::Api,
        name: "keys",
        kind: Kind::Secrets,
        default: Default::Toml("[]"),
        handlers: &[],
        change: Change::Reload,
        doc: "A request to the API carries one of these in `X-API-Key`, each written here, or as `{ file = \"FILE\" }`, which holds nothing else, or as `{ env = \"NAME\" }`, a variable of the environment that the server was started with; without it the answer is 401. Several, so that a key can be changed without a gap. With none, none is asked for, which only internal listeners on loopback may do. Never shown. Make one with `openssl rand -hex 32`.",
    },
    Directive {
        section: Section::Api,
        name: "blocks",
        kind: Kind::Text {
            expected: "the path of a file",
        },
        default: Default::Unset(
            "what the API has blocked and revoked ends with the server process",
        ),
        handlers: &[],
        change: Change::Restart,
        doc: "The file in which it is written down which users and tokens `block_user`, `revoke_token` and `invalidate_user_tokens` keep out, so that a restart lets nobody in again. A line of JSON for each word, written before the call is answered. The server's user has to be allowed to make files in its folder: at a start it is read and made if there is none; what is over is taken out of it when the server has run for an hour and most of it is over, for a clock may be ahead until it has been set.",
    },
    Directive {
        section: Section::Api,
        name: "unknown_fields",
        kind: Kind::Word {
            words: &["refuse", "accept"],
            hidden: &[],
        },
        default: Default::Toml("\"refuse\""),
        handlers: &[],
        change: Change::Reload,
        doc: "What becomes of a call by HTTP with a field that it does not have. `\"refuse\"`: error 107, which names the nearest field. `\"accept\"`: the field means nothing, as to Centrifugo; for its older clients, and for those of its commercial edition.",
    },
    Directive {
        section: Section::Api,
        name: "publish_rate",
        kind: Kind::Rate { bytes: false },
        default: Default::Toml("\"off\""),
        handlers: &[],
        change: Change::Reload,
        doc: "How much may be published with each key: `\"1000/s\"`, or `\"60000/m\"`, which lets more come at once. Every user and every channel that a command names counts as one. What is faster is refused: by HTTP with 429 and `Retry-After`, on `/api/socket` and on push lines with error 111, and nothing of it is done. All who show no key, as on push listeners, share one rate. A reload begins with full shares.",
    },
];

static ADMIN: &[Directive] = &[Directive {
    section: Section::Admin,
    name: "keys",
    kind: Kind::Secrets,
    default: Default::Toml("[]"),
    handlers: &[],
    change: Change::Reload,
    doc: "Who opens the page has to know one of these, each written as those of `[api]` are. They open nothing else, and the keys of `[api]` do not open the page. With none there is no page. Never shown. Make one with `openssl rand -hex 32`.",
}];

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The methods, where a doc or an error lists them.
pub(crate) fn methods_listed() -> String {
    METHODS.map(|method| format!("{method:?}")).join(", ")
}
