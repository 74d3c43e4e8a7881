//! Tests of publishing by scripts while the home of a channel accepts no publications.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use veche_config::Config;
use veche_frontends::publish_limiter::PublishLimiter;
use veche_frontends::static_files::{ContentCoding, File, Files, OpenError, OpenResult};
use veche_frontends::{
    ConnectionLimits, Context, FrontendConfig, HubMailer, Outboxes, ProcessServices, Requests,
};
use veche_hub::{
    ChannelName, ConnectionId, Hub, Options, PayloadKind, PayloadRef, SubscribeOptions, Ticket,
    WorkerId,
};

use super::AppHosts;
use super::registry::AppRegistry;

const CONFIG: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n\
    [[route]]\npath = \"/a\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
    [[namespace]]\nname = \"kept\"\nhistory_size = 10\n";

/// Returns a configuration with a Lua application and with a namespace `kept`, whose channels have history.
fn config() -> Config {
    let folder = std::env::temp_dir().join(format!("veche-apps-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let app = "return { message = function(c, d) c:send(d) end }";
    fs::write(folder.join("app.lua"), app).expect("written");
    let config = veche_config::parse(&folder.join("veche.toml"), CONFIG);
    config.unwrap_or_else(|report| panic!("{report}"))
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

/// A stub of the process state that reports no problem.
struct Idle;

impl ProcessServices for Idle {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn nodes(&self) -> String {
        String::new()
    }
}

/// Returns the only worker of a process whose history log is full, so that channels with history accept no publication.
fn worker(config: &Config) -> (AppHosts, Context) {
    let library = AppRegistry::default();
    let app_set = library.load(config).expect("applications that load");
    let site = FrontendConfig {
        listeners: Vec::new(),
        routes: Vec::new(),
        limits: ConnectionLimits::default(),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        accepts_unknown_fields: false,
        publish_rate: PublishLimiter::default(),
        namespaces: Arc::new(veche_config::namespaces(config)),
        history_bytes_max: 1 << 20,
        history_answer_max: 100,
    };
    let mut shared = Context::new(
        Hub::new(WorkerId(0), 1, 7, Options::default()),
        Requests::new(Outboxes::new(1 << 20), HubMailer::new(1, 1024)),
        Arc::new(site),
        Arc::default(),
        Box::new(NoFiles),
        Arc::new(Idle),
    );
    shared.hub.enable_log();
    let name = ChannelName::new("kept:full").expect("a name");
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"x",
    };
    while shared
        .hub
        .publish(None, name, payload, None, &mut shared.requests)
        .is_ok()
    {}
    let port = Box::new(library.outbound.port(|| {}));
    let here = AppHosts::start(WorkerId(0), 1, &app_set, port).expect("applications that start");
    (here, shared)
}

fn publish(here: &mut AppHosts, shared: &mut Context, channel: &str) {
    here.publish(channel.to_owned(), PayloadKind::Text, b"hello", shared);
}

#[test]
fn publications_that_can_be_taken_do_not_wait_for_others() {
    let config = config();
    let (mut here, mut shared) = worker(&config);
    let listener = ConnectionId {
        index: 0,
        generation: 1,
    };
    let room = ChannelName::new("room:1").expect("a name");
    let options = SubscribeOptions::default();
    let (hub, ports) = (&mut shared.hub, &mut shared.requests);
    hub.subscribe(listener, room, Ticket(0), &options, ports)
        .expect("there is room");
    publish(&mut here, &mut shared, "kept:1");
    assert!(!here.held.is_empty(), "the log is full");
    for count in 1..=3 {
        publish(&mut here, &mut shared, "room:1");
        publish(&mut here, &mut shared, "kept:2");
        assert_eq!(shared.hub.receivers_total(), count);
    }
    // Retrying the held publications of `kept:1` and `kept:2` does not block `room:1`.
    here.publish_deferred(&mut shared);
    publish(&mut here, &mut shared, "room:1");
    assert_eq!(shared.hub.receivers_total(), 4);
    assert!(here.held.has_queued("kept:1") && here.held.has_queued("kept:2"));
}
