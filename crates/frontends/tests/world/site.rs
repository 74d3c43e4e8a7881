//! The configuration of the tests' workers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use veche_frontends::access::{ListenerAccess, NetworkRules};
use veche_frontends::admin::AdminView;
use veche_frontends::hooks::{BackEndId, HookKind, HookKinds, HookTarget, HookTargets};
use veche_frontends::identity::token::{
    Anonymous, KeyProvider, TokenAuth, TokenSource, TokenVerifier,
};
use veche_frontends::identity::{CompletionSink, Identity};
use veche_frontends::origin::OriginCheck;
use veche_frontends::outbox::DropPolicy;
use veche_frontends::publish_limiter::PublishLimiter;
use veche_frontends::rate::Rate;
use veche_frontends::rate_limiter::{OverLimit, RateLimits};
use veche_frontends::registry;
use veche_frontends::route::{Route, RouteHandler, RouteHeaders, Router};
use veche_frontends::static_files::{
    ContentCoding, File, FileContent, FileMetadata, Files, OpenError, OpenResult, ReadAt,
};
use veche_frontends::{
    ApiKey, AppId, ConnectionLimits, Context, FrontendConfig, FrontendListener, HubMailer,
    ListenerRole, Outboxes, ProcessServices, Requests, Stats,
};
use veche_hub::{
    ConnectionId, DeltaMode, EventLevel, HistoryOptions, Hub, NamespaceOptions, Namespaces,
    PathPattern, PublishAccess as Publishes, RecoveryMode, SubscribeAccess, Wildcards, WorkerId,
};
use veche_jwt::{ClaimRules, Keys};
use veche_proto::websocket::{self, deflate};

use super::apps;

/// The listeners of the configuration, by index.
pub const PUBLIC: u16 = 0;
pub const INTERNAL: u16 = 1;
pub const PUSH: u16 = 2;

/// The key for calls of the admin page.
pub const ADMIN_KEY: &str = "the operator's";

/// Length of `/files/large.bin`, in bytes.
pub const LARGE_BYTES: u64 = 1 << 20;

pub struct Options {
    pub workers: u16,
    /// Number of credits of each lane between two workers.
    pub credits: u32,
    pub outbox_bytes: usize,
    /// Maximum number of bytes by which one step may exceed the limit of an outbox, for example with an answer.
    pub answer_bytes_max: usize,
    pub api_keys: Vec<&'static str>,
    pub accepts_unknown_fields: bool,
    pub publish_rate: Option<Rate>,
    pub limits: ConnectionLimits,
    pub hub: veche_hub::Options,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 1,
            credits: 1024,
            outbox_bytes: 256 << 10,
            answer_bytes_max: 128 << 10,
            api_keys: Vec::new(),
            accepts_unknown_fields: false,
            publish_rate: None,
            limits: limits(),
            hub: veche_hub::Options::default(),
            seed: 7,
        }
    }
}

/// Returns the default limits with small limits for bodies and lines.
pub fn limits() -> ConnectionLimits {
    let mut limits = ConnectionLimits {
        line_bytes_max: 4096,
        ..ConnectionLimits::default()
    };
    limits.http.body_bytes_max = 100_000;
    limits
}

impl Options {
    /// Returns the context of one worker.
    pub fn shared(&self, me: WorkerId) -> Context {
        Context::new(
            Hub::new(me, self.workers, self.seed, self.hub_of(me)),
            Requests::new(
                Outboxes::new(self.outbox_bytes).with_random(counting),
                HubMailer::new(self.workers, self.credits),
            ),
            Arc::new(self.site()),
            Arc::new(Stats::default()),
            Box::new(TwoFiles),
            Arc::new(Quiet),
        )
    }

    /// Returns the options of a worker's hub; the seed makes its epochs differ from those of other workers.
    fn hub_of(&self, me: WorkerId) -> veche_hub::Options {
        veche_hub::Options {
            epoch_seed: self.hub.epoch_seed ^ u64::from(me.0) << 32,
            ..self.hub.clone()
        }
    }

    fn site(&self) -> FrontendConfig {
        let public = [
            Route {
                identity: Identity::Query("user".into()),
                channels: vec!["news".into(), "room:*".into()],
                ..push("/ws")
            },
            Route {
                identity: Identity::Query("user".into()),
                channels: vec!["*".into()],
                has_positions: true,
                ..push("/positions")
            },
            Route {
                identity: Identity::Cookie("session".into()),
                ..push("/cookie")
            },
            Route {
                identity: Identity::Header("x-user".into()),
                ..push("/header")
            },
            Route {
                channels: vec!["*".into()],
                ..push("/open")
            },
            Route {
                identity: Identity::Query("user".into()),
                channels: vec!["*".into()],
                drop_policy: Some(DropPolicy::KeepNewest),
                ..push("/newest")
            },
            Route {
                channels: vec!["*".into()],
                drop_policy: Some(DropPolicy::KeepLatestPerChannel),
                ..push("/latest")
            },
            Route {
                channels: vec!["*".into()],
                drop_policy: Some(DropPolicy::KeepNewest),
                compression: Some(deflate::DeflatePolicy {
                    takeover: true,
                    ..deflate::DeflatePolicy::default()
                }),
                ..push("/newest-deflate")
            },
            route("/centrifuge", protocol("centrifuge")),
            route("/centrifuge/all/*", protocol("centrifuge")),
            Route {
                identity: Identity::Token(tokens(Anonymous::None)),
                ..route("/centrifuge/jwt/http_stream", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Token(tokens(Anonymous::None)),
                ..route("/centrifuge/tokens/*", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Query("user".into()),
                compression: Some(deflate::DeflatePolicy {
                    takeover: true,
                    ..deflate::DeflatePolicy::default()
                }),
                ..route("/centrifuge/named", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Token(tokens(Anonymous::None)),
                ..route("/centrifuge/jwt", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Token(tokens(Anonymous::Token)),
                ..route("/centrifuge/anonymous-token", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Token(tokens(Anonymous::All)),
                ..route("/centrifuge/anonymous", protocol("centrifuge"))
            },
            Route {
                hook_targets: Some(Arc::new(hook_targets(&[HookKind::Message]))),
                ..route("/centrifuge/asked/*", protocol("centrifuge"))
            },
            Route {
                hook_targets: Some(Arc::new(hook_targets(&[HookKind::Disconnect]))),
                ..route("/centrifuge/asked-gone", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Query("user".into()),
                hook_targets: Some(Arc::new(hook_targets(&[HookKind::Message]))),
                ..route("/centrifuge/asked-named", protocol("centrifuge"))
            },
            Route {
                identity: Identity::Token(tokens(Anonymous::None)),
                hook_targets: Some(Arc::new(hook_targets(&[HookKind::Message]))),
                ..route("/centrifuge/asked-jwt", protocol("centrifuge"))
            },
            Route {
                compression: Some(deflate::DeflatePolicy {
                    takeover: true,
                    ..deflate::DeflatePolicy::default()
                }),
                identity: Identity::Query("user".into()),
                ..route("/centrifuge/deflate", protocol("centrifuge"))
            },
            paced("/paced/delay/*", protocol("centrifuge"), OverLimit::Delay),
            paced("/paced/drop/*", protocol("centrifuge"), OverLimit::Drop),
            paced("/paced/close/*", protocol("centrifuge"), OverLimit::Close),
            paced("/paced-echo", protocol("echo"), OverLimit::Delay),
            route("/echo", protocol("echo")),
            Route {
                compression: Some(deflate::DeflatePolicy::default()),
                ..route("/deflate", protocol("echo"))
            },
            Route {
                compression: Some(deflate::DeflatePolicy {
                    takeover: true,
                    client_window_bits: deflate::KEPT_WINDOW_BITS_MAX,
                    ..deflate::DeflatePolicy::default()
                }),
                ..route("/takeover", protocol("echo"))
            },
            Route {
                methods: vec!["GET".into()],
                ..route("/get", RouteHandler::Health)
            },
            app("/app/*", apps::SCRIPTED),
            app("/timed/*", apps::SCRIPTED),
            Route {
                identity: Identity::Query("user".into()),
                ..app("/app/staff/*", apps::SCRIPTED)
            },
            app("/room/:id", apps::SCRIPTED),
            app("/room/lobby", apps::DECIDING),
            app("/lua-echo", apps::ECHOING),
            app("/decided", apps::DECIDING),
            Route {
                identity: Identity::Query("user".into()),
                ..app("/app-user", apps::SCRIPTED)
            },
            Route {
                identity: Identity::Query("user".into()),
                ..app("/decided-user", apps::DECIDING)
            },
            Route {
                compression: Some(deflate::DeflatePolicy::default()),
                ..app("/app-deflate", apps::SCRIPTED)
            },
            route(
                "/files",
                RouteHandler::Static {
                    root: PathBuf::from("root"),
                    variants: Vec::new(),
                },
            ),
            Route {
                headers: headers(&[("Cache-Control", "max-age=60"), ("X-Frame-Options", "DENY")]),
                ..route(
                    "/packed",
                    RouteHandler::Static {
                        root: PathBuf::from("root"),
                        variants: ContentCoding::ALL.to_vec(),
                    },
                )
            },
            Route {
                networks: NetworkRules {
                    deny: vec!["0.0.0.0/0".parse().expect("a network")],
                    ..NetworkRules::default()
                },
                ..route(
                    "/files/private",
                    RouteHandler::Static {
                        root: PathBuf::from("root/private"),
                        variants: Vec::new(),
                    },
                )
            },
        ];
        let internal = [
            route("/api/*", RouteHandler::Api),
            paced("/paced-api/*", RouteHandler::Api, OverLimit::Close),
            route("/admin/*", RouteHandler::Admin),
            route("/health", RouteHandler::Health),
            route("/metrics", RouteHandler::Metrics),
        ];
        let count = public.len() as u16;
        let routes: Vec<Arc<Route>> = public.into_iter().chain(internal).map(Arc::new).collect();
        let router = |range: std::ops::Range<u16>| {
            Router::new(range.map(|index| (index, &*routes[index as usize])))
        };
        let listeners = vec![
            FrontendListener {
                role: ListenerRole::Public,
                is_tls: false,
                access: ListenerAccess::default(),
                router: router(0..count),
            },
            FrontendListener {
                role: ListenerRole::Internal,
                is_tls: false,
                access: ListenerAccess::default(),
                router: router(count..routes.len() as u16),
            },
            FrontendListener {
                role: ListenerRole::Push,
                is_tls: false,
                access: ListenerAccess::default(),
                router: Router::default(),
            },
        ];
        let api_keys: Vec<_> = self.api_keys.iter().map(|key| ApiKey::new(key)).collect();
        FrontendConfig {
            listeners,
            routes,
            limits: self.limits.clone(),
            accepts_unknown_fields: self.accepts_unknown_fields,
            publish_rate: PublishLimiter::new(self.publish_rate, api_keys.len()),
            api_keys,
            admin_keys: vec![ApiKey::new(ADMIN_KEY)],
            namespaces: Arc::new(namespaces()),
            history_bytes_max: 1 << 20,
            history_answer_max: 600,
        }
    }
}

/// Returns the namespaces. `chat` and `filtered` store three publications, `price` four (of which a client recovers
/// only the latest), and `long` 500. All others have no history.
fn namespaces() -> Namespaces {
    let mut namespaces = Namespaces::with_wildcards(Wildcards::new(["wide"]));
    for (name, size, recovery) in [
        ("chat", 3, RecoveryMode::Missed),
        ("price", 4, RecoveryMode::Latest),
        ("long", 500, RecoveryMode::Missed),
    ] {
        let history = Some(HistoryOptions {
            size,
            ttl_ms: 60_000,
            position_ttl_ms: 120_000,
            recovery,
            budget: veche_hub::Budget::COMMON,
        });
        let access = veche_hub::ChannelAccess {
            subscribe: SubscribeAccess::Client,
            publish: Publishes::Subscriber,
            ..Default::default()
        };
        namespaces.insert(
            name,
            NamespaceOptions {
                history,
                access,
                presence: name != "price",
                join_leave: name == "chat",
                force_push_join_leave: false,
                leave_delay_ms: 5_000,
                event_level: EventLevel::Off,
                drop_when_slow: false,
                delta_mode: match name {
                    "chat" => DeltaMode::OnRequest,
                    _ => DeltaMode::Always,
                },
                tags_filter: true,
            },
        );
    }
    for (name, subscribe, publish) in [
        ("open", SubscribeAccess::Client, Publishes::Client),
        ("token", SubscribeAccess::Token, Publishes::Disabled),
        ("asked", SubscribeAccess::Hook, Publishes::Hook),
    ] {
        let access = veche_hub::ChannelAccess {
            subscribe,
            publish,
            ..Default::default()
        };
        namespaces.insert(
            name,
            NamespaceOptions {
                access,
                ..NamespaceOptions::default()
            },
        );
    }
    let with_events = NamespaceOptions {
        access: veche_hub::ChannelAccess {
            subscribe: SubscribeAccess::Client,
            publish: Publishes::Disabled,
            ..Default::default()
        },
        join_leave: true,
        force_push_join_leave: true,
        ..NamespaceOptions::default()
    };
    namespaces.insert("told", with_events);
    let filtered = NamespaceOptions {
        access: veche_hub::ChannelAccess {
            subscribe: SubscribeAccess::Client,
            publish: Publishes::Hook,
            ..Default::default()
        },
        history: namespaces.of("chat:1").history,
        ..NamespaceOptions::default()
    };
    namespaces.insert("filtered", filtered);
    let everything = NamespaceOptions {
        access: veche_hub::ChannelAccess {
            subscribe: SubscribeAccess::Client,
            publish: Publishes::Client,
            ..Default::default()
        },
        ..NamespaceOptions::default()
    };
    namespaces.insert("wide", everything);
    namespaces.insert("$wide", everything);
    for pattern in ["/users/:user/:thing", "/rooms/:room"] {
        let pattern = PathPattern::new(pattern).expect("a pattern");
        namespaces.insert_pattern(pattern, everything);
    }
    namespaces
}

/// Returns hook targets: the test application decides on the kinds in `of_app`, the back end on all others that back
/// ends support.
fn hook_targets(of_app: &[HookKind]) -> HookTargets {
    let mut hook_targets = HookTargets::default();
    for kind in HookKind::BACKEND_KINDS {
        hook_targets.set(kind, HookTarget::BackEnd(BackEndId::default()));
    }
    hook_targets.headers = vec!["cookie".into(), "x-custom".into()];
    hook_targets.emulated = vec!["x-custom".into()];
    let kinds = Arc::new(HookKinds::default());
    kinds.set(of_app.iter().copied());
    hook_targets.set_app(apps::SCRIPTED, 0, kinds);
    hook_targets
}

/// The key that signs the tokens of the tests.
pub const SECRET: &[u8] = b"a secret that is long enough for it";

/// Keys that are available from the beginning, without a fetch.
#[derive(Debug)]
struct Known(Arc<Keys>);

impl KeyProvider for Known {
    fn keys(&self) -> Option<Arc<Keys>> {
        Some(Arc::clone(&self.0))
    }

    fn fetch(&self, _: ConnectionId, _: &Arc<dyn CompletionSink>, _: Option<&Arc<Keys>>) -> bool {
        false
    }
}

fn tokens(anonymous: Anonymous) -> Arc<TokenAuth> {
    let keys = Keys::secret(SECRET).expect("long enough");
    let rules = ClaimRules {
        leeway_s: 0,
        ..ClaimRules::default()
    };
    Arc::new(TokenAuth {
        sources: vec![TokenSource::Query("token".into())],
        connections: TokenVerifier {
            rules,
            keys: Arc::new(Known(Arc::new(keys))),
        },
        subscriptions: None,
        anonymous,
    })
}

/// Returns a route whose rate limit is two messages in eight seconds.
fn paced(path: &str, handler: RouteHandler, over: OverLimit) -> Route {
    Route {
        rate_limits: Some(RateLimits {
            messages: Some(Rate::new(2, 8_000)),
            bytes: None,
            over_limit: over,
        }),
        ..route(path, handler)
    }
}

fn push(path: &str) -> Route {
    route(path, protocol("push"))
}

/// Time limit in milliseconds of applications on routes with `timed` in their path. Other routes
/// have no limit.
pub const TIMEOUT_MS: u64 = 60_000;

fn app(path: &str, app: AppId) -> Route {
    let request_timeout_ms = if path.contains("timed") {
        TIMEOUT_MS
    } else {
        0
    };
    let handler = RouteHandler::App {
        app,
        request_timeout_ms,
    };
    route(path, handler)
}

fn protocol(name: &str) -> RouteHandler {
    registry::handler(name).expect("a registered protocol")
}

fn route(path: &str, handler: RouteHandler) -> Route {
    Route {
        path: path.to_owned(),
        methods: Vec::new(),
        handler,
        headers: None,
        identity: Identity::None,
        channels: Vec::new(),
        networks: NetworkRules::default(),
        origins: vec![OriginCheck::SameHost],
        compression: None,
        message_limits: websocket::MessageLimits {
            message_bytes_max: 64 << 10,
            fragments_max: 64,
            inflate_ratio_max: 0,
        },
        rate_limits: None,
        drop_policy: None,
        has_positions: false,
        hook_targets: None,
    }
}

fn headers(headers: &[(&str, &str)]) -> Option<Arc<RouteHeaders>> {
    let owned = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Some(Arc::new(
        RouteHeaders::new(owned).expect("a route can add them"),
    ))
}

struct Quiet;

impl ProcessServices for Quiet {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        "metric 1\n# EOF\n".to_owned()
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn nodes(&self) -> String {
        r#"[{"name":"here"}]"#.to_owned()
    }

    fn admin_view(&self, look: AdminView) -> String {
        format!(r#"{{"look":"{look:?}"}}"#)
    }
}

/// Files in memory: `hello.txt`, `private/secret.txt`, and `large.bin`, which is read in pieces.
struct TwoFiles;

impl Files for TwoFiles {
    fn open(&mut self, _: &Path, relative: &str, _: u64) -> Result<OpenResult, OpenError> {
        let (length, content) = match relative {
            "hello.txt" => (6, FileContent::InMemory(Bytes::from_static(b"hello\n"))),
            "private/secret.txt" => (6, FileContent::InMemory(Bytes::from_static(b"secret"))),
            "large.bin" => (LARGE_BYTES, FileContent::OnDisk(Arc::new(Large))),
            _ => return Err(OpenError::NotFound),
        };
        let description = Arc::new(FileMetadata::of_file(relative, length, 1_700_000_000, 0));
        Ok(OpenResult::File(File {
            metadata: description,
            content,
        }))
    }

    /// Only `hello.txt` has a variant, which is compressed with gzip.
    fn open_variant(
        &mut self,
        _: &Path,
        relative: &str,
        encoding: ContentCoding,
        _: u64,
    ) -> Result<Option<File>, OpenError> {
        if (relative, encoding) != ("hello.txt", ContentCoding::Gzip) {
            return Ok(None);
        }
        let description = FileMetadata::of_file(relative, 4, 1_700_000_000, 0).encoded(encoding);
        Ok(Some(File {
            metadata: Arc::new(description),
            content: FileContent::InMemory(Bytes::from_static(b"<gz>")),
        }))
    }
}

struct Large;

impl ReadAt for Large {
    fn read_at(&self, offset: u64, bytes_max: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        let count = (LARGE_BYTES - offset).min(bytes_max as u64) as usize;
        let end = out.len() + count;
        // Every byte is its offset modulo 256. One cycle of 256 bytes is built, and the rest is copied from it.
        let start = out.len();
        out.extend((offset..offset + count.min(256) as u64).map(|at| at as u8));
        while out.len() < end {
            let more = (end - out.len()).min(out.len() - start);
            out.extend_from_within(start..start + more);
        }
        Ok(count)
    }
}

/// Fills a buffer with consecutive 32-bit numbers in place of random bytes, so that no four bytes are repeated.
fn counting(bytes: &mut [u8]) {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    for chunk in bytes.chunks_mut(4) {
        let next = NEXT.fetch_add(1, Relaxed).to_be_bytes();
        chunk.copy_from_slice(&next[..chunk.len()]);
    }
}
