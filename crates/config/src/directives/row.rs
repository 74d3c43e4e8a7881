//! What a row of the table of directives is made of.

use std::time::Duration;

use veche_types::nearest;

use crate::value::Kind;

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
}

/// One row.
#[derive(Debug)]
pub(crate) struct Directive {
    pub section: Section,
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    /// Of `[[route]]`: the handlers it means something to; empty for all.
    pub handlers: &'static [&'static str],
    pub change: Change,
    /// Markdown, one paragraph.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test writes the reference from it")
    )]
    pub doc: &'static str,
}

impl Section {
    /// Makes a row of this section that a reload changes.
    pub(super) const fn row(
        self,
        name: &'static str,
        kind: Kind,
        default: Default,
        doc: &'static str,
    ) -> Directive {
        Directive {
            section: self,
            name,
            kind,
            default,
            handlers: &[],
            change: Change::Reload,
            doc,
        }
    }
}

impl Directive {
    /// Makes it a row that only a restart changes.
    pub(super) const fn at_restart(self) -> Self {
        Self {
            change: Change::Restart,
            ..self
        }
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

/// The names that `handler` takes.
pub(crate) const HANDLERS: &[&str] = &["push", "echo", "static", "api", "lua", "centrifuge"];
/// Those of them that open WebSockets.
pub(crate) const WEBSOCKET_HANDLERS: &[&str] = &["push", "echo", "api", "lua", "centrifuge"];
/// Handlers that may lead to an application.
pub(crate) const APP_HANDLERS: &[&str] = &["lua", "centrifuge"];
/// The names that `role` takes.
pub(crate) const ROLES: &[&str] = &["public", "internal", "push"];

/// What `rotate` is made of.
pub(super) const ROTATE: Kind = Kind::Size {
    min: 4 << 10,
    max: 1 << 40,
    words: &[],
};
/// What `keep` is made of.
pub(super) const KEEP: Kind = Kind::Integer {
    min: 1,
    max: 1_000,
    words: &[],
};

pub(super) const NETWORKS: Kind = Kind::List {
    expected: "networks such as [\"10.0.0.0/8\", \"2001:db8::/32\", \"192.0.2.7\"]",
};

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
