//! The configuration of the workers of a cluster: clients of Centrifugo's protocol on one listener.

use std::sync::Arc;

use veche_frontends::identity::Identity;
use veche_frontends::publish_limiter::PublishLimiter;
use veche_frontends::route::Router;
use veche_frontends::{ConnectionLimits, Context, FrontendConfig, ListenerRole};
use veche_hub::{Hub, NodeEngine, Options, RemoteEngine, WorkerId};

use super::channels::namespaces;
use super::session::PATH;
use crate::frontend_config::{context, listener, protocol, requests, route};

/// Longer than any simulated world lasts, so clients are not pinged.
const PING_INTERVAL_MS: u64 = 30 * 24 * 3_600_000;

/// The outbox limit in bytes, which is more than any client is sent at once.
const OUTBOX_BYTES: usize = 1 << 24;

/// Maximum number of unprocessed data messages between two workers, as in the server.
pub(super) const CREDITS: u32 = 1_024;

/// Returns the state shared by the connections of worker `me`, whose hub uses an engine outside the process.
pub(super) fn shared(me: u16, workers: u16, seed: u64) -> Context {
    let engine = RemoteEngine::new(seed.wrapping_mul(31) + u64::from(me));
    let engine = NodeEngine::Remote(Box::new(engine));
    let hub = Hub::with_engine(WorkerId(me), workers, seed, Options::default(), engine);
    let requests = requests(OUTBOX_BYTES, workers, CREDITS);
    context(hub, requests, site(), seed)
}

fn site() -> FrontendConfig {
    let clients = route(PATH, protocol("centrifuge"), Identity::None);
    FrontendConfig {
        listeners: vec![listener(
            ListenerRole::Public,
            Router::new((0..).zip([&clients])),
        )],
        routes: vec![Arc::new(clients)],
        limits: ConnectionLimits {
            ping_interval_ms: PING_INTERVAL_MS,
            ..ConnectionLimits::default()
        },
        accepts_unknown_fields: false,
        publish_rate: PublishLimiter::new(None, 0),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        namespaces: namespaces(),
        history_bytes_max: usize::MAX,
        history_answer_max: usize::MAX,
    }
}
