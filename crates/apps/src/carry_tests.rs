//! Tests of publishing while a channel accepts no more.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use veche_config::Config;
use veche_frontends::publishing::Publishing;
use veche_frontends::static_files::{Encoding, File, Files, OpenError, Opened};
use veche_frontends::{Limits, Outboxes, Ports, Post, Process, Shared, Site};
use veche_hub::{
    ChannelName, ConnectionId, Hub, Options, PayloadKind, PayloadRef, SubscribeOptions, Ticket,
    WorkerId,
};

use super::Here;
use super::library::Library;

const CONFIG: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n\
    [[route]]\npath = \"/a\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
    [[namespace]]\nname = \"kept\"\nhistory_size = 10\n";

/// Returns a configuration with an application that answers nothing.
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

/// A process state without any problem.
struct Idle;

impl Process for Idle {
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
        String::new()
    }
}

/// Returns a single worker whose history log accepts nothing.
fn worker(config: &Config) -> (Here, Shared) {
    let library = Library::default();
    let shelf = library.shelve(config).expect("applications that load");
    let site = Site {
        listeners: Vec::new(),
        routes: Vec::new(),
        limits: Limits::default(),
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        accepts_unknown_fields: false,
        publishing: Publishing::default(),
        namespaces: Arc::new(veche_config::namespaces(config)),
        history_bytes_max: 1 << 20,
        history_answer_max: 100,
    };
    let mut shared = Shared::new(
        Hub::new(WorkerId(0), 1, 7, Options::default()),
        Ports::new(Outboxes::new(1 << 20), Post::new(1, 1024)),
        Arc::new(site),
        Arc::default(),
        Box::new(NoFiles),
        Arc::new(Idle),
    );
    shared.hub.keep_log();
    let name = ChannelName::new("kept:full").expect("a name");
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"x",
    };
    while shared
        .hub
        .publish(None, name, payload, None, &mut shared.ports)
        .is_ok()
    {}
    let port = Box::new(library.outbound.port(|| {}));
    let here = Here::start(0, 1, &shelf, port).expect("applications that start");
    (here, shared)
}

fn publish(here: &mut Here, shared: &mut Shared, channel: &str) {
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
    let (hub, ports) = (&mut shared.hub, &mut shared.ports);
    hub.subscribe(listener, room, Ticket(0), &options, ports)
        .expect("there is room");
    publish(&mut here, &mut shared, "kept:1");
    assert!(!here.held.is_empty(), "the log is full");
    for count in 1..=3 {
        publish(&mut here, &mut shared, "room:1");
        publish(&mut here, &mut shared, "kept:2");
        assert_eq!(shared.hub.handed_total(), count);
    }
    // Publications that still can't be accepted don't block either.
    here.publish_held(&mut shared);
    publish(&mut here, &mut shared, "room:1");
    assert_eq!(shared.hub.handed_total(), 4);
    assert!(here.held.has("kept:1") && here.held.has("kept:2"));
}
