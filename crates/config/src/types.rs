//! What a configuration is once it has been checked: plain types that cannot hold an invalid value.
//!
//! Nothing here knows TOML, files or defaults; `checked` builds these from what `raw` has read, and the
//! rest of the server takes them as its options.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use veche_calls::{FastcgiPool, SecretUrl};
use veche_frontends::access::{Access, Networks};
use veche_frontends::outbox::Keeping;
use veche_frontends::pace::Pacing;
use veche_frontends::rate::Rate;
use veche_frontends::registry::Protocol;
use veche_frontends::route::Headers;
use veche_frontends::static_files::Encoding;
use veche_hub::{Recovery, Told};
use veche_logging::{Log, Rotation};
use veche_terminal::Problem;

use crate::template::Template;

use super::acme::{Acme, Ordered};
use super::effective::Effective;
use super::hooks::{Hooks, RouteHooks};
use super::identity::{IdentityHook, Jwt, Pam};
use super::names::{ChannelPattern, Identity, MethodSet, OriginRule, RoutePath};
use super::secret::Secret;
use super::value::WORKERS_MAX;

/// A whole checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it came from, as the user named it.
    pub file: PathBuf,
    /// `[server]`
    pub server: Server,
    /// `[[listen]]`, in the file's order; at least one.
    pub listeners: Vec<Listener>,
    /// What routes with handler lua lead to: `[[app]]` in the file's order, then the scripts that routes name.
    pub apps: Vec<App>,
    /// `[[service]]`, in the file's order.
    pub services: Vec<Service>,
    /// `[[route]]`, in the file's order; `routes[i].index == i`.
    pub routes: Vec<Route>,
    /// `[[namespace]]`, in the file's order.
    pub namespaces: Vec<Namespace>,
    /// `[history]`, if what channels remember is to be kept on disk.
    pub history: Option<HistoryStore>,
    /// `[access_log]`, if there is to be one.
    pub access_log: Option<AccessLog>,
    /// `[limits]`
    pub limits: Limits,
    /// `[acme]`
    pub acme: Acme,
    /// `[jwt]`; `None` where it says nothing of keys, and then no route needs any.
    pub jwt: Option<Jwt>,
    /// `None`: that of connections counts for subscriptions.
    pub subscription_jwt: Option<Jwt>,
    /// `[identity_hook]`
    pub identity_hook: IdentityHook,
    /// Of `[events]`: the place in `apps` of the one that is told.
    pub listener: Option<usize>,
    /// `[hooks]`; `None`: nobody is asked.
    pub hooks: Option<Hooks>,
    /// `[pam]`
    pub pam: Pam,
    /// `[events]`; `None`: nobody is told what happens.
    pub events: Option<Events>,
    /// `[api]`
    pub api: Api,
    /// `[admin]`
    pub admin: Admin,
    /// The namespaces whose channels can be heard together.
    pub wildcards: Vec<String>,
    /// What is allowed but should be known: each goes to the log once, at start and at reload.
    pub warnings: Vec<Problem>,
    /// Every directive's value and where it came from.
    pub effective: Effective,
}

impl Config {
    /// This configuration as a running server can take it over: what needs a restart (listeners, workers, io,
    /// control, the folder of history, which channels are heard together) stays as it is in `running`, and routes are bound to the listeners that are there.
    pub fn on_top_of(mut self, running: &Self) -> Self {
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
    pub fn tokens(&self) -> impl Iterator<Item = &Jwt> {
        self.jwt.iter().chain(&self.subscription_jwt)
    }

    /// The first listener with that role.
    pub fn listener(&self, role: Role) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.role == role)
    }
}

/// The places of the listeners with that name, or else with that role.
pub(crate) fn listeners_called<'l>(
    listen: &str,
    listeners: impl Iterator<Item = (Option<&'l str>, Option<Role>)>,
) -> Vec<usize> {
    let role = match listen {
        "public" => Some(Role::Public),
        "internal" => Some(Role::Internal),
        _ => None,
    };
    let wanted = |(name, its_role): (Option<&str>, Option<Role>)| match role {
        Some(_) => its_role == role,
        None => name == Some(listen),
    };
    listeners
        .enumerate()
        .filter(|(_, listener)| wanted(*listener))
        .map(|(index, _)| index)
        .collect()
}

/// `[history]`: where what channels remember is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryStore {
    /// A folder.
    pub path: PathBuf,
    /// When what was written is made durable.
    pub fsync: Fsync,
}

/// When the disk has to have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before anybody hears of it.
    Commit,
    /// So often.
    Interval(Duration),
    /// When the system likes.
    Never,
}

/// `[server]`: the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// How many workers there are.
    pub workers: Workers,
    /// The system's interface for input and output.
    pub io: Io,
    /// The server's own log.
    pub log: Log,
    /// Where the control socket is; `status`, `reload` and `stop` find the server by it.
    /// At most [`CONTROL_PATH_BYTES_MAX`] bytes long.
    pub control: PathBuf,
    /// Whom the server process belongs to; `None`: whoever started the supervisor.
    pub run_as: Option<RunAs>,
    /// The server process sees only the files that are named here.
    pub sandbox: bool,
    /// The folder in which scripts save tables.
    pub snapshots: Option<PathBuf>,
}

/// A user, and its group where that is not its own; names or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The user, who owns what the server process makes.
    pub user: String,
    /// `None`: the group of the user.
    pub group: Option<String>,
}

/// The longest path that fits `sockaddr_un` with its closing NUL.
pub const CONTROL_PATH_BYTES_MAX: usize = 107;

/// How many worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One per core that this process may use.
    Auto,
    /// So many; at most [`WORKERS_MAX`].
    Count(NonZeroU16),
}

impl Workers {
    /// The number to start when the process may use `cores` cores.
    pub fn resolve(self, cores: usize) -> u16 {
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
pub enum Io {
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
pub struct AccessLog {
    /// Where its lines are written.
    pub file: PathBuf,
    /// What its lines look like.
    pub template: Template,
    /// The part of all that is written: above 0, at most 1.
    pub share: f64,
    /// Of internal listeners too.
    pub internal: bool,
    /// `None`: the file grows until it is moved away from outside.
    pub rotation: Option<Rotation>,
}

/// `[[listen]]`: an address and who is expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its place in [`Config::listeners`].
    pub index: usize,
    /// For routes that name the listeners they belong to.
    pub name: Option<String>,
    /// Port 0: the system picks a free one at start.
    pub address: SocketAddr,
    /// Which requests it answers.
    pub role: Role,
    /// `None`: what is spoken there is not sealed.
    pub tls: Option<Tls>,
    /// Who may come.
    pub access: Access,
}

impl Listener {
    /// What routes, metrics and people call it.
    pub fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.address.to_string())
    }
}

/// TLS on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// At least one.
    pub certificates: Vec<CertificateFrom>,
    /// `None`: clients are not asked for certificates.
    pub clients: Option<ClientCertificates>,
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateFrom {
    /// It is there.
    Files(PairFiles),
    /// It is ordered.
    Acme(Ordered),
}

/// The files of a certificate and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The chain of certificates, as PEM.
    pub certificate: PathBuf,
    /// The private key of the first, as PEM.
    pub key: PathBuf,
}

/// What clients have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The file of those who vouch for them.
    pub ca: PathBuf,
    /// Whether a client without one is turned away.
    pub is_required: bool,
}

/// Who is expected on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
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
pub struct App {
    /// Of an `[[app]]` its name; else the script as the route has it.
    pub name: String,
    /// A file that was there when the configuration was checked.
    pub script: PathBuf,
    /// In one worker.
    pub memory_bytes_max: u64,
    /// Time on the processor of one handler between two waits.
    pub cpu_budget: Duration,
    /// Of one HTTP request, and from write to write; `None`: as long as it likes.
    pub request_timeout: Option<Duration>,
    /// The folder that it answers with files of; `None`: with none.
    pub files: Option<PathBuf>,
    /// Handed to the script as it is.
    pub options: toml::Table,
    /// Whom to ask where the script is not run here.
    pub fastcgi: Option<Fastcgi>,
    /// The processes that run it, where the server itself does not.
    pub processes: Option<Processes>,
}

impl App {
    /// Returns the file of the script where it is run here.
    pub fn own_script(&self) -> Option<&Path> {
        let is_own = self.fastcgi.is_none() && self.processes.is_none();
        is_own.then_some(self.script.as_path())
    }
}

/// An application behind FastCGI.
#[derive(Clone, Debug, PartialEq)]
pub struct Fastcgi {
    /// Whom to ask, and the limits.
    pub pool: Arc<FastcgiPool>,
    /// Names of the events that the script handles.
    pub events: Vec<String>,
    /// Address of the API for the script, and its key.
    pub api: Option<(String, Option<Secret>)>,
}

/// An application that runs in processes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder in which they begin: that of the configuration.
    pub folder: PathBuf,
    /// The number of processes, at least 1.
    pub workers: u32,
    /// Events after which a process is replaced; 0 for any number.
    pub jobs_max: u64,
    /// The age at which a process is replaced.
    pub ttl: Option<Duration>,
    /// Handshakes and requests that wait for a process at most.
    pub queue: usize,
    /// The longest wait of an event for a process.
    pub queue_timeout: Duration,
    /// The time from the start of a process until it takes events.
    pub start_timeout: Duration,
    /// The time of a process to end after it is asked to.
    pub stop_timeout: Duration,
    /// The time of one event.
    pub event_timeout: Duration,
    /// Resident memory in bytes at which a process is replaced.
    pub rss_bytes_max: Option<u64>,
}

/// `[[service]]`: work without clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// What is run; its name is unlike those of apps.
    pub app: App,
    /// At least 1.
    pub instances: u32,
    /// What happens when an instance ends.
    pub restart: Restart,
}

/// When a service whose `run` is over begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// An instance that failed is started again.
    OnFailure,
    /// An instance that ended is started again, whether it failed or not.
    Always,
    /// An instance that ended stays so.
    Never,
}

/// `[[route]]`: which requests a handler gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its place in [`Config::routes`].
    pub index: usize,
    /// The requests that it is for.
    pub path: RoutePath,
    /// Never empty.
    pub methods: MethodSet,
    /// The name or role of the listeners that have this route, as the file says it.
    pub listen: String,
    /// Their places in [`Config::listeners`]; none has role push. Empty only after [`Config::on_top_of`]
    /// when they wait for a restart.
    pub listeners: Vec<usize>,
    /// Whose requests are answered, by the client's address.
    pub networks: Networks,
    /// Headers that its answers have in addition.
    pub headers: Option<Headers>,
    /// What answers these requests.
    pub handler: Handler,
}

/// Who answers on a route, with what only that handler knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are as many as routes, and most are sessions"
)]
pub enum Handler {
    /// Sessions of a client protocol.
    Session {
        /// Which.
        protocol: &'static Protocol,
        /// Its place in [`Config::apps`], if one decides on clients' commands.
        app: Option<usize>,
        /// Where the user's name comes from, if the protocol has users.
        identity: Option<Identity>,
        /// Channels that clients may subscribe to in their handshake.
        channels: Vec<ChannelPattern>,
        /// The hooks that it has of its own.
        hooks: RouteHooks,
        /// The options of its connections.
        websocket: WebSocket,
    },
    /// Files.
    Static {
        /// Where the files come from.
        root: StaticRoot,
        /// The codings in which files may lie prepared, the preferred one first; each at most once.
        precompressed: Vec<Encoding>,
    },
    /// The server API, beside the one that internal listeners have anyway.
    Api {
        /// The options of its connections.
        websocket: WebSocket,
    },
    /// An application.
    Lua {
        /// Its place in [`Config::apps`].
        app: usize,
        /// Where the user's name comes from.
        identity: Identity,
        /// The options of its connections.
        websocket: WebSocket,
    },
}

impl Handler {
    /// Who clients are, where that is asked.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Session { identity, .. } => identity.as_ref(),
            Self::Lua { identity, .. } => Some(identity),
            Self::Static { .. } | Self::Api { .. } => None,
        }
    }

    /// The options of the WebSockets that this handler opens, if it opens any.
    pub fn websocket(&self) -> Option<&WebSocket> {
        match self {
            Self::Session { websocket, .. }
            | Self::Api { websocket }
            | Self::Lua { websocket, .. } => Some(websocket),
            Self::Static { .. } => None,
        }
    }
}

/// What a route allows on its WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocket {
    /// A browser's `Origin` has to match one of these; never empty.
    pub origins: Vec<OriginRule>,
    /// Whether messages are compressed.
    pub compression: Compression,
    /// The longest message, inflated.
    pub message_bytes_max: u64,
    /// The most frames a message may come in.
    pub fragments_max: u32,
    /// How far a compressed message may be inflated; `None`: as far as it may be long.
    pub inflate_ratio_max: Option<u32>,
    /// How fast one client may speak; `None`: as fast as it is worked on.
    pub pacing: Option<Pacing>,
    /// What a client gets that reads too slowly for all; `None`: it is closed.
    pub keeping: Option<Keeping>,
    /// Whether a client is told the place of each publication.
    pub has_positions: bool,
}

/// `[[namespace]]`: the options of channels of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// What stands before the `:`; `""` for channels without one, `"#"` for those of users; or a pattern.
    pub name: String,
    /// `None`: channels of it remember nothing.
    pub history: Option<History>,
    /// What its channels may remember together; `None`: they share what is left.
    pub history_bytes: Option<u64>,
    /// Whether channels know who is there.
    pub presence: bool,
    /// Whether they tell who joins and leaves.
    pub join_leave: bool,
    /// Whether clients get joins and leaves without asking.
    pub force_push_join_leave: bool,
    /// What the back end is told of them.
    pub told: Told,
    /// How long a user who has gone may come back; 0: not at all.
    pub leave_delay: Duration,
    /// Whether clients may be told differences alone.
    pub differences: veche_hub::Differences,
    /// Whether clients may say which tags a publication has to have for them.
    pub tags_filter: bool,
    /// What clients may do there by themselves.
    pub access: veche_hub::Access,
    /// Whether who reads too slowly misses what is published, rather than being disconnected.
    pub slow_miss: bool,
}

/// What channels of a namespace remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Publications of one channel; at least 1.
    pub size: u32,
    /// How long a publication is kept.
    pub ttl: Duration,
    /// Not less than `ttl`.
    pub position_ttl: Duration,
    /// What a subscriber that comes back receives.
    pub recovery: Recovery,
}

/// permessage-deflate (RFC 7692) on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Messages are not compressed.
    Off,
    /// Agreed to without context takeover.
    On,
    /// Agreed to with context takeover: smaller on the wire, a window of memory per connection.
    Takeover,
}

/// Where static files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaticRoot {
    /// A folder of the file system.
    Folder(PathBuf),
    /// The demo page, built into the binary.
    BuiltinDemo,
}

/// `[limits]`: what one client, and all of them, may take. In each `Option`, `None` is "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Channels of namespaces that the file does not name are errors.
    pub refuses_unknown_namespaces: bool,
    /// How many connections there may be at a time.
    pub connections: ConnectionCap,
    /// Connections at a time from one address.
    pub connections_per_address: Option<u32>,
    /// Connections at a time of one user.
    pub connections_per_user: Option<u32>,
    /// Subscriptions of a client of Centrifugo's protocol.
    pub channels_per_client: u32,
    /// The longest name of a channel in bytes.
    pub channel_name_bytes_max: u32,
    /// Resident memory above which nothing new is taken.
    pub memory: MemoryLimit,
    /// Handshakes from one address, in a time.
    pub handshakes_per_address: Option<Rate>,
    /// Time for the head of a request.
    pub header_timeout: Duration,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time that a connection may wait between two requests.
    pub keep_alive_timeout: Duration,
    /// Time after which a client that sends nothing is closed.
    pub idle_timeout: Option<Duration>,
    /// Time in which a client has to take some of what waits for it.
    pub write_timeout: Duration,
    /// Time between two pings; `None`: there are none.
    pub ping_interval: Option<Duration>,
    /// Counts from a ping, so it may be longer than `ping_interval`.
    pub pong_timeout: Duration,
    /// Zero: close at once.
    pub drain_time: Duration,
    /// How long `/health` says 503 before that.
    pub lame_duck_time: Duration,
    /// The drain of a process that an upgrade replaces.
    pub upgrade_drain_time: Duration,
    /// Within it each worker has to finish its turn.
    pub watchdog_timeout: Option<Duration>,
    /// How much may wait for one client.
    pub outbox_bytes: u64,
    /// Of all channels together.
    pub history_bytes: u64,
    /// Publications of one answer.
    pub history_answer_max: u32,
    /// The longest body of a request in bytes.
    pub body_bytes_max: u64,
    /// The longest head of a request in bytes.
    pub header_bytes_max: u64,
    /// The most header lines of a request.
    pub headers_max: u32,
}

/// The cap on connections of all listeners together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCap {
    /// What the descriptor limit leaves.
    Auto,
    /// As many as the file says.
    Count(u32),
}

/// How much memory may be in use before nothing new is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Most of what there is.
    Auto,
    /// There is no limit.
    Off,
    /// As many bytes as the file says.
    Bytes(u64),
}

/// `[api]`: the server API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Where it is written down who is not let in.
    pub blocks: Option<PathBuf>,
    /// Fields of calls that are not known mean nothing; otherwise they are errors.
    pub accepts_unknown_fields: bool,
    /// Of publications, for each key; `None`: as fast as they are worked on.
    pub publish_rate: Option<Rate>,
    /// Any one of them opens the API; with none, none is asked for, which only listeners on loopback may do.
    pub keys: Vec<Secret>,
    /// The files that some of them were read from.
    pub files: Vec<PathBuf>,
}

/// `[events]`: who is told what happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Where the events are sent.
    pub url: SecretUrl,
    /// What requests are signed with; with none they are not.
    pub secrets: Vec<Secret>,
    /// The files that some of them were read from.
    pub files: Vec<PathBuf>,
    /// From the request to the whole answer.
    pub timeout: Duration,
    /// Events that may wait.
    pub queue: u32,
    /// As of [`Published::ca`](super::Published::ca).
    pub ca: Option<PathBuf>,
}

/// `[admin]`: the operator's page on internal listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Any one of them opens it; with none there is no page.
    pub keys: Vec<Secret>,
    /// The files that some of them were read from.
    pub files: Vec<PathBuf>,
}
