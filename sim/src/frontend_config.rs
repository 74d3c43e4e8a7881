//! The configuration of the workers of a world: clients of Centrifugo's protocol and push routes on one listener, the
//! API and push lines on others.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;
use veche_frontends::access::{ListenerAccess, NetworkRules};
use veche_frontends::hooks::{BackEndId, HookKind, HookTarget, HookTargets};
use veche_frontends::identity::token::{KeyProvider, TokenAuth, TokenSource, TokenVerifier};
use veche_frontends::identity::{CompletionSink, Identity};
use veche_frontends::origin::OriginCheck;
use veche_frontends::outbox::DropPolicy;
use veche_frontends::publish_limiter::PublishLimiter;
use veche_frontends::registry;
use veche_frontends::route::{Route, RouteHandler, Router};
use veche_frontends::static_files::{ContentCoding, File, Files, OpenError, OpenResult};
use veche_frontends::{
    AppId, ConnectionLimits, Context, FrontendConfig, FrontendListener, HubMailer, ListenerRole,
    Outboxes, ProcessServices, Requests, Stats,
};
use veche_hub::{ConnectionId, Hub, Options, WorkerId};
use veche_jwt::{ClaimRules, Keys};
use veche_proto::websocket;

use crate::channels::{self, CHANNELS, TOKEN_CHANNELS};
use crate::client_transport::{CLIENT_TRANSPORTS, ClientTransport, HookRoute};
use crate::setup::Setup;

/// The delivery guarantee of a push route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryGuarantee {
    All,
    Places,
    Newest,
    Latest,
}

/// The push routes: for each, the delivery guarantee, the path and the channels that clients request.
pub(crate) const ROUTES: [(DeliveryGuarantee, &str, &[&str]); 4] = [
    (
        DeliveryGuarantee::All,
        "/push",
        &["open:1", "news:1", "tick:1"],
    ),
    (
        DeliveryGuarantee::Places,
        "/push/places",
        &["news:1", "state:1"],
    ),
    (DeliveryGuarantee::Newest, "/push/newest", &["log:1"]),
    (
        DeliveryGuarantee::Latest,
        "/push/latest",
        &["log:1", "state:1", "open:1"],
    ),
];

/// Ids of the listeners, in the order of the configuration.
pub(crate) const PUBLIC: u16 = 0;
pub(crate) const INTERNAL: u16 = 1;
pub(crate) const PUSH: u16 = 2;

/// The path to which clients without a WebSocket post their commands.
pub(crate) const EMULATION: &str = "/connection/emulation";

/// The key that signs tokens.
const SECRET: &[u8] = b"a secret that is long enough for it";

/// The ping interval in milliseconds. It is shorter than usual, because a simulated world runs only briefly.
pub(crate) const PING_INTERVAL_MS: u64 = 5_000;
const PONG_TIMEOUT_MS: u64 = 2_000;
const WRITE_TIMEOUT_MS: u64 = 6_000;

/// The time in milliseconds after which no timeout of an idle world is pending.
pub(crate) const TIMEOUTS_MS: u64 = 32_000;

/// Returns the state shared by the connections of worker `me`. `seed` is that of the process.
pub(crate) fn shared(setup: &Setup, me: u16, workers: u16, seed: u64) -> Context {
    let options = Options {
        channel_queue_publications_max: setup.queue_publications_max,
        epoch_seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(me),
        ..Options::default()
    };
    let hub = Hub::new(WorkerId(me), workers, seed, options);
    let requests = requests(setup.outbox_bytes, workers, setup.credits);
    context(hub, requests, site(setup), seed)
}

/// Returns empty request queues for one of `workers` workers. The names that outboxes usually generate at random come
/// from a counter, so that worlds are reproducible.
pub(crate) fn requests(outbox_bytes: usize, workers: u16, credits: u32) -> Requests {
    Requests::new(
        Outboxes::new(outbox_bytes).with_random(counting),
        HubMailer::new(workers, credits),
    )
}

/// Returns a context without files, in a process whose name is `seed`.
pub(crate) fn context(hub: Hub, requests: Requests, site: FrontendConfig, seed: u64) -> Context {
    Context::new(
        hub,
        requests,
        Arc::new(site),
        Arc::new(Stats::default()),
        Box::new(NoFiles),
        Arc::new(NullProcess { seed }),
    )
}

fn site(setup: &Setup) -> FrontendConfig {
    let mut public = vec![route(EMULATION, protocol("centrifuge"), Identity::None)];
    for (carrier, _) in CLIENT_TRANSPORTS {
        let identity = Identity::Token(Arc::new(tokens()));
        let path = HookRoute::NoHook.path(carrier);
        public.extend([
            route(&path, protocol("centrifuge"), identity),
            decided(HookRoute::BackEnd, carrier, by_back_end()),
            decided(HookRoute::App, carrier, by_app()),
        ]);
    }
    public.extend(CLIENT_TRANSPORTS.iter().map(|(_, path)| {
        let identity = Identity::Token(Arc::new(tokens()));
        route(path, protocol("centrifuge"), identity)
    }));
    public.extend(ROUTES.iter().map(|(promised, path, channels)| Route {
        channels: channels.iter().map(|name| (*name).to_owned()).collect(),
        drop_policy: match promised {
            DeliveryGuarantee::All | DeliveryGuarantee::Places => None,
            DeliveryGuarantee::Newest => Some(DropPolicy::KeepNewest),
            DeliveryGuarantee::Latest => Some(DropPolicy::KeepLatestPerChannel),
        },
        has_positions: *promised == DeliveryGuarantee::Places,
        identity: match promised {
            DeliveryGuarantee::All => Identity::Query("user".into()),
            _ => Identity::None,
        },
        ..route(path, protocol("push"), Identity::None)
    }));
    let internal = [route("/api", RouteHandler::Api, Identity::None)];
    let count = public.len();
    let listeners = vec![
        listener(ListenerRole::Public, Router::new((0..).zip(&public))),
        listener(
            ListenerRole::Internal,
            Router::new((count as u16..).zip(&internal)),
        ),
        listener(ListenerRole::Push, Router::default()),
    ];
    let routes = public.into_iter().chain(internal).map(Arc::new).collect();
    FrontendConfig {
        listeners,
        routes,
        limits: ConnectionLimits {
            ping_interval_ms: PING_INTERVAL_MS,
            pong_timeout_ms: PONG_TIMEOUT_MS,
            write_timeout_ms: WRITE_TIMEOUT_MS,
            ..ConnectionLimits::default()
        },
        accepts_unknown_fields: false,
        publish_rate: PublishLimiter::new(None, 0),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        namespaces: Arc::new(channels::namespaces(setup)),
        history_bytes_max: setup.history_bytes_max,
        history_answer_max: 10_000,
    }
}

pub(crate) fn protocol(name: &str) -> RouteHandler {
    registry::handler(name).expect("a registered protocol")
}

pub(crate) fn route(path: &str, handler: RouteHandler, identity: Identity) -> Route {
    Route {
        hook_targets: None,
        path: path.to_owned(),
        methods: Vec::new(),
        handler,
        headers: None,
        identity,
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
    }
}

/// Returns a route with hooks.
fn decided(decides: HookRoute, carrier: ClientTransport, hook_targets: HookTargets) -> Route {
    Route {
        hook_targets: Some(Arc::new(hook_targets)),
        ..route(
            &decides.path(carrier),
            protocol("centrifuge"),
            Identity::None,
        )
    }
}

fn by_back_end() -> HookTargets {
    let mut hook_targets = HookTargets::default();
    for kind in HookKind::BACKEND_KINDS {
        hook_targets.set(kind, HookTarget::BackEnd(BackEndId::default()));
    }
    hook_targets
}

fn by_app() -> HookTargets {
    let mut hook_targets = HookTargets::default();
    hook_targets.set_app(AppId(0), 0, Arc::default());
    hook_targets
}

pub(crate) fn listener(role: ListenerRole, router: Router) -> FrontendListener {
    FrontendListener {
        role,
        is_tls: false,
        access: ListenerAccess::default(),
        router,
    }
}

/// Keys that are available from the start.
#[derive(Debug)]
struct StaticKeys(Option<Arc<Keys>>);

impl KeyProvider for StaticKeys {
    fn keys(&self) -> Option<Arc<Keys>> {
        self.0.clone()
    }

    fn fetch(&self, _: ConnectionId, _: &Arc<dyn CompletionSink>, _: Option<&Arc<Keys>>) -> bool {
        false
    }
}

fn tokens() -> TokenAuth {
    let keys = Keys::secret(SECRET).ok().map(Arc::new);
    let verifier = TokenVerifier {
        rules: ClaimRules::default(),
        keys: Arc::new(StaticKeys(keys)),
    };
    TokenAuth::new(vec![TokenSource::Query("token".into())], verifier)
}

/// Returns a permanent token for a user and the granted channels.
pub(crate) fn token(user: &str) -> String {
    let given: Vec<_> = CHANNELS[TOKEN_CHANNELS]
        .iter()
        .map(|one| one.name)
        .collect();
    let claims = json!({ "sub": user, "exp": 1_u64 << 40, "channels": given });
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, SECRET),
        message.as_bytes(),
    );
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

struct NullProcess {
    seed: u64,
}

impl ProcessServices for NullProcess {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn node(&self) -> String {
        self.seed.to_string()
    }

    fn nodes(&self) -> String {
        "[]".to_owned()
    }
}

struct NoFiles;

impl Files for NoFiles {
    fn open(&mut self, _: &Path, _: &str, _: u64) -> Result<OpenResult, OpenError> {
        Err(OpenError::NotFound)
    }

    fn open_variant(
        &mut self,
        _: &Path,
        _: &str,
        _: ContentCoding,
        _: u64,
    ) -> Result<Option<File>, OpenError> {
        Ok(None)
    }
}

thread_local! {
    static COUNTED: Cell<u32> = const { Cell::new(0) };
}

/// Restarts the counter from which connections get their names, for a new world.
pub(crate) fn count_anew() {
    COUNTED.set(0);
}

/// Fills bytes from a counter. This suffices for names, which must only be unique within a world.
fn counting(bytes: &mut [u8]) {
    for four in bytes.chunks_mut(4) {
        let next = COUNTED.get() + 1;
        COUNTED.set(next);
        four.copy_from_slice(&next.to_be_bytes()[..four.len()]);
    }
}
