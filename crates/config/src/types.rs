//! The types of a checked configuration, which can't hold invalid values.
//!
//! They do not depend on TOML, files or defaults. `checked` builds them from the output of `raw`, and the server uses
//! them as its options.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use veche_calls::{Databases, FastcgiPool, SecretUrl};
use veche_frontends::access::{ListenerAccess, NetworkRules};
use veche_frontends::outbox::DropPolicy;
use veche_frontends::rate::Rate;
use veche_frontends::rate_limiter::RateLimits;
use veche_frontends::registry::ClientProtocol;
use veche_frontends::route::RouteHeaders;
use veche_frontends::static_files::ContentCoding;
use veche_hub::{EventLevel, RecoveryMode};
use veche_logging::{LogSettings, Rotation};
use veche_terminal::Problem;

use crate::template::Template;

use super::acme::{AcmeCertificate, AcmeConfig};
use super::effective::EffectiveConfig;
pub use super::engine::{EngineConfig, RedisEngine, Sentinels};
use super::hooks::{HooksConfig, RouteHooks};
use super::identity::{IdentityHookConfig, JwtConfig, PamConfig};
pub use super::limits::{ConnectionCap, LimitsConfig, MemoryLimit};
use super::names::{ChannelPattern, IdentitySource, MethodSet, OriginRule, RoutePath};
use super::secret::SecretValue;
use super::value::WORKERS_MAX;

/// A complete checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that the configuration was read from, as named by the user.
    pub file: PathBuf,
    /// `[server]`: workers, account, log and control socket of the process.
    pub server: ServerConfig,
    /// `[[listen]]` in the file's order; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// The applications: those of `[[app]]` in the file's order, then those of routes that name a script.
    pub apps: Vec<AppConfig>,
    /// `[[service]]`, in the file's order.
    pub services: Vec<ServiceConfig>,
    /// `[[database]]`, by name.
    pub databases: Arc<Databases>,
    /// `[[route]]`, in the file's order; `routes[i].index == i`.
    pub routes: Vec<RouteConfig>,
    /// `[[namespace]]` in the file's order.
    pub namespaces: Vec<NamespaceConfig>,
    /// `[history]`, if history is stored on disk.
    pub history: Option<HistoryStore>,
    /// `[engine]`: where channels are ordered and stored.
    pub engine: EngineConfig,
    /// The name in `[node]`, which identifies this server in the cluster; `None`: the machine's
    /// name.
    pub node_name: Option<String>,
    /// `[access_log]`; `None` if requests are not logged.
    pub access_log: Option<AccessLogConfig>,
    /// `[limits]`: bounds of connections, memory, times and rates.
    pub limits: LimitsConfig,
    /// `[acme]`: how certificates of listeners with `acme` are ordered.
    pub acme: AcmeConfig,
    /// `[jwt]`; `None` if no keys are configured. The check ensures that no route then needs keys.
    pub jwt: Option<JwtConfig>,
    /// `[subscription_jwt]`; `None`: `[jwt]` applies to subscriptions too.
    pub subscription_jwt: Option<JwtConfig>,
    /// `[identity_hook]`: timeouts, cache and concurrency of identity requests.
    pub identity_hook: IdentityHookConfig,
    /// The index in `apps` of the app that receives channel and user events; `None` if no app does.
    pub listener: Option<usize>,
    /// `[hooks]`; `None` if no hook has a URL and no route has an app that decides on commands.
    pub hooks: Option<HooksConfig>,
    /// `[pam]`: how names and passwords are checked.
    pub pam: PamConfig,
    /// `[events]`; `None` without event webhooks.
    pub events: Option<EventsConfig>,
    /// `[api]`: the keys and limits of the server API.
    pub api: ApiConfig,
    /// `[admin]`: the admin page and its access.
    pub admin: AdminConfig,
    /// The namespaces with wildcard subscriptions.
    pub wildcards: Vec<String>,
    /// Warnings, each logged once at the start and at a reload.
    pub warnings: Vec<Problem>,
    /// The value and origin of every directive.
    pub effective: EffectiveConfig,
}

impl Config {
    /// Returns this configuration as a running server can adopt it: settings that need a restart (listeners, workers,
    /// io, control, the history folder, wildcard namespaces) keep the values of `running`, and routes are bound to the
    /// existing listeners.
    pub fn on_top_of(mut self, running: &Self) -> Self {
        self.server = ServerConfig {
            log: self.server.log,
            ..running.server.clone()
        };
        self.history.clone_from(&running.history);
        self.engine.clone_from(&running.engine);
        self.node_name.clone_from(&running.node_name);
        self.wildcards.clone_from(&running.wildcards);
        let new = std::mem::replace(&mut self.listeners, running.listeners.clone());
        for listener in &mut self.listeners {
            // Several listeners may be configured with port 0 of the same IP address, so listeners with port 0 are
            // also compared by their index.
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

    /// Returns `[jwt]` and `[subscription_jwt]`, as far as they are configured.
    pub fn tokens(&self) -> impl Iterator<Item = &JwtConfig> {
        self.jwt.iter().chain(&self.subscription_jwt)
    }

    /// Returns the first listener that has this role.
    pub fn listener(&self, role: ListenerRole) -> Option<&ListenerConfig> {
        self.listeners.iter().find(|listener| listener.role == role)
    }
}

/// Returns the indexes of the listeners that `listen` refers to: those with this role for "public" and
/// "internal", otherwise those with this name.
pub(crate) fn listeners_called<'l>(
    listen: &str,
    listeners: impl Iterator<Item = (Option<&'l str>, Option<ListenerRole>)>,
) -> Vec<usize> {
    let role = match listen {
        "public" => Some(ListenerRole::Public),
        "internal" => Some(ListenerRole::Internal),
        _ => None,
    };
    let wanted = |(name, its_role): (Option<&str>, Option<ListenerRole>)| match role {
        Some(_) => its_role == role,
        None => name == Some(listen),
    };
    listeners
        .enumerate()
        .filter(|(_, listener)| wanted(*listener))
        .map(|(index, _)| index)
        .collect()
}

/// `[history]`: the storage of channel history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryStore {
    /// The folder of the history's files.
    pub path: PathBuf,
    /// When writes are made durable.
    pub fsync: Fsync,
}

/// When writes have to be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Writes are on disk before they are acknowledged.
    Commit,
    /// Writes are synced at this interval, so a power cut loses at most what was published within it.
    Interval(Duration),
    /// Writes reach the disk whenever the system flushes them.
    Never,
}

/// `[server]`: settings of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The number of workers.
    pub workers: WorkerCount,
    /// The I/O interface of the system.
    pub io: IoBackend,
    /// The settings of the server's log.
    pub log: LogSettings,
    /// The path of the control socket, by which `status`, `reload` and `stop` find the server; at most
    /// [`CONTROL_PATH_BYTES_MAX`] bytes.
    pub control: PathBuf,
    /// The user of the server process; `None`: that of the supervisor.
    pub run_as: Option<RunAs>,
    /// Whether the server process can access only the configured files.
    pub sandbox: bool,
    /// The folder in which scripts save tables.
    pub snapshots: Option<PathBuf>,
}

/// A user and optionally a group, each as a name or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The user that the process runs as.
    pub user: String,
    /// The group; `None`: the user's primary group.
    pub group: Option<String>,
}

/// Maximum length in bytes of a path that fits `sockaddr_un` with its terminating NUL.
pub const CONTROL_PATH_BYTES_MAX: usize = 107;

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One worker for each core available to the process.
    Auto,
    /// A fixed number; at most [`WORKERS_MAX`].
    Count(NonZeroU16),
}

impl WorkerCount {
    /// Returns the number of workers to start if the process may use `cores` cores.
    pub fn resolve(self, cores: usize) -> u16 {
        match self {
            Self::Auto => u16::try_from(cores)
                .unwrap_or(WORKERS_MAX)
                .clamp(1, WORKERS_MAX),
            Self::Count(count) => count.get(),
        }
    }
}

/// The I/O interface of the worker loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackend {
    /// The best interface that works on this machine.
    Auto,
    /// epoll, readiness-based; works everywhere.
    Epoll,
    /// io_uring, completion-based: makes messages cheaper, if the kernel and the container allow it.
    Uring,
    /// For tests: epoll with delayed and partial completions.
    Delayed,
}

/// `[access_log]`: the log of requests and sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogConfig {
    /// The path of the file.
    pub file: PathBuf,
    /// The format of lines.
    pub template: Template,
    /// The probability with which an entry is logged: above 0, at most 1.
    pub share: f64,
    /// Whether requests to internal listeners are logged too.
    pub internal: bool,
    /// Rotation by the server; `None`: the file grows until it is moved externally.
    pub rotation: Option<Rotation>,
}

/// `[[listen]]`: an address and its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The index in [`Config::listeners`].
    pub index: usize,
    /// The name by which routes refer to the listener.
    pub name: Option<String>,
    /// The address; port 0 lets the system choose a free port at the start.
    pub address: SocketAddr,
    /// The kind of requests that the listener serves.
    pub role: ListenerRole,
    /// TLS settings; `None` for plain connections.
    pub tls: Option<ListenerTls>,
    /// The access rules: client networks, trusted proxies and host names.
    pub access: ListenerAccess,
}

impl ListenerConfig {
    /// Returns the name used by routes, metrics and messages.
    pub fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.address.to_string())
    }
}

/// TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificates; at least one.
    pub certificates: Vec<CertificateOrigin>,
    /// The requirements for client certificates; `None` if the server requests no client certificate.
    pub clients: Option<ClientCertificates>,
}

/// The origin of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateOrigin {
    /// PEM files with a certificate chain and its key, which the operator provides.
    Files(PairFiles),
    /// A certificate that the server orders and renews by ACME.
    Acme(AcmeCertificate),
}

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate chain as PEM.
    pub certificate: PathBuf,
    /// The private key of the first certificate, as PEM.
    pub key: PathBuf,
}

/// The requirements for client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The PEM file of the CA certificates that sign client certificates.
    pub ca: PathBuf,
    /// Whether clients without a certificate are rejected.
    pub is_required: bool,
}

/// The role of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// Serves browsers and other clients: HTTP and WebSocket, as the routes define.
    Public,
    /// Serves the back end and operators: `/api/*`, `/health`, `/metrics`, and routes for internal listeners.
    Internal,
    /// Serves the back end: one JSON object per line over plain TCP.
    Push,
}

impl fmt::Display for ListenerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Push => "push",
        })
    }
}

/// `[[app]]`, or a script that a route names.
#[derive(Clone, Debug, PartialEq)]
pub struct AppConfig {
    /// The name of an `[[app]]`, or the path of the script as in the route.
    pub name: String,
    /// The path of the script. A Lua script existed when the configuration was checked.
    pub script: PathBuf,
    /// The memory limit of one worker's VM, in bytes.
    pub memory_bytes_max: u64,
    /// The maximum CPU time of a handler between two waits.
    pub cpu_budget: Duration,
    /// The time limit for the response to an HTTP request. In a streamed response it applies between two writes.
    /// `None`: unlimited.
    pub request_timeout: Option<Duration>,
    /// The folder whose files the script may send with `veche.file`. If `None`, it can't send files.
    pub files: Option<PathBuf>,
    /// The options passed to the script.
    pub options: toml::Table,
    /// The FastCGI server that runs the script; `None` if the script runs in this server.
    pub fastcgi: Option<Fastcgi>,
    /// The worker processes that run the application; `None` with another runtime.
    pub processes: Option<Processes>,
}

impl AppConfig {
    /// Returns the path of the script if it runs in this server, and not behind FastCGI or in
    /// worker processes.
    pub fn own_script(&self) -> Option<&Path> {
        let is_own = self.fastcgi.is_none() && self.processes.is_none();
        is_own.then_some(self.script.as_path())
    }
}

/// An application behind FastCGI.
#[derive(Clone, Debug, PartialEq)]
pub struct Fastcgi {
    /// The FastCGI server, and the limits of requests.
    pub pool: Arc<FastcgiPool>,
    /// Names of the events that the script handles.
    pub events: Vec<String>,
    /// The address at which the script calls the server API, and the API key that it uses, if any. `None`: the script
    /// gets neither.
    pub api: Option<(String, Option<SecretValue>)>,
}

/// An application that runs in separate processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory of the processes: the folder of the configuration.
    pub folder: PathBuf,
    /// The user and group of the processes. If `None`, they have the user and group of the server process.
    pub run_as: Option<RunAs>,
    /// Files and folders that `veche dev` watches; if empty, the sources in `folder`.
    pub watch: Vec<PathBuf>,
    /// The number of processes, at least 1.
    pub workers: u32,
    /// Number of events after which a process is replaced; 0: no limit.
    pub jobs_max: u64,
    /// The age at which a process is replaced.
    pub ttl: Option<Duration>,
    /// The idle time after which a process is replaced.
    pub idle_ttl: Option<Duration>,
    /// Maximum number of handshakes and requests that wait for a process.
    pub queue: usize,
    /// The maximum time that an event waits for a process.
    pub queue_timeout: Duration,
    /// The time limit from the start of a process until it accepts events.
    pub start_timeout: Duration,
    /// The time that a process has to end after a request to stop.
    pub stop_timeout: Duration,
    /// The time limit of one event.
    pub event_timeout: Duration,
    /// Resident memory in bytes at which a process is replaced.
    pub rss_bytes_max: Option<u64>,
}

/// `[[service]]`: a script without clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// The script and its limits. No `[[app]]` has the same name.
    pub app: AppConfig,
    /// The number of instances; at least 1.
    pub instances: u32,
    /// What happens when an instance ends.
    pub restart: RestartPolicy,
}

/// Whether an instance is restarted after its `run` has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// An instance is restarted only after it ended with an error.
    OnFailure,
    /// An instance is restarted after an error, and after a normal end.
    Always,
    /// An instance is not restarted: it runs once.
    Never,
}

/// `[[route]]`: requests and their handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The index in [`Config::routes`].
    pub index: usize,
    /// The path of the requests.
    pub path: RoutePath,
    /// The methods; never empty.
    pub methods: MethodSet,
    /// The name or role of the listeners that have this route, as in the file.
    pub listen: String,
    /// The indexes of the route's listeners in [`Config::listeners`]; none has role push. Empty
    /// only in a result of [`Config::on_top_of`], if the listeners don't exist before the next restart.
    pub listeners: Vec<usize>,
    /// The client networks that are allowed.
    pub networks: NetworkRules,
    /// Headers added to responses.
    pub headers: Option<RouteHeaders>,
    /// The handler of the requests.
    pub handler: RouteHandler,
}

impl RouteConfig {
    /// Returns a name that identifies the route across reloads as long as its `listen` and its path stay the same.
    /// Unique among the routes whose handler is a client protocol.
    pub fn name(&self) -> String {
        format!("{} {}", self.listen, self.path.as_str())
    }
}

/// The handler of a route, with the options of that handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is only one value per route, so its size does not matter"
)]
pub enum RouteHandler {
    /// Sessions of a client protocol.
    Session {
        /// The client protocol that sessions of this route speak.
        protocol: &'static ClientProtocol,
        /// The index in [`Config::apps`] of the app that decides on clients' commands, if any.
        app: Option<usize>,
        /// The source of the user's name, if the protocol has users.
        identity: Option<IdentitySource>,
        /// Channels that clients may subscribe to in their handshake.
        channels: Vec<ChannelPattern>,
        /// The route's own hook settings.
        hooks: RouteHooks,
        /// Limits and options of the route's WebSocket connections.
        websocket: WebSocketConfig,
    },
    /// Files of a folder, or the built-in demo page.
    Static {
        /// The source of the files.
        root: StaticRoot,
        /// The encodings of precompressed files, in order of preference, without duplicates.
        precompressed: Vec<ContentCoding>,
    },
    /// The server API, in addition to the API on internal listeners.
    Api {
        /// Limits and options of the route's WebSocket connections.
        websocket: WebSocketConfig,
    },
    /// Requests and WebSocket connections of an application.
    App {
        /// The index in [`Config::apps`].
        app: usize,
        /// The source of the user's name.
        identity: IdentitySource,
        /// Limits and options of the route's WebSocket connections.
        websocket: WebSocketConfig,
    },
}

impl RouteHandler {
    /// Returns the source of the user's name, if the handler has one.
    pub fn identity(&self) -> Option<&IdentitySource> {
        match self {
            Self::Session { identity, .. } => identity.as_ref(),
            Self::App { identity, .. } => Some(identity),
            Self::Static { .. } | Self::Api { .. } => None,
        }
    }

    /// Returns the WebSocket options, if the handler accepts WebSockets.
    pub fn websocket(&self) -> Option<&WebSocketConfig> {
        match self {
            Self::Session { websocket, .. }
            | Self::Api { websocket }
            | Self::App { websocket, .. } => Some(websocket),
            Self::Static { .. } => None,
        }
    }
}

/// WebSocket options of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketConfig {
    /// The allowed origins of browsers; never empty.
    pub origins: Vec<OriginRule>,
    /// Whether and how permessage-deflate (RFC 7692) is negotiated.
    pub compression: CompressionMode,
    /// Maximum length of a message after decompression, in bytes.
    pub message_bytes_max: u64,
    /// Maximum number of frames of a message.
    pub fragments_max: u32,
    /// Maximum ratio of the decompressed to the compressed length of a message; `None`: only the
    /// length is limited.
    pub inflate_ratio_max: Option<u32>,
    /// The rate limit of one client; `None`: unlimited.
    pub pacing: Option<RateLimits>,
    /// Which publications a slow consumer still receives; `None`: slow consumers are disconnected instead.
    pub drop_policy: Option<DropPolicy>,
    /// Whether clients receive the position of each publication.
    pub has_positions: bool,
}

/// `[[namespace]]`: options of a group of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// A pattern, or the prefix of channel names before the `:`. It is `""` for channels without a prefix, and `"#"`
    /// for personal channels.
    pub name: String,
    /// The history options of the namespace's channels; `None`: the channels have no history.
    pub history: Option<HistoryConfig>,
    /// The history budget of the namespace's channels in bytes. `None`: the channels share the part of
    /// `limits.history_bytes` that no other namespace reserves.
    pub history_bytes: Option<u64>,
    /// Whether channels have presence.
    pub presence: bool,
    /// Whether join and leave events are sent.
    pub join_leave: bool,
    /// Whether clients receive joins and leaves without requesting them.
    pub force_push_join_leave: bool,
    /// Which events are sent to the back end.
    pub event_level: EventLevel,
    /// The time in which a disconnected user may reconnect without a leave event; 0: the event follows at once.
    pub leave_delay: Duration,
    /// Whether clients may receive deltas.
    pub differences: veche_hub::DeltaMode,
    /// Whether clients may filter publications by tags.
    pub tags_filter: bool,
    /// The permissions of clients.
    pub access: veche_hub::ChannelAccess,
    /// Whether slow consumers miss publications instead of being disconnected.
    pub slow_miss: bool,
}

/// History options of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Maximum number of publications of one channel, at least 1.
    pub size: u32,
    /// How long a publication is stored.
    pub ttl: Duration,
    /// How long a position remains valid; at least `ttl`.
    pub position_ttl: Duration,
    /// The publications that a recovering subscriber receives.
    pub recovery: RecoveryMode,
}

/// permessage-deflate (RFC 7692) on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionMode {
    /// Messages are not compressed.
    Off,
    /// Messages are compressed without context takeover.
    On,
    /// Messages are compressed with context takeover. They are smaller, but each connection needs memory for a window.
    Takeover,
}

/// The source of static files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaticRoot {
    /// A folder of the file system.
    Folder(PathBuf),
    /// The demo page, built into the binary.
    BuiltinDemo,
}

/// `[api]`: the server API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiConfig {
    /// The file of blocked users and revoked tokens.
    pub blocks: Option<PathBuf>,
    /// Whether unknown fields of calls are ignored instead of being errors.
    pub accepts_unknown_fields: bool,
    /// The rate limit of publications for each key; `None`: unlimited.
    pub publish_rate: Option<Rate>,
    /// The valid keys. Without keys, any client may call the API. The check then rejects each internal listener that is
    /// not on a loopback address and requires no client certificate.
    pub keys: Vec<SecretValue>,
    /// The files that keys were read from.
    pub files: Vec<PathBuf>,
}

/// `[events]`: webhooks about channel and user events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsConfig {
    /// The URL that events are sent to.
    pub url: SecretUrl,
    /// The secrets that requests are signed with; empty for none.
    pub secrets: Vec<SecretValue>,
    /// The files that secrets were read from.
    pub files: Vec<PathBuf>,
    /// The time limit from the request to the complete response.
    pub timeout: Duration,
    /// Maximum number of queued events.
    pub queue: u32,
    /// The certificates to trust, as in [`PublishedKeySet::ca`](super::PublishedKeySet::ca).
    pub ca: Option<PathBuf>,
}

/// `[admin]`: the admin page on internal listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// The valid keys. Without keys, the page is disabled.
    pub keys: Vec<SecretValue>,
    /// The files that keys were read from.
    pub files: Vec<PathBuf>,
}
