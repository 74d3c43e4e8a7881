//! What scripts publish while a channel can't take more.

use std::sync::Arc;

use veche_config::Config;
use veche_frontends::{Outboxes, Ports, Post, Shared};
use veche_hub::{
    ChannelName, ConnectionId, Hub, Options, PayloadKind, PayloadRef, SubscribeOptions, Ticket,
    WorkerId,
};

use super::Here;
use super::library::Library;
use crate::common::Common;
use crate::files::DiskFiles;
use crate::metrics::Report;
use crate::process::now;
use crate::stage::good;

const CONFIG: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n\
    [[route]]\npath = \"/a\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
    [[namespace]]\nname = \"kept\"\nhistory_size = 10\n";

/// A worker alone, whose log of history takes nothing any more.
fn worker(config: &Config) -> (Here, Shared) {
    let library = Library::default();
    let shelf = library.shelve(config).expect("applications that load");
    let common = Arc::new(Common::new(1, now()));
    let report = Report::new(
        Arc::clone(&common),
        library.outbound.clone(),
        Arc::default(),
        "test".to_owned(),
    );
    let site = crate::site::build(config, &library, &common.identities, &common.hooks, false);
    let mut shared = Shared::new(
        Hub::new(WorkerId(0), 1, 7, Options::default()),
        Ports::new(Outboxes::new(1 << 20), Post::new(1, 1024)),
        Arc::new(site),
        Arc::clone(&common.stats[0]),
        Box::new(DiskFiles::default()),
        Arc::new(report),
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
    let config = good(CONFIG);
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
    // Nor do they stop at what still can't be taken.
    here.publish_held(&mut shared);
    publish(&mut here, &mut shared, "room:1");
    assert_eq!(shared.hub.handed_total(), 4);
    assert!(here.held.has("kept:1") && here.held.has("kept:2"));
}
