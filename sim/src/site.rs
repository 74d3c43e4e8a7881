//! The site that the workers of a world serve: one listener with one route, for clients of Centrifugo's protocol.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use veche_frontends::access::{Access, Networks};
use veche_frontends::identity::Identity;
use veche_frontends::origin::Rule;
use veche_frontends::publishing::Publishing;
use veche_frontends::route::{Handler, Route, Router};
use veche_frontends::static_files::{Files, OpenError, Opened};
use veche_frontends::{
    Limits, Listener, Outboxes, Ports, Post, Process, Role, Shared, Site, Stats,
};
use veche_hub::{Hub, Options, WorkerId};
use veche_proto::websocket;

use crate::channels;
use crate::setup::Setup;

/// Times of a connection, shorter than usual: worlds are short too. In milliseconds.
pub(crate) const PING_INTERVAL_MS: u64 = 5_000;
const PONG_TIMEOUT_MS: u64 = 2_000;
const WRITE_TIMEOUT_MS: u64 = 6_000;

/// After so long nothing is left that only time ends.
pub(crate) const PATIENCE_MS: u64 = 32_000;

/// What the connections of worker `me` share. `seed` is that of the process.
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
        Arc::new(Quiet),
    )
}

fn site(setup: &Setup) -> Site {
    let route = Route {
        path: "/connection/websocket".to_owned(),
        methods: Vec::new(),
        handler: Handler::Centrifuge,
        identity: Identity::Query("user".into()),
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
    };
    let listener = Listener {
        role: Role::Public,
        access: Access::default(),
        router: Router::new([(0, &route)]),
    };
    Site {
        listeners: vec![listener],
        routes: vec![Arc::new(route)],
        limits: Limits {
            ping_interval_ms: PING_INTERVAL_MS,
            pong_timeout_ms: PONG_TIMEOUT_MS,
            write_timeout_ms: WRITE_TIMEOUT_MS,
            ..Limits::default()
        },
        publishing: Publishing::new(None, 0),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        namespaces: Arc::new(channels::namespaces(setup)),
        history_bytes_max: setup.history_bytes_max,
    }
}

struct Quiet;

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

    fn nodes(&self) -> String {
        "[]".to_owned()
    }
}

struct NoFiles;

impl Files for NoFiles {
    fn open(&mut self, _: &Path, _: &str, _: u64) -> Result<Opened, OpenError> {
        Err(OpenError::NotFound)
    }
}

thread_local! {
    static COUNTED: Cell<u32> = const { Cell::new(0) };
}

/// The names of connections are those of a world's beginning.
pub(crate) fn count_anew() {
    COUNTED.set(0);
}

/// As good as random for names: none comes twice in a world.
fn counting(bytes: &mut [u8]) {
    for four in bytes.chunks_mut(4) {
        let next = COUNTED.get() + 1;
        COUNTED.set(next);
        four.copy_from_slice(&next.to_be_bytes()[..four.len()]);
    }
}
