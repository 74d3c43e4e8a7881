//! Tests of a hub with a log: publications wait until they are durable and keep their order, a slow
//! log pauses publishers, and streams are restored from the log.

use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Caller, ChannelName, ChannelQuery, ClientInfo, ConnectionId, Delivery, Epoch, FeedEvent,
    HistoryOptions, HistoryQuery, Hub, HubMessage, HubMessageClass, HubReply, LogRecord,
    NamespaceOptions, Namespaces, NoCredit, Now, Options, Outlet, Payload, PayloadKind, PayloadRef,
    Position, Publication, PublishOptions, PublishOutcome, RecoveryMode, RequestOutcome,
    RestoredStream, SubscribeOptions, Ticket, UserCommand, Version, WorkerId,
};

/// An outlet that records the hub's output as text.
#[derive(Default)]
struct TestOutlet(Vec<String>);

impl TestOutlet {
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

impl Outlet for TestOutlet {
    fn send_message(&mut self, _: WorkerId, mail: HubMessage) {
        panic!("there is one worker: {mail:?}");
    }
    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }
    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
    fn deliver(&mut self, _: ConnectionId, delivery: &mut Delivery<'_>) {
        if delivery.event != FeedEvent::Published {
            return self.0.push(format!("{:?}", delivery.event));
        }
        let text = String::from_utf8_lossy(delivery.payload.bytes);
        let offset = delivery.position.map(|position| position.offset);
        self.0.push(format!("{text}@{}", offset.unwrap_or(0)));
    }
    fn send_reply(&mut self, _: ConnectionId, ticket: Ticket, answer: HubReply) {
        self.0.push(match answer {
            HubReply::Published(PublishOutcome {
                receivers: Some(handed),
                position,
                ..
            }) => {
                let offset = position.map_or(0, |position| position.offset);
                format!("{}: to {handed} at {offset}", ticket.0)
            }
            HubReply::Subscribed(joined) => {
                let joined = joined.expect("it remembers");
                format!("joined at {}", joined.position.offset)
            }
            HubReply::HistoryRemoved(removed) => format!("{}: removed {removed:?}", ticket.0),
            _ => unreachable!("no queries are made"),
        });
    }
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

struct World {
    hub: Hub,
    outlet: TestOutlet,
    /// The number of the batch taken last.
    batch: u64,
}

const ANN: ConnectionId = ConnectionId {
    index: 1,
    generation: 1,
};

fn namespaces(size: u32) -> Arc<Namespaces> {
    let mut namespaces = Namespaces::new();
    let history = HistoryOptions {
        size,
        ttl_ms: 60_000,
        position_ttl_ms: 60_000,
        recovery: RecoveryMode::Missed,
        budget: veche_hub::Budget::COMMON,
    };
    let namespace = NamespaceOptions {
        history: Some(history),
        join_leave: true,
        ..NamespaceOptions::default()
    };
    namespaces.insert("chat", namespace);
    Arc::new(namespaces)
}

fn channel() -> ChannelName<'static> {
    ChannelName::new("chat:1").expect("a name")
}

impl World {
    fn new() -> Self {
        let mut hub = Hub::new(WorkerId(0), 1, 1, Options::default());
        hub.enable_log();
        hub.set_history(namespaces(3), usize::MAX);
        hub.set_now(Now {
            mono_ms: 1,
            wall_ms: 1_000,
        });
        Self {
            hub,
            outlet: TestOutlet::default(),
            batch: 0,
        }
    }

    fn subscribe(&mut self, index: u32) {
        let session = ConnectionId {
            index,
            generation: 1,
        };
        self.join(session, &SubscribeOptions::default());
    }

    /// Subscribes a session at the home. The outcome is immediate and is recorded like a reply.
    fn join(&mut self, session: ConnectionId, subscribe_options: &SubscribeOptions) {
        let (hub, outlet) = (&mut self.hub, &mut self.outlet);
        let outcome = hub.subscribe(session, channel(), Ticket(0), subscribe_options, outlet);
        let Ok(RequestOutcome::Done(joined)) = outcome else {
            panic!("{outcome:?}");
        };
        outlet.send_reply(session, Ticket(0), HubReply::Subscribed(joined));
    }

    fn publish(
        &mut self,
        ticket: u32,
        text: &str,
        terms: Option<PublishOptions>,
    ) -> Result<(), NoCredit> {
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: text.as_bytes(),
        };
        let terms = terms.map(Arc::new);
        let from = Some((ANN, Ticket(ticket)));
        let outcome =
            self.hub
                .publish(from, channel(), payload, terms.as_ref(), &mut self.outlet)?;
        if let RequestOutcome::Done(published) = outcome {
            self.outlet
                .send_reply(ANN, Ticket(ticket), HubReply::Published(published));
        }
        Ok(())
    }

    fn take(&mut self) -> Vec<String> {
        let Some(batch) = self.hub.take_batch(false) else {
            return Vec::new();
        };
        self.batch = batch.number;
        let word = |append| match append {
            LogRecord::Opened { .. } => "opened".to_owned(),
            LogRecord::Published { publication, .. } => {
                let offset = publication.position.expect("it is kept").offset;
                format!("published {offset}")
            }
            LogRecord::Trimmed { below, .. } => format!("below {below}"),
            LogRecord::Dropped { .. } => "dropped".to_owned(),
        };
        batch.records.into_iter().map(word).collect()
    }

    fn durable(&mut self) -> Vec<String> {
        self.hub.batch_durable(self.batch, &mut self.outlet);
        self.outlet.take()
    }

    fn offsets(&mut self) -> Vec<u64> {
        let query = HistoryQuery {
            limit: 99,
            ..HistoryQuery::default()
        };
        let from = (ANN, Ticket(0));
        let query = ChannelQuery::History(query);
        let outcome = self.hub.query(from, channel(), query, &mut self.outlet);
        let RequestOutcome::Done(HubReply::History(Ok(page))) = outcome else {
            panic!("{outcome:?}");
        };
        let offsets = page.iter().map(|one| one.position);
        let offsets = offsets.map(|position| position.expect("kept").offset);
        let offsets: Vec<_> = offsets.collect();
        let last = offsets.last().copied().unwrap_or(0);
        assert!(page.position.offset >= last);
        offsets
    }
}

fn versioned(number: u64) -> Option<PublishOptions> {
    Some(PublishOptions {
        version: Some(Version {
            number,
            epoch: "".into(),
        }),
        ..PublishOptions::default()
    })
}

fn keyed(key: &str) -> Option<PublishOptions> {
    Some(PublishOptions {
        idempotency_key: Some(key.into()),
        ..PublishOptions::default()
    })
}

fn passing() -> Option<PublishOptions> {
    Some(PublishOptions {
        skip_history: true,
        ..PublishOptions::default()
    })
}

#[test]
fn nothing_is_delivered_before_it_is_durable() {
    let mut world = World::new();
    world.subscribe(2);
    assert_eq!(world.outlet.take(), ["joined at 0"]);
    assert_eq!(world.take(), ["opened"]);
    world.publish(1, "a", None).expect("room");
    world.publish(2, "b", None).expect("room");
    assert_eq!(world.take(), ["published 1", "published 2"]);
    world.publish(3, "c", None).expect("room");
    // A subscriber that arrives while publications wait for the log joins at the last delivered
    // position, 0, and gets the waiting publications afterwards.
    world.subscribe(3);
    assert_eq!(world.outlet.take(), ["joined at 0"]);
    assert_eq!(world.offsets(), []);
    let fed = ["a@1", "a@1", "1: to 2 at 1", "b@2", "b@2", "2: to 2 at 2"];
    assert_eq!(world.durable(), fed);
    assert_eq!(world.offsets(), [1, 2]);
    assert_eq!(world.hub.gauges().pending, 1);
    world.subscribe(4);
    assert_eq!(world.outlet.take(), ["joined at 2"]);
    assert_eq!(world.take(), ["published 3"]);
    let fed = ["c@3", "c@3", "c@3", "3: to 3 at 3"];
    assert_eq!(world.durable(), fed);
    assert_eq!(world.hub.gauges().pending, 0);
}

#[test]
fn unstored_publications_keep_their_order_and_wait_only_for_earlier_ones() {
    let mut world = World::new();
    world.subscribe(2);
    world.publish(1, "now", passing()).expect("room");
    assert_eq!(
        world.outlet.take(),
        ["joined at 0", "now@0", "1: to 1 at 0"]
    );
    world.take();
    world.publish(1, "a", versioned(5)).expect("room");
    world.publish(2, "passing", passing()).expect("room");
    world.publish(3, "old", versioned(4)).expect("room");
    world.publish(4, "b", keyed("k")).expect("room");
    world.publish(5, "b", keyed("k")).expect("room");
    assert_eq!(world.outlet.take(), [""; 0]);
    assert_eq!(world.take(), ["published 1", "published 2"]);
    let fed = [
        "a@1",
        "1: to 1 at 1",
        "passing@0",
        "2: to 1 at 0",
        "3: to 0 at 1",
        "b@2",
        "4: to 1 at 2",
        "5: to 1 at 2",
    ];
    assert_eq!(world.durable(), fed);
    // When no publication waits for the log, replies to repeated and outdated publications are
    // immediate.
    world.publish(6, "b", keyed("k")).expect("room");
    world.publish(7, "old", versioned(5)).expect("room");
    assert_eq!(world.outlet.take(), ["6: to 1 at 2", "7: to 0 at 2"]);
}

#[test]
fn joins_and_leaves_follow_earlier_publications() {
    let mut world = World::new();
    world.subscribe(2);
    world.outlet.take();
    world.publish(1, "a", None).expect("room");
    let client = ClientInfo {
        user: "bob".into(),
        client: "b".into(),
        conn_info: None,
        chan_info: None,
    };
    let subscribe_options = SubscribeOptions {
        client: Some(Arc::new(client)),
        ..SubscribeOptions::default()
    };
    let bob = ConnectionId {
        index: 3,
        generation: 1,
    };
    let joins = |world: &mut World| {
        world.join(bob, &subscribe_options);
        world.hub.sweep(9, &mut world.outlet);
    };
    joins(&mut world);
    world.hub.unsubscribe(bob, channel(), &mut world.outlet);
    world.hub.sweep(9, &mut world.outlet);
    assert_eq!(world.outlet.take(), ["joined at 0"]);
    world.take();
    let fed = ["a@1", "1: to 1 at 1", "Joined", "Left"];
    assert_eq!(world.durable(), fed);
    joins(&mut world);
    assert_eq!(world.outlet.take(), ["joined at 1", "Joined", "Joined"]);
}

#[test]
fn a_removal_is_answered_when_the_log_has_it() {
    let mut world = World::new();
    world.publish(1, "a", None).expect("room");
    world.take();
    assert_eq!(world.durable(), ["1: to 0 at 1"]);
    world.publish(2, "b", None).expect("room");
    let from = (ANN, Ticket(3));
    let query = ChannelQuery::RemoveHistory;
    let outcome = world.hub.query(from, channel(), query, &mut world.outlet);
    assert_eq!(outcome, RequestOutcome::Pending);
    world.publish(4, "c", None).expect("room");
    // The reply to the removal waits for this batch. The batch removes all publications ordered
    // before the removal, including undelivered ones.
    let appends = ["published 2", "below 3", "published 3", "below 2"];
    assert_eq!(world.take(), appends);
    assert_eq!(world.offsets(), []);
    let fed = ["2: to 0 at 2", "3: removed Ok(())", "4: to 0 at 3"];
    assert_eq!(world.durable(), fed);
    // Publications ordered before the removal are gone, and later ones are kept. After the next batch the log stores
    // the same publications as the hub.
    assert_eq!(world.offsets(), [3]);
    world.publish(5, "d", None).expect("room");
    assert_eq!(world.take(), ["published 4", "below 3"]);
}

#[test]
fn a_clock_that_is_ahead_at_a_start_has_nothing_forgotten() {
    let mut world = World::new();
    let at = |hub: &mut Hub, mono_ms, wall_ms| hub.set_now(Now { mono_ms, wall_ms });
    // The wall clock is years ahead until NTP has set it.
    at(&mut world.hub, 1, 1_000_000_000_000);
    let epoch = Epoch::from_bits(7);
    let publications = [1, 2].map(|offset| Publication {
        payload: Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from_static(b"a"),
        },
        position: Some(Position { epoch, offset }),
        at_ms: 900,
        event: FeedEvent::Published,
        info: None,
    });
    for (name, publications) in [("chat:1", publications.to_vec()), ("chat:2", Vec::new())] {
        let restored = RestoredStream {
            channel: name.into(),
            epoch,
            top: 2,
            version: None,
            publications,
        };
        assert_eq!(world.hub.restore(restored), Ok(true));
    }
    let read = |world: &mut World| {
        world.hub.maintain();
        (world.offsets(), world.hub.take_batch(true))
    };
    assert_eq!(read(&mut world), (vec![1, 2], None));
    at(&mut world.hub, 599_000, 1_000_000_000_000);
    assert_eq!(read(&mut world), (vec![1, 2], None));
    at(&mut world.hub, 599_500, 10_000);
    assert_eq!(read(&mut world), (vec![1, 2], None));
    // The grace period has passed; the publications expire when they are older than their lifetime.
    at(&mut world.hub, 600_001, 60_899);
    assert_eq!(read(&mut world), (vec![1, 2], None));
    at(&mut world.hub, 600_002, 60_900);
    let (offsets, batch) = read(&mut world);
    assert_eq!(offsets, []);
    let dropped = LogRecord::Dropped {
        channel: "chat:1".into(),
    };
    assert_eq!(batch.expect("a change").records[0], dropped);
}

#[test]
fn changes_without_waiters_ride_along_with_the_next_batch() {
    let mut world = World::new();
    for ticket in 1..=5 {
        world.publish(ticket, "a", None).expect("room");
    }
    assert_eq!(world.take().len(), 6);
    world.durable();
    // Three publications are stored. The removal of the older ones is a change to the log, but
    // nothing waits for this change.
    assert_eq!(world.take(), [""; 0]);
    assert!(world.hub.has_changes());
    world.publish(6, "a", None).expect("room");
    assert_eq!(world.take(), ["published 6", "below 3"]);
    assert!(!world.hub.has_changes());
    world.durable();
    assert!(world.hub.has_changes());
    let batch = world.hub.take_batch(true).expect("it is asked for");
    assert_eq!(batch.records.len(), 1);
    assert_eq!(world.hub.take_batch(true), None);
}

#[test]
fn a_log_that_is_slow_pauses_publishers() {
    let mut world = World::new();
    let text = "x".repeat(1 << 20);
    let mut count = 0;
    while world.publish(count, &text, None).is_ok() {
        count += 1;
        assert!(count < 1_000, "there is a limit");
    }
    assert_eq!(count, 8);
    // A publication that is not stored does not wait for the log, but must not overtake earlier publications of its
    // channel. So the limit applies to it too.
    assert_eq!(world.publish(98, "now", passing()), Err(NoCredit));
    let other = ChannelName::new("chat:2").expect("a name");
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"x",
    };
    let refused = world
        .hub
        .publish(None, other, payload, None, &mut world.outlet);
    assert_eq!(refused, Err(NoCredit));
    let terms = passing().map(Arc::new);
    let taken = world
        .hub
        .publish(None, other, payload, terms.as_ref(), &mut world.outlet);
    assert_eq!(taken, Ok(RequestOutcome::Done(PublishOutcome::default())));
    world.take();
    assert_eq!(world.durable().len(), count as usize);
    assert_eq!(world.publish(99, "x", None), Ok(()));
}

#[test]
fn removing_history_delivers_pending_publications_first() {
    let mut world = World::new();
    world.subscribe(2);
    world.publish(1, "a", None).expect("room");
    world.take();
    world.outlet.take();
    world.hub.set_history(Arc::default(), usize::MAX);
    assert_eq!(world.publish(2, "b", None), Err(NoCredit));
    assert_eq!(world.durable(), ["a@1", "1: to 1 at 1"]);
    world.publish(2, "b", None).expect("room");
    assert_eq!(world.outlet.take(), ["b@0", "2: to 1 at 0"]);
    let batch = world.hub.take_batch(true).expect("it was dropped");
    assert!(matches!(batch.records[..], [LogRecord::Dropped { .. }]));
}

#[test]
fn restored_streams_continue_at_their_position() {
    let mut world = World::new();
    for (ticket, version) in [(1, 7), (2, 8), (3, 9)] {
        world
            .publish(ticket, "a", versioned(version))
            .expect("room");
    }
    let batch = world.hub.take_batch(true).expect("some");
    let mut publications = Vec::new();
    let mut latest = None;
    for append in batch.records {
        if let LogRecord::Published {
            publication,
            version,
            ..
        } = append
        {
            publications.push(publication);
            latest = version;
        }
    }
    let epoch = publications[0].position.expect("kept").epoch;
    let restored = RestoredStream {
        channel: "chat:1".into(),
        epoch,
        top: 3,
        version: latest,
        publications: publications[1..].to_vec(),
    };
    let mut world = World::new();
    assert_eq!(world.hub.restore(restored.clone()), Ok(true));
    assert_eq!(world.offsets(), [2, 3]);
    world.publish(1, "old", versioned(9)).expect("room");
    assert_eq!(world.outlet.take(), ["1: to 0 at 3"]);
    world.publish(1, "b", None).expect("room");
    assert_eq!(world.take(), ["published 4"]);
    assert_eq!(world.durable(), ["1: to 0 at 4"]);
    // One publication before the last one is missing, so only the publications after the gap are restored.
    let mut world = World::new();
    let mut torn = restored.clone();
    torn.publications[0].position = publications[0].position;
    assert_eq!(world.hub.restore(torn), Ok(true));
    assert_eq!(world.offsets(), [3]);
    // The channel no longer has history, so its stream is not restored, and the log records that it was dropped.
    let mut world = World::new();
    world.hub.set_history(Arc::default(), usize::MAX);
    assert_eq!(world.hub.restore(restored.clone()), Ok(false));
    let batch = world.hub.take_batch(true).expect("it was dropped");
    assert!(matches!(batch.records[..], [LogRecord::Dropped { .. }]));
    // Restored streams count against the byte budget of histories, and never exceed it.
    let mut world = World::new();
    world.hub.set_history(namespaces(3), 1_000_000);
    let payload = Payload {
        kind: PayloadKind::Text,
        bytes: Bytes::from(vec![b'x'; 400_000]),
    };
    for channel in ["chat:1", "chat:2"] {
        let mut large = restored.clone();
        large.channel = channel.into();
        for publication in &mut large.publications {
            publication.payload = payload.clone();
        }
        assert_eq!(world.hub.restore(large), Ok(true));
    }
    assert!(world.hub.gauges().history_bytes <= 1_000_000);
    assert!(world.hub.has_changes(), "the log hears of it");
}
