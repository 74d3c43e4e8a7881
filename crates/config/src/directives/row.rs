//! The columns of the table of directives.

use std::time::Duration;

use veche_frontends::registry::{PROTOCOLS, protocol};
use veche_types::nearest;

use crate::value::DirectiveKind;

/// A section of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Server,
    AccessLog,
    Listen,
    Acme,
    App,
    Service,
    Database,
    Route,
    Namespace,
    History,
    Engine,
    Node,
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
    /// All sections in the order of the reference documentation.
    pub(crate) const ALL: [Self; 21] = [
        Self::Server,
        Self::AccessLog,
        Self::Listen,
        Self::Acme,
        Self::App,
        Self::Service,
        Self::Database,
        Self::Route,
        Self::Namespace,
        Self::History,
        Self::Engine,
        Self::Node,
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

    /// Returns the section's name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::AccessLog => "access_log",
            Self::Listen => "listen",
            Self::Acme => "acme",
            Self::App => "app",
            Self::Service => "service",
            Self::Database => "database",
            Self::Route => "route",
            Self::Namespace => "namespace",
            Self::History => "history",
            Self::Engine => "engine",
            Self::Node => "node",
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

    /// Returns the section that was probably meant by a misspelt name.
    pub(crate) fn meant_by(name: &str) -> Option<Self> {
        let near = || nearest(name, Self::ALL.map(Self::name)).and_then(Self::named);
        Self::named(name)
            .or_else(|| Self::formerly(name))
            .or_else(near)
    }

    /// Returns the header as written in the file.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Server => "[server]",
            Self::AccessLog => "[access_log]",
            Self::Listen => "[[listen]]",
            Self::Acme => "[acme]",
            Self::App => "[[app]]",
            Self::Service => "[[service]]",
            Self::Database => "[[database]]",
            Self::Route => "[[route]]",
            Self::Namespace => "[[namespace]]",
            Self::History => "[history]",
            Self::Engine => "[engine]",
            Self::Node => "[node]",
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

    /// Returns whether the section may be repeated.
    pub(crate) fn repeats(self) -> bool {
        matches!(
            self,
            Self::Listen
                | Self::App
                | Self::Service
                | Self::Database
                | Self::Route
                | Self::Namespace
        )
    }

    /// Returns the description of the section.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "only the test that generates the reference uses this"
        )
    )]
    pub(crate) fn doc(self) -> &'static str {
        match self {
            Self::Server => "The server process: its threads, log and control socket.",
            Self::AccessLog => {
                "A log file with a line for each answered request and each finished WebSocket session. Disabled unless `file` is set."
            }
            Self::Listen => {
                "An address to listen on and its role. One section per address, at least one. A peer that is silent for a minute is probed by TCP (keep-alive), then every 15 seconds, and after four probes without an answer its connection ends: a vanished peer is detected within two minutes."
            }
            Self::Acme => {
                "The issuer of certificates for listeners with `tls = { acme = [\"NAME\"] }`, and their storage. Without the section the defaults apply. See [the guide](../guide/tls.md#certificates-by-acme)."
            }
            Self::App => {
                "An application for routes with `handler = \"app\"`. It is one of three kinds: a script in Lua, which runs once in each worker for all its routes together; a command that runs in processes of its own, such as PHP; or a script that php-fpm runs ([the guide](../guide/php.md)). A Lua script without options needs no section: its route can name it with `script`."
            }
            Self::Service => {
                "A script that runs without clients: it returns a table with a function named `run`, which is called once the server is up, in a VM of its own on one of the workers."
            }
            Self::Database => {
                "A MySQL, MariaDB or Redis server that applications call by its name, over connections which all workers and applications share. See [the guide](../guide/php.md#calls-over-veches-pools)."
            }
            Self::Route => {
                "A path and the handler of its requests. If several routes match a request, the one with the most specific path applies, whatever their order in the file: a literal segment takes precedence over a parameter, and a parameter over a prefix."
            }
            Self::Namespace => {
                "Options of channels, by the part of their name before `:`. Channels of a namespace without a section have no history. See [the guide](../guide/history.md)."
            }
            Self::History => {
                "Storage of history on disk, beyond the life of the server process. See [the guide](../guide/history.md#on-disk)."
            }
            Self::Engine => {
                "The engine, which orders publications, stores history and connects several servers into one service."
            }
            Self::Node => "The name of this server among the servers that share an engine.",
            Self::Limits => {
                "Limits per client and in total. The defaults suit a server on the open internet."
            }
            Self::Jwt => {
                "Verification of tokens for routes with `identity = \"jwt\"`: issuers and keys. See [the guide](../guide/identity.md)."
            }
            Self::SubscriptionJwt => {
                "Keys and rules for the subscription tokens of routes with `handler = \"centrifuge\"` and `identity = \"jwt\"`, where they differ from those of connection tokens. Without the section `[jwt]` applies to both; with it nothing of `[jwt]` applies to subscription tokens."
            }
            Self::IdentityHook => {
                "Requests to the back end for the user of a handshake, for routes with `identity = \"http:URL\"`. See [the guide](../guide/identity.md)."
            }
            Self::Hooks => {
                "Requests to the back end that decide on commands of clients on routes with `handler = \"centrifuge\"`, as Centrifugo's proxies do. Each kind of command has a URL of its own, and those without one have no hook; `[[namespace]]` determines the channels. See [the guide](../guide/hooks.md)."
            }
            Self::Pam => {
                "Checks of passwords by the machine's PAM, for routes with `identity = \"pam:SERVICE\"`. See [the guide](../guide/identity.md#passwords-of-the-machine)."
            }
            Self::Events => {
                "Reports of changes of channels and users to the back end. See [the guide](../guide/events.md)."
            }
            Self::Api => {
                "The API for the back end, on every internal listener under `/api/` and on routes with `handler = \"api\"`."
            }
            Self::Admin => {
                "The operator's page, on every internal listener under `/admin/`: live figures, channels and users, the log. Disabled without a key. See [the guide](../guide/admin.md)."
            }
        }
    }
}

/// A directive of the configuration file: its type, its default and its documentation.
#[derive(Debug)]
pub(crate) struct Directive {
    pub section: Section,
    pub name: &'static str,
    pub kind: DirectiveKind,
    pub default: DefaultValue,
    /// For directives of `[[route]]`: the handlers that use the directive, see
    /// [`Directive::handlers`]; empty for all.
    pub handlers: &'static [&'static str],
    pub change: ReloadEffect,
    /// The directive's description: one paragraph of Markdown.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "only the test that generates the reference uses this"
        )
    )]
    pub doc: &'static str,
}

impl Directive {
    /// Returns the handlers to which the directive is restricted; empty if all handlers use it.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &'static str> {
        let is_meant = move |word: &str, name: &str| match word {
            EACH_PROTOCOL => protocol(name).is_some(),
            ITS_PROTOCOLS => {
                protocol(name).is_some_and(|protocol| protocol.accepts_method(self.name))
            }
            word => word == name,
        };
        let all = HANDLERS.iter().copied();
        all.filter(move |name| self.handlers.iter().any(|word| is_meant(word, name)))
    }

    /// Returns whether a handler uses the directive.
    pub(crate) fn concerns(&self, handler: &str) -> bool {
        self.handlers.is_empty() || self.handlers().any(|one| one == handler)
    }
}

impl Section {
    /// Creates a directive of this section; a change of its value takes effect at a reload.
    pub(super) const fn row(
        self,
        name: &'static str,
        kind: DirectiveKind,
        default: DefaultValue,
        doc: &'static str,
    ) -> Directive {
        Directive {
            section: self,
            name,
            kind,
            default,
            handlers: &[],
            change: ReloadEffect::Reload,
            doc,
        }
    }
}

impl Directive {
    /// Makes the directive take effect only at a restart.
    pub(super) const fn at_restart(self) -> Self {
        Self {
            change: ReloadEffect::Restart,
            ..self
        }
    }
}

/// The default of a directive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    /// The directive is required.
    Required,
    /// The directive has no default value; the text describes what happens if it is not set.
    Unset(
        #[cfg_attr(
            not(test),
            expect(
                dead_code,
                reason = "only the test that generates the reference uses this"
            )
        )]
        &'static str,
    ),
    /// The default value, written in TOML.
    Toml(&'static str),
}

/// When a changed value takes effect: at a reload, or only at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadEffect {
    Reload,
    Restart,
}

/// Handlers other than client protocols.
const OTHER_HANDLERS: [&str; 4] = ["static", "api", "lua", "app"];

/// The number of client protocols that the reference documentation lists before [`OTHER_HANDLERS`].
const BEFORE_OTHERS: usize = 2;

/// The valid values of the directive `handler`, in the order of the reference documentation.
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

/// A placeholder for all client protocols in a directive's list of handlers.
const EACH_PROTOCOL: &str = "each protocol";
/// A placeholder for the client protocols that have the directive among their options.
const ITS_PROTOCOLS: &str = "protocols with this option";

/// Handlers that open WebSockets.
pub(crate) const WEBSOCKET_HANDLERS: &[&str] = &[EACH_PROTOCOL, "api", "lua", "app"];
/// The handlers of applications, and the client protocols that have the directive among their options.
pub(crate) const APP_HANDLERS: &[&str] = &[ITS_PROTOCOLS, "lua", "app"];
/// Only client protocols that have the directive among their options.
pub(crate) const PROTOCOL_HANDLERS: &[&str] = &[ITS_PROTOCOLS];
/// The valid values of the directive `role`.
pub(crate) const ROLES: &[&str] = &["public", "internal", "push"];

/// The kind of value that directives such as `rotate` take.
pub(super) const ROTATE: DirectiveKind = DirectiveKind::Size {
    min: 4 << 10,
    max: 1 << 40,
    words: &[],
};
/// The kind of value that directives such as `keep` take.
pub(super) const KEEP: DirectiveKind = DirectiveKind::Integer {
    min: 1,
    max: 1_000,
    words: &[],
};

pub(super) const NETWORKS: DirectiveKind = DirectiveKind::List {
    expected: "networks such as [\"10.0.0.0/8\", \"2001:db8::/32\", \"192.0.2.7\"]",
};

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
