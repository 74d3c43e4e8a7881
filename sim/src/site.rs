//! The configuration of the workers of a world: clients of Centrifugo's protocol and push routes on one listener, the
//! API and push lines on others.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;
use veche_frontends::access::{Access, Networks};
use veche_frontends::hooks::{BackEndId, Decider, Deciders, Kind};
use veche_frontends::identity::token::{Keychain, Place, Tokens, Verifier};
use veche_frontends::identity::{Desk, Identity};
use veche_frontends::origin::Rule;
use veche_frontends::outbox::Keeping;
use veche_frontends::publishing::Publishing;
use veche_frontends::registry;
use veche_frontends::route::{Handler, Route, Router};
use veche_frontends::static_files::{Encoding, File, Files, OpenError, Opened};
use veche_frontends::{
    AppId, Limits, Listener, Outboxes, Ports, Post, Process, Role, Shared, Site, Stats,
};
use veche_hub::{ConnectionId, Hub, Options, WorkerId};
use veche_jwt::{Keys, Rules};
use veche_proto::websocket;

use crate::carrier::{CARRIERS, Carrier, Decides};
use crate::channels::{self, CHANNELS, GIVEN};
use crate::setup::Setup;

/// The delivery guarantee of a push route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promised {
    All,
    Places,
    Newest,
    Latest,
}

/// The guarantees with their paths and requested channels.
pub(crate) const ROUTES: [(Promised, &str, &[&str]); 4] = [
    (Promised::All, "/push", &["open:1", "news:1", "tick:1"]),
    (Promised::Places, "/push/places", &["news:1", "state:1"]),
    (Promised::Newest, "/push/newest", &["log:1"]),
    (
        Promised::Latest,
        "/push/latest",
        &["log:1", "state:1", "open:1"],
    ),
];

/// Listener ids.
pub(crate) const PUBLIC: u16 = 0;
pub(crate) const INTERNAL: u16 = 1;
pub(crate) const PUSH: u16 = 2;

/// The path to which clients without a WebSocket post their commands.
pub(crate) const EMULATION: &str = "/connection/emulation";

/// The key that signs tokens.
const SECRET: &[u8] = b"a secret that is long enough for it";

/// Timeouts of a connection in milliseconds, shorter than usual because worlds are short.
pub(crate) const PING_INTERVAL_MS: u64 = 5_000;
const PONG_TIMEOUT_MS: u64 = 2_000;
const WRITE_TIMEOUT_MS: u64 = 6_000;

/// After this time no timeout is pending.
pub(crate) const PATIENCE_MS: u64 = 32_000;

/// Returns the state shared by the connections of worker `me`. `seed` is that of the process.
pub(crate) fn shared(setup: &Setup, me: u16, workers: u16, seed: u64) -> Shared {
    let options = Options {
        channel_queue_publications_max: setup.queue_publications_max,
        epoch_seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(me),
        ..Options::default()
    };
    Shared::new(
        Hub::new(WorkerId(me), workers, seed, options),
        Ports::new(
            Outboxes::new(setup.outbox_bytes).with_random(counting),
            Post::new(workers, setup.credits),
        ),
        Arc::new(site(setup)),
        Arc::new(Stats::default()),
        Box::new(NoFiles),
        Arc::new(Quiet { seed }),
    )
}

fn site(setup: &Setup) -> Site {
    let mut public = vec![route(EMULATION, protocol("centrifuge"), Identity::None)];
    for (carrier, _) in CARRIERS {
        let identity = Identity::Token(Arc::new(tokens()));
        let path = Decides::Nobody.path(carrier);
        public.extend([
            route(&path, protocol("centrifuge"), identity),
            decided(Decides::BackEnd, carrier, by_back_end()),
            decided(Decides::App, carrier, by_app()),
        ]);
    }
    public.extend(CARRIERS.iter().map(|(_, path)| {
        let identity = Identity::Token(Arc::new(tokens()));
        route(path, protocol("centrifuge"), identity)
    }));
    public.extend(ROUTES.iter().map(|(promised, path, channels)| Route {
        channels: channels.iter().map(|name| (*name).to_owned()).collect(),
        keeping: match promised {
            Promised::All | Promised::Places => None,
            Promised::Newest => Some(Keeping::Newest),
            Promised::Latest => Some(Keeping::Latest),
        },
        has_positions: *promised == Promised::Places,
        identity: match promised {
            Promised::All => Identity::Query("user".into()),
            _ => Identity::None,
        },
        ..route(path, protocol("push"), Identity::None)
    }));
    let internal = [route("/api", Handler::Api, Identity::None)];
    let count = public.len();
    let listeners = vec![
        listener(Role::Public, Router::new((0..).zip(&public))),
        listener(Role::Internal, Router::new((count as u16..).zip(&internal))),
        listener(Role::Push, Router::default()),
    ];
    let routes = public.into_iter().chain(internal).map(Arc::new).collect();
    Site {
        listeners,
        routes,
        limits: Limits {
            ping_interval_ms: PING_INTERVAL_MS,
            pong_timeout_ms: PONG_TIMEOUT_MS,
            write_timeout_ms: WRITE_TIMEOUT_MS,
            ..Limits::default()
        },
        accepts_unknown_fields: false,
        publishing: Publishing::new(None, 0),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        namespaces: Arc::new(channels::namespaces(setup)),
        history_bytes_max: setup.history_bytes_max,
        history_answer_max: 10_000,
    }
}

fn protocol(name: &str) -> Handler {
    registry::handler(name).expect("a registered protocol")
}

fn route(path: &str, handler: Handler, identity: Identity) -> Route {
    Route {
        deciders: None,
        path: path.to_owned(),
        methods: Vec::new(),
        handler,
        headers: None,
        identity,
        channels: Vec::new(),
        networks: Networks::default(),
        origins: vec![Rule::SameHost],
        compression: None,
        message_limits: websocket::Limits {
            message_bytes_max: 64 << 10,
            fragments_max: 64,
            inflate_ratio_max: 0,
        },
        pacing: None,
        keeping: None,
        has_positions: false,
    }
}

/// Returns a route with hooks.
fn decided(decides: Decides, carrier: Carrier, deciders: Deciders) -> Route {
    Route {
        deciders: Some(Arc::new(deciders)),
        ..route(
            &decides.path(carrier),
            protocol("centrifuge"),
            Identity::None,
        )
    }
}

fn by_back_end() -> Deciders {
    let mut deciders = Deciders::default();
    for kind in Kind::OF_BACK_ENDS {
        deciders.set(kind, Decider::BackEnd(BackEndId::default()));
    }
    deciders
}

fn by_app() -> Deciders {
    let mut deciders = Deciders::default();
    deciders.set_app(AppId(0), 0, Arc::default());
    deciders
}

fn listener(role: Role, router: Router) -> Listener {
    Listener {
        role,
        is_tls: false,
        access: Access::default(),
        router,
    }
}

/// Keys that are available from the start.
#[derive(Debug)]
struct Known(Option<Arc<Keys>>);

impl Keychain for Known {
    fn keys(&self) -> Option<Arc<Keys>> {
        self.0.clone()
    }

    fn look_for_more(&self, _: ConnectionId, _: &Arc<dyn Desk>, _: Option<&Arc<Keys>>) -> bool {
        false
    }
}

fn tokens() -> Tokens {
    let keys = Keys::secret(SECRET).ok().map(Arc::new);
    let verifier = Verifier {
        rules: Rules::default(),
        keys: Arc::new(Known(keys)),
    };
    Tokens::new(vec![Place::Query("token".into())], verifier)
}

/// Returns a permanent token for a user and the granted channels.
pub(crate) fn token(user: &str) -> String {
    let given: Vec<_> = CHANNELS[GIVEN].iter().map(|one| one.name).collect();
    let claims = json!({ "sub": user, "exp": 1_u64 << 40, "channels": given });
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, SECRET),
        message.as_bytes(),
    );
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

struct Quiet {
    seed: u64,
}

impl Process for Quiet {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn trouble(&self, what: &str) {
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
    fn open(&mut self, _: &Path, _: &str, _: u64) -> Result<Opened, OpenError> {
        Err(OpenError::NotFound)
    }

    fn open_variant(
        &mut self,
        _: &Path,
        _: &str,
        _: Encoding,
        _: u64,
    ) -> Result<Option<File>, OpenError> {
        Ok(None)
    }
}

thread_local! {
    static COUNTED: Cell<u32> = const { Cell::new(0) };
}

/// Restarts the names of connections for a new world.
pub(crate) fn count_anew() {
    COUNTED.set(0);
}

/// Sufficiently random for names: none occurs twice in a world.
fn counting(bytes: &mut [u8]) {
    for four in bytes.chunks_mut(4) {
        let next = COUNTED.get() + 1;
        COUNTED.set(next);
        four.copy_from_slice(&next.to_be_bytes()[..four.len()]);
    }
}
