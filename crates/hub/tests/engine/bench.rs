//! The bench for the tests of the engine's contract: a hub with any engine, and an outlet that records the hub's output.

use std::collections::BTreeMap;
use std::sync::Arc;

use veche_hub::{
    Budget, Caller, ChannelQuery, ClientInfo, ConnectionId, Delivery, Engine, FeedEvent,
    HistoryOptions, HistoryPage, HistoryQuery, Hub, HubMessage, HubMessageClass, HubReply,
    NamespaceOptions, Namespaces, NodeEngine, Now, Options, Outlet, PayloadKind, PayloadRef,
    PresenceStats, PublishOptions, PublishOutcome, RecoveryMode, RequestOutcome, Since,
    SubscribeOptions, SubscribeOutcome, Ticket, UserCommand, WorkerId,
};

use crate::common::{name, session, subscribe};

pub(crate) const CHANNEL: &str = "kept:1";
pub(crate) const ROOM: &str = "room:1";

pub(crate) fn client(index: u32, user: &str) -> Arc<ClientInfo> {
    Arc::new(ClientInfo {
        user: user.into(),
        client: index.to_string().into(),
        conn_info: None,
        chan_info: None,
    })
}

#[derive(Default)]
pub(crate) struct TestOutlet {
    given: BTreeMap<u32, Vec<(String, u64)>>,
    pub(crate) answers: Vec<HubReply>,
    pub(crate) lost: Vec<u32>,
    /// The payloads of preceding publications, which deliveries carry for delta compression.
    pub(crate) previous: Vec<String>,
}

impl TestOutlet {
    pub(crate) fn texts(&self, index: u32) -> Vec<&str> {
        let given = self.given.get(&index).into_iter().flatten();
        given.map(|(text, _)| text.as_str()).collect()
    }

    pub(crate) fn offsets(&self, index: u32) -> Vec<u64> {
        let given = self.given.get(&index).into_iter().flatten();
        given.map(|(_, offset)| *offset).collect()
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
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        let text = match delivery.event {
            FeedEvent::Published => String::from_utf8_lossy(delivery.payload.bytes).into_owned(),
            event => {
                let client = delivery.info.and_then(|info| info.client.as_ref());
                format!("{event:?} {}", client.expect("a member").client)
            }
        };
        if let Some(previous) = delivery.previous {
            let text = String::from_utf8_lossy(previous.bytes);
            self.previous.push(text.into_owned());
        }
        let offset = delivery.position.map_or(0, |position| position.offset);
        self.given
            .entry(session.index)
            .or_default()
            .push((text, offset));
    }
    fn send_reply(&mut self, _: ConnectionId, _: Ticket, answer: HubReply) {
        self.answers.push(answer);
    }
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
    fn publications_lost(&mut self, session: ConnectionId, _: &Arc<str>) {
        self.lost.push(session.index);
    }
}

/// An engine whose messages the test delivers.
pub(crate) trait Driven: Engine + Sized {
    /// Whether the engine reports the number of subscribers on all nodes.
    const KNOWS_SUBSCRIBERS: bool;

    /// Delivers one message in flight to the engine or the hub. Returns `false` if none is in flight.
    fn drive(hub: &mut Hub<Self>, outlet: &mut TestOutlet) -> bool;

    /// Makes the store outside the process, if there is one, lose all members.
    fn forget_members(&mut self) {}
}

impl Driven for NodeEngine {
    const KNOWS_SUBSCRIBERS: bool = true;

    fn drive(hub: &mut Hub<Self>, outlet: &mut TestOutlet) -> bool {
        let batch = hub.take_batch(true);
        if let Some(batch) = &batch {
            hub.batch_durable(batch.number, outlet);
        }
        batch.is_some()
    }
}

pub(crate) struct Bench<E> {
    pub(crate) hub: Hub<E>,
    pub(crate) outlet: TestOutlet,
    /// The replies to publications so far.
    pub(crate) published: Vec<PublishOutcome>,
    pub(crate) failed: usize,
    page: Option<HistoryPage>,
    joined: Option<SubscribeOutcome>,
    members: Option<Vec<String>>,
    stats: Option<PresenceStats>,
}

impl Bench<NodeEngine> {
    pub(crate) fn memory(has_log: bool) -> Self {
        let mut hub = Hub::new(WorkerId(0), 1, 7, Options::default());
        if has_log {
            hub.enable_log();
        }
        Self::with(hub)
    }
}

impl<E: Driven> Bench<E> {
    pub(crate) fn with(mut hub: Hub<E>) -> Self {
        let history = HistoryOptions {
            size: 100,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: RecoveryMode::Missed,
            budget: Budget::COMMON,
        };
        let mut namespaces = Namespaces::new();
        let kept = NamespaceOptions {
            history: Some(history),
            ..NamespaceOptions::default()
        };
        namespaces.insert("kept", kept);
        let room = NamespaceOptions {
            presence: true,
            join_leave: true,
            ..NamespaceOptions::default()
        };
        namespaces.insert("room", room);
        hub.set_history(Arc::new(namespaces), usize::MAX);
        Self {
            hub,
            outlet: TestOutlet::default(),
            published: Vec::new(),
            failed: 0,
            page: None,
            joined: None,
            members: None,
            stats: None,
        }
    }

    pub(crate) fn publish(&mut self, text: &str) {
        self.publish_with(text, None);
    }

    pub(crate) fn publish_with(&mut self, text: &str, options: Option<PublishOptions>) {
        self.publish_as(CHANNEL, text, options);
    }

    pub(crate) fn publish_as(
        &mut self,
        channel: &str,
        text: &str,
        options: Option<PublishOptions>,
    ) {
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: text.as_bytes(),
        };
        let from = Some((session(100), Ticket(1)));
        let options = options.map(Arc::new);
        let hub = &mut self.hub;
        let outcome = hub.publish(
            from,
            name(channel),
            payload,
            options.as_ref(),
            &mut self.outlet,
        );
        if let RequestOutcome::Done(published) = outcome.expect("there is room") {
            self.published.push(published);
        }
    }

    pub(crate) fn publish_and_settle(&mut self, text: &str) -> PublishOutcome {
        self.publish(text);
        self.settle();
        *self.published.last().expect("it is answered")
    }

    pub(crate) fn subscribe(&mut self, index: u32, since: Option<u64>) -> SubscribeOutcome {
        let since = since.map(|offset| Since {
            epoch: None,
            offset,
        });
        let subscribe_options = SubscribeOptions {
            since: since.map(|since| [since].into()),
            ..SubscribeOptions::default()
        };
        let (hub, outlet) = (&mut self.hub, &mut self.outlet);
        subscribe(
            hub,
            session(index),
            name(CHANNEL),
            Ticket(2),
            &subscribe_options,
            outlet,
        )
        .expect("there is room");
        self.take_answers();
        while self.joined.is_none() && E::drive(&mut self.hub, &mut self.outlet) {
            self.take_answers();
        }
        self.joined.take().expect("it is answered")
    }

    /// Subscribes the session `index` as a member, to a channel without history.
    pub(crate) fn enter(&mut self, index: u32, user: &str) {
        let subscribe_options = SubscribeOptions {
            client: Some(client(index, user)),
            ..SubscribeOptions::default()
        };
        let (hub, outlet) = (&mut self.hub, &mut self.outlet);
        subscribe(
            hub,
            session(index),
            name(ROOM),
            Ticket(2),
            &subscribe_options,
            outlet,
        )
        .expect("there is room");
        self.settle();
    }

    pub(crate) fn set_rooms(&mut self, namespace: NamespaceOptions) {
        let mut namespaces = Namespaces::new();
        namespaces.insert("room", namespace);
        self.hub.set_history(Arc::new(namespaces), usize::MAX);
    }

    /// Sets the clock and runs the maintenance.
    pub(crate) fn pass(&mut self, mono_ms: u64) {
        let wall_ms = mono_ms;
        self.hub.set_now(Now { mono_ms, wall_ms });
        self.hub.maintain();
        self.settle();
    }

    pub(crate) fn forget_members(&mut self) {
        self.hub.engine().forget_members();
    }

    pub(crate) fn leave(&mut self, index: u32) {
        self.hub.close(session(index), &mut self.outlet);
        self.settle();
    }

    /// Returns the members of the room, and the numbers of its clients and users.
    pub(crate) fn presence(&mut self) -> (Vec<String>, (u32, u32)) {
        for query in [ChannelQuery::Presence, ChannelQuery::PresenceStats] {
            let caller = (session(100), Ticket(3));
            let outcome = self.hub.query(caller, name(ROOM), query, &mut self.outlet);
            if let RequestOutcome::Done(answer) = outcome {
                self.outlet.answers.push(answer);
            }
        }
        self.settle();
        let mut members = self.members.take().expect("it is answered");
        members.sort_unstable();
        let stats = self.stats.take().expect("it is answered");
        (members, (stats.clients, stats.users))
    }

    pub(crate) fn ask(&mut self, query: ChannelQuery) {
        let caller = (session(100), Ticket(3));
        let outcome = self
            .hub
            .query(caller, name(CHANNEL), query, &mut self.outlet);
        if let RequestOutcome::Done(answer) = outcome {
            self.outlet.answers.push(answer);
        }
        self.take_answers();
    }

    pub(crate) fn read(&mut self, query: HistoryQuery) -> HistoryPage {
        self.ask(ChannelQuery::History(query));
        self.settle();
        self.page.take().expect("it is answered")
    }

    /// Delivers all messages that are in flight.
    pub(crate) fn settle(&mut self) {
        while E::drive(&mut self.hub, &mut self.outlet) {}
        while self.hub.sweep(1_000, &mut self.outlet) || E::drive(&mut self.hub, &mut self.outlet) {
        }
        self.take_answers();
        let under_way: Vec<_> = self.hub.pending_work().collect();
        assert!(under_way.is_empty(), "stuck: {under_way:?}");
    }

    fn take_answers(&mut self) {
        for answer in std::mem::take(&mut self.outlet.answers) {
            match answer {
                HubReply::Published(published) => self.published.push(published),
                HubReply::Failed => self.failed += 1,
                HubReply::History(page) => self.page = Some(*page.expect("it is kept")),
                HubReply::Subscribed(joined) => self.joined = joined.map(|joined| *joined),
                HubReply::Presence(members) => {
                    let members = members.expect("it keeps presence");
                    self.members = Some(members.iter().map(|one| one.client.to_string()).collect());
                }
                HubReply::PresenceStats(stats) => self.stats = Some(stats.expect("it counts")),
                HubReply::HistoryRemoved(removed) => assert_eq!(removed, Ok(())),
                other => unreachable!("it was not asked for: {other:?}"),
            }
        }
    }
}
