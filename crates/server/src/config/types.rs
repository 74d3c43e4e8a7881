//! What a configuration is once it has been checked: plain types that cannot hold an invalid value.
//!
//! Nothing here knows TOML, files or defaults; `checked` builds these from what `raw` has read, and the
//! rest of the server takes them as its options.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::access::{Access, Networks};
use veche_frontends::outbox::Keeping;
use veche_frontends::pace::Pacing;
use veche_frontends::rate::Rate;
use veche_frontends::route::Headers;
use veche_frontends::static_files::Encoding;
use veche_hub::{Recovery, Told};
use veche_logging::{Log, Rotation};
use veche_terminal::Problem;

use crate::access_log::Template;

use super::acme::{Acme, Ordered};
use super::checked::listeners_called;
use super::effective::Effective;
use super::hooks::{Hooks, RouteHooks};
use super::identity::{IdentityHook, Jwt, Pam};
use super::names::{ChannelPattern, Identity, MethodSet, OriginRule, RoutePath};

/// A whole checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The file it came from, as the user named it.
    pub(crate) file: PathBuf,
    /// `[server]`
    pub(crate) server: Server,
    /// `[[listen]]`, in the file's order; at least one.
    pub(crate) listeners: Vec<Listener>,
    /// What routes with handler lua lead to: `[[app]]` in the file's order, then the scripts that routes name.
    pub(crate) apps: Vec<App>,
    /// `[[service]]`, in the file's order.
    pub(crate) services: Vec<Service>,
    /// `[[route]]`, in the file's order; `routes[i].index == i`.
    pub(crate) routes: Vec<Route>,
    /// `[[namespace]]`, in the file's order.
    pub(crate) namespaces: Vec<Namespace>,
    /// `[history]`, if what channels remember is to be kept on disk.
    pub(crate) history: Option<HistoryStore>,
    /// `[access_log]`, if there is to be one.
    pub(crate) access_log: Option<AccessLog>,
    /// `[limits]`
    pub(crate) limits: Limits,
    /// `[acme]`
    pub(crate) acme: Acme,
    /// `[jwt]`; `None` where it says nothing of keys, and then no route needs any.
    pub(crate) jwt: Option<Jwt>,
    /// `None`: that of connections counts for subscriptions.
    pub(crate) subscription_jwt: Option<Jwt>,
    /// `[identity_hook]`
    pub(crate) identity_hook: IdentityHook,
    /// Of `[events]`: the place in `apps` of the one that is told.
    pub(crate) listener: Option<usize>,
    /// `[hooks]`; `None`: nobody is asked.
    pub(crate) hooks: Option<Hooks>,
    /// `[pam]`
    pub(crate) pam: Pam,
    /// `[events]`; `None`: nobody is told what happens.
    pub(crate) events: Option<Events>,
    /// `[api]`
    pub(crate) api: Api,
    /// `[admin]`
    pub(crate) admin: Admin,
    /// The namespaces whose channels can be heard together.
    pub(crate) wildcards: Vec<String>,
    /// What is allowed but should be known: each goes to the log once, at start and at reload.
    pub(crate) warnings: Vec<Problem>,
    /// Every directive's value and where it came from.
    pub(crate) effective: Effective,
}

impl Config {
    /// This configuration as a running server can take it over: what needs a restart (listeners, workers, io,
    /// control, the folder of history, which channels are heard together) stays as it is in `running`, and routes are bound to the listeners that are there.
    pub(crate) fn on_top_of(mut self, running: &Self) -> Self {
        self.server = Server {
            log: self.server.log,
            ..running.server.clone()
        };
        self.history.clone_from(&running.history);
        self.wildcards.clone_from(&running.wildcards);
        let new = std::mem::replace(&mut self.listeners, running.listeners.clone());
        for listener in &mut self.listeners {
            // Port 0 is another port each time, but the same for as long as the process lives.
            let same = new.iter().find(|new| {
                (new.address, new.role) == (listener.address, listener.role)
                    && (listener.address.port() != 0 || new.index == listener.index)
            });
            if let Some(same) = same {
                listener.tls.clone_from(&same.tls);
                listener.access.clone_from(&same.access);
            }
        }
        let there = || {
            self.listeners
                .iter()
                .map(|l| (l.name.as_deref(), Some(l.role)))
        };
        for route in &mut self.routes {
            route.listeners = listeners_called(&route.listen, there());
        }
        self
    }

    /// The sections about tokens.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &Jwt> {
        self.jwt.iter().chain(&self.subscription_jwt)
    }

    /// The first listener with that role.
    pub(crate) fn listener(&self, role: Role) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.role == role)
    }
}

/// `[history]`: where what channels remember is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryStore {
    /// A folder.
    pub(crate) path: PathBuf,
    pub(crate) fsync: Fsync,
}

/// When the disk has to have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// Before anybody hears of it.
    Commit,
    /// So often.
    Interval(Duration),
    /// When the system likes.
    Never,
}

/// `[server]`: the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) workers: Workers,
    pub(crate) io: Io,
    pub(crate) log: Log,
    /// Where the control socket is; `status`, `reload` and `stop` find the server by it.
    /// At most [`CONTROL_PATH_BYTES_MAX`] bytes long.
    pub(crate) control: PathBuf,
    /// Whom the server process belongs to; `None`: whoever started the supervisor.
    pub(crate) run_as: Option<RunAs>,
    /// The server process sees only the files that are named here.
    pub(crate) sandbox: bool,
    /// The folder in which scripts save tables.
    pub(crate) snapshots: Option<PathBuf>,
}

/// A user, and its group where that is not its own; names or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAs {
    pub(crate) user: String,
    pub(crate) group: Option<String>,
}

/// The longest path that fits `sockaddr_un` with its closing NUL.
pub(crate) const CONTROL_PATH_BYTES_MAX: usize = 107;

/// How many worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// One per core that this process may use.
    Auto,
    /// So many; at most [`WORKERS_MAX`].
    Count(NonZeroU16),
}

/// The most workers: mailboxes grow with its square.
pub(crate) const WORKERS_MAX: u16 = 256;

impl Workers {
    /// The number to start when the process may use `cores` cores.
    pub(crate) fn resolve(self, cores: usize) -> u16 {
        match self {
            Self::Auto => u16::try_from(cores)
                .unwrap_or(WORKERS_MAX)
                .clamp(1, WORKERS_MAX),
            Self::Count(count) => count.get(),
        }
    }
}

/// The back end of the worker loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// The best that works on this machine.
    Auto,
    /// Readiness: works everywhere.
    Epoll,
    /// Completion: makes messages cheaper, where the kernel and the container allow it.
    Uring,
    /// For tests: epoll that completes late and in parts.
    Delayed,
}

/// `[access_log]`: what is written of requests and sessions, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccessLog {
    pub(crate) file: PathBuf,
    pub(crate) template: Template,
    /// The part of all that is written: above 0, at most 1.
    pub(crate) share: f64,
    /// Of internal listeners too.
    pub(crate) internal: bool,
    pub(crate) rotation: Option<Rotation>,
}

/// `[[listen]]`: an address and who is expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its place in [`Config::listeners`].
    pub(crate) index: usize,
    pub(crate) name: Option<String>,
    /// Port 0: the system picks a free one at start.
    pub(crate) address: SocketAddr,
    pub(crate) role: Role,
    /// `None`: what is spoken there is not sealed.
    pub(crate) tls: Option<Tls>,
    /// Who may come.
    pub(crate) access: Access,
}

impl Listener {
    /// What routes, metrics and people call it.
    pub(crate) fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.address.to_string())
    }
}

/// TLS on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// At least one.
    pub(crate) certificates: Vec<CertificateFrom>,
    /// `None`: clients are not asked for certificates.
    pub(crate) clients: Option<ClientCertificates>,
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateFrom {
    /// It is there.
    Files(PairFiles),
    /// It is ordered.
    Acme(Ordered),
}

/// The files of a certificate and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What clients have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificates {
    /// The file of those who vouch for them.
    pub(crate) ca: PathBuf,
    pub(crate) is_required: bool,
}

/// Who is expected on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Browsers and other clients: HTTP and WebSocket by the routes.
    Public,
    /// The back end and the operator: `/api/*`, `/health`, `/metrics`, and routes that name it.
    Internal,
    /// The back end: one JSON object a line over plain TCP.
    Push,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Push => "push",
        })
    }
}

/// `[[app]]`, or the script of one or several routes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct App {
    /// Of an `[[app]]` its name; else the script as the route has it.
    pub(crate) name: String,
    /// A file that was there when the configuration was checked.
    pub(crate) script: PathBuf,
    /// In one worker.
    pub(crate) memory_bytes_max: u64,
    /// Time on the processor of one handler between two waits.
    pub(crate) cpu_budget: Duration,
    /// Of one HTTP request, and from write to write; `None`: as long as it likes.
    pub(crate) request_timeout: Option<Duration>,
    /// The folder that it answers with files of; `None`: with none.
    pub(crate) files: Option<PathBuf>,
    /// Handed to the script as it is.
    pub(crate) options: toml::Table,
}

/// `[[service]]`: work without clients.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    /// What is run; its name is unlike those of apps.
    pub(crate) app: App,
    /// At least 1.
    pub(crate) instances: u32,
    pub(crate) restart: Restart,
}

/// When a service whose `run` is over begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    OnFailure,
    Always,
    Never,
}

/// `[[route]]`: which requests a handler gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Its place in [`Config::routes`].
    pub(crate) index: usize,
    pub(crate) path: RoutePath,
    /// Never empty.
    pub(crate) methods: MethodSet,
    /// The name or role of the listeners that have this route, as the file says it.
    pub(crate) listen: String,
    /// Their places in [`Config::listeners`]; none has role push. Empty only after [`Config::on_top_of`]
    /// when they wait for a restart.
    pub(crate) listeners: Vec<usize>,
    /// Whose requests are answered, by the client's address.
    pub(crate) networks: Networks,
    /// Headers that its answers have in addition.
    pub(crate) headers: Option<Headers>,
    pub(crate) handler: Handler,
}

/// Who answers on a route, with what only that handler knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// The push gateway: clients listen, the back end speaks.
    Push {
        identity: Identity,
        channels: Vec<ChannelPattern>,
        websocket: WebSocket,
    },
    /// Sends every message back.
    Echo { websocket: WebSocket },
    /// Files.
    Static {
        root: StaticRoot,
        /// The codings in which files may lie prepared, the preferred one first; each at most once.
        precompressed: Vec<Encoding>,
    },
    /// The server API, beside the one that internal listeners have anyway.
    Api { websocket: WebSocket },
    /// An application.
    Lua {
        /// Its place in [`Config::apps`].
        app: usize,
        identity: Identity,
        websocket: WebSocket,
    },
    /// Clients of Centrifugo's protocol.
    Centrifuge {
        /// Its place in [`Config::apps`], if one decides on clients' commands.
        app: Option<usize>,
        identity: Identity,
        hooks: RouteHooks,
        websocket: WebSocket,
    },
}

impl Handler {
    /// Who clients are, where that is asked.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Push { identity, .. }
            | Self::Lua { identity, .. }
            | Self::Centrifuge { identity, .. } => Some(identity),
            Self::Echo { .. } | Self::Static { .. } | Self::Api { .. } => None,
        }
    }

    /// The options of the WebSockets that this handler opens, if it opens any.
    pub(crate) fn websocket(&self) -> Option<&WebSocket> {
        match self {
            Self::Push { websocket, .. }
            | Self::Echo { websocket }
            | Self::Api { websocket }
            | Self::Lua { websocket, .. }
            | Self::Centrifuge { websocket, .. } => Some(websocket),
            Self::Static { .. } => None,
        }
    }
}

/// What a route allows on its WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebSocket {
    /// A browser's `Origin` has to match one of these; never empty.
    pub(crate) origins: Vec<OriginRule>,
    pub(crate) compression: Compression,
    /// The longest message, inflated.
    pub(crate) message_bytes_max: u64,
    /// The most frames a message may come in.
    pub(crate) fragments_max: u32,
    /// How far a compressed message may be inflated; `None`: as far as it may be long.
    pub(crate) inflate_ratio_max: Option<u32>,
    /// How fast one client may speak; `None`: as fast as it is worked on.
    pub(crate) pacing: Option<Pacing>,
    /// What a client gets that reads too slowly for all; `None`: it is closed.
    pub(crate) keeping: Option<Keeping>,
    /// Whether a client is told the place of each publication.
    pub(crate) has_positions: bool,
}

/// `[[namespace]]`: the options of channels of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// What stands before the `:`; `""` for channels without one, `"#"` for those of users; or a pattern.
    pub(crate) name: String,
    pub(crate) history: Option<History>,
    /// What its channels may remember together; `None`: they share what is left.
    pub(crate) history_bytes: Option<u64>,
    /// Whether channels know who is there.
    pub(crate) presence: bool,
    /// Whether they tell who joins and leaves.
    pub(crate) join_leave: bool,
    /// Whether also clients are told that did not ask for it.
    pub(crate) force_push_join_leave: bool,
    /// What the back end is told of them.
    pub(crate) told: Told,
    /// How long a user who has gone may come back; 0: not at all.
    pub(crate) leave_delay: Duration,
    /// Whether clients may be told differences alone.
    pub(crate) differences: veche_hub::Differences,
    /// Whether clients may say which tags a publication has to have for them.
    pub(crate) tags_filter: bool,
    /// What clients may do there by themselves.
    pub(crate) access: veche_hub::Access,
    /// Whether who reads too slowly misses what is published, rather than being disconnected.
    pub(crate) slow_miss: bool,
}

/// What channels of a namespace remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct History {
    /// Publications of one channel; at least 1.
    pub(crate) size: u32,
    pub(crate) ttl: Duration,
    /// Not less than `ttl`.
    pub(crate) position_ttl: Duration,
    pub(crate) recovery: Recovery,
}

/// permessage-deflate (RFC 7692) on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    /// Agreed to without context takeover.
    On,
    /// Agreed to with context takeover: smaller on the wire, a window of memory per connection.
    Takeover,
}

/// Where static files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StaticRoot {
    Folder(PathBuf),
    /// The demo page, built into the binary.
    BuiltinDemo,
}

/// `[limits]`: what one client, and all of them, may take. In each `Option`, `None` is "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Channels of namespaces that the file does not name are errors.
    pub(crate) refuses_unknown_namespaces: bool,
    pub(crate) connections: ConnectionCap,
    pub(crate) connections_per_address: Option<u32>,
    pub(crate) connections_per_user: Option<u32>,
    /// Of Centrifugo's protocol.
    pub(crate) channels_per_client: u32,
    pub(crate) channel_name_bytes_max: u32,
    pub(crate) memory: MemoryLimit,
    pub(crate) handshakes_per_address: Option<Rate>,
    pub(crate) header_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) write_timeout: Duration,
    pub(crate) ping_interval: Option<Duration>,
    /// Counts from a ping, so it may be longer than `ping_interval`.
    pub(crate) pong_timeout: Duration,
    /// Zero: close at once.
    pub(crate) drain_time: Duration,
    /// How long `/health` says 503 before that.
    pub(crate) lame_duck_time: Duration,
    /// The drain of a process that an upgrade replaces.
    pub(crate) upgrade_drain_time: Duration,
    /// Within it each worker has to finish its turn.
    pub(crate) watchdog_timeout: Option<Duration>,
    pub(crate) outbox_bytes: u64,
    /// Of all channels together.
    pub(crate) history_bytes: u64,
    /// Publications of one answer.
    pub(crate) history_answer_max: u32,
    pub(crate) body_bytes_max: u64,
    pub(crate) header_bytes_max: u64,
    pub(crate) headers_max: u32,
}

/// The cap on connections of all listeners together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionCap {
    /// What the descriptor limit leaves.
    Auto,
    Count(u32),
}

/// How much memory may be in use before nothing new is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// Most of what there is.
    Auto,
    Off,
    Bytes(u64),
}

/// `[api]`: the server API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Api {
    /// Where it is written down who is not let in.
    pub(crate) blocks: Option<PathBuf>,
    /// Fields of calls that are not known mean nothing; otherwise they are errors.
    pub(crate) accepts_unknown_fields: bool,
    /// Of publications, for each key; `None`: as fast as they are worked on.
    pub(crate) publish_rate: Option<Rate>,
    /// Any one of them opens the API; with none, none is asked for, which only listeners on loopback may do.
    pub(crate) keys: Vec<Secret>,
    /// The files that some of them were read from.
    pub(crate) files: Vec<PathBuf>,
}

/// `[events]`: who is told what happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Events {
    pub(crate) url: SecretUrl,
    /// What requests are signed with; with none they are not.
    pub(crate) secrets: Vec<Secret>,
    /// The files that some of them were read from.
    pub(crate) files: Vec<PathBuf>,
    /// From the request to the whole answer.
    pub(crate) timeout: Duration,
    /// Events that may wait.
    pub(crate) queue: u32,
    /// As of [`Published::ca`](super::Published::ca).
    pub(crate) ca: Option<PathBuf>,
}

/// `[admin]`: the operator's page on internal listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admin {
    /// Any one of them opens it; with none there is no page.
    pub(crate) keys: Vec<Secret>,
    /// The files that some of them were read from.
    pub(crate) files: Vec<PathBuf>,
}

/// Where a secret is, as the file says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// In the configuration itself.
    Here(Secret),
    /// In a file of its own: all of its text but a newline at the end.
    File(PathBuf),
    /// In a variable of the supervisor's environment.
    Variable(String),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(secret) => secret.fmt(f),
            Self::File(path) => write!(f, "{{ file = {path:?} }}"),
            Self::Variable(name) => write!(f, "{{ env = {name:?} }}"),
        }
    }
}

/// A value that must not be seen in logs or output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Keeps `text` out of sight.
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for comparing only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"****\"")
    }
}
