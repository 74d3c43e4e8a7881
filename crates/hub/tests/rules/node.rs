//! A hub with an outlet that records messages, deliveries and replies.

use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Caller, ChannelQuery, ClientInfo, ConnectionId, Delivery, EncodingId, EventLevel, FeedEvent,
    HistoryOptions, HistoryPage, HistoryQuery, Hub, HubMessage, HubMessageClass, HubReply,
    NamespaceOptions, Namespaces, NoCredit, Now, Options, Outlet, Payload, PayloadKind, PayloadRef,
    Position, PublishOptions, PublishOutcome, RecoveryMode, RequestOutcome, Since, SubscribeError,
    SubscribeOptions, SubscribeOutcome, Ticket, USERS, UserCommand, Wildcards, WorkerId,
};

use crate::common::{name, session, subscribe};

pub(crate) const HOME: WorkerId = WorkerId(0);
pub(crate) const NEAR: WorkerId = WorkerId(1);
pub(crate) const FAR: WorkerId = WorkerId(2);
pub(crate) const SOURCE: WorkerId = WorkerId(3);

/// The lifetime of publications, in milliseconds.
pub(crate) const TTL_MS: u64 = 1_000;
/// The lifetime of positions, in milliseconds.
pub(crate) const POSITION_TTL_MS: u64 = 1_000_000;

/// The monotonic time at which each test starts, in milliseconds.
pub(crate) const START_MS: u64 = 1_000;

/// A delivery to a session.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) session: ConnectionId,
    pub(crate) channel: String,
    pub(crate) source: String,
    pub(crate) text: String,
    pub(crate) position: Option<Position>,
    pub(crate) event: FeedEvent,
    pub(crate) receivers: u32,
    pub(crate) slow_miss: bool,
    pub(crate) previous: Option<String>,
}

/// An outlet that records the output of a hub.
#[derive(Default)]
pub(crate) struct TestOutlet {
    /// The number of data messages that each worker still accepts.
    pub(crate) credits: [usize; 4],
    pub(crate) sent: Vec<(WorkerId, HubMessage)>,
    /// The publications sent to other workers, as text.
    pub(crate) delivered: Vec<String>,
    pub(crate) done: Vec<(WorkerId, HubMessageClass)>,
    pub(crate) given: Vec<Given>,
    pub(crate) answers: Vec<(Ticket, HubReply)>,
    pub(crate) instructed: Vec<ConnectionId>,
    pub(crate) settling: Vec<(Caller, Arc<UserCommand>)>,
}

impl Outlet for TestOutlet {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        if let HubMessage::Deliver { publication, .. } = &mail {
            let credits = &mut self.credits[usize::from(to.0)];
            *credits = credits.checked_sub(1).expect("sent without credit");
            let text = String::from_utf8_lossy(&publication.payload.bytes);
            self.delivered.push(format!("{text} to {}", to.0));
        }
        self.sent.push((to, mail));
    }

    fn has_credit(&self, to: WorkerId, _: HubMessageClass) -> bool {
        self.credits[usize::from(to.0)] > 0
    }

    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass) {
        self.done.push((from, class));
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        // Checks that the cached encodings are those of this publication and not of another one.
        let bytes = delivery.payload.bytes;
        let encode = || Bytes::copy_from_slice(bytes);
        let encoding = delivery.encodings.find_or_encode(EncodingId(1), encode);
        assert_eq!(encoding, bytes);
        self.given.push(Given {
            session,
            channel: delivery.channel.to_owned(),
            source: delivery.source().to_owned(),
            text: String::from_utf8_lossy(delivery.payload.bytes).into_owned(),
            position: delivery.position,
            event: delivery.event,
            receivers: delivery.receivers,
            slow_miss: delivery.drop_when_slow,
            previous: delivery
                .previous
                .map(|one| String::from_utf8_lossy(one.bytes).into_owned()),
        });
    }

    fn send_reply(&mut self, _: ConnectionId, ticket: Ticket, answer: HubReply) {
        self.answers.push((ticket, answer));
    }

    fn execute_command(&mut self, session: ConnectionId, _: &Arc<UserCommand>) {
        self.instructed.push(session);
    }

    fn command_dispatched(&mut self, caller: Caller, instruction: &Arc<UserCommand>) {
        self.settling.push((caller, Arc::clone(instruction)));
    }
}

pub(crate) fn remembering(recovery: RecoveryMode) -> Option<HistoryOptions> {
    Some(HistoryOptions {
        size: 10,
        ttl_ms: TTL_MS,
        position_ttl_ms: POSITION_TTL_MS,
        recovery,
        budget: veche_hub::Budget::COMMON,
    })
}

/// Returns the namespaces of the tests. `kept` and `news` have history, and `news` has a wildcard channel. `latest`
/// recovers the latest publication. `room` and `hall` have presence, joins and leaves, and `hall` has a leave delay.
pub(crate) fn namespaces() -> Namespaces {
    let mut all = Namespaces::with_wildcards(Wildcards::new(["news"]));
    let kept = NamespaceOptions {
        history: remembering(RecoveryMode::Missed),
        ..NamespaceOptions::default()
    };
    let latest = NamespaceOptions {
        history: remembering(RecoveryMode::Latest),
        ..NamespaceOptions::default()
    };
    let room = NamespaceOptions {
        presence: true,
        join_leave: true,
        ..NamespaceOptions::default()
    };
    let hall = NamespaceOptions {
        leave_delay_ms: 5_000,
        ..room
    };
    let with_events = NamespaceOptions {
        event_level: EventLevel::Members,
        ..NamespaceOptions::default()
    };
    all.insert("kept", kept);
    all.insert("news", kept);
    all.insert("latest", latest);
    all.insert("room", room);
    all.insert("hall", hall);
    all.insert("told", with_events);
    all.insert(USERS, NamespaceOptions::default());
    all
}

pub(crate) struct Node {
    pub(crate) hub: Hub,
    pub(crate) outlet: TestOutlet,
    seed: u64,
}

impl Node {
    fn new(workers: u16, seed: u64, options: Options) -> Self {
        let mut hub = Hub::new(HOME, workers, seed, options);
        hub.set_history(Arc::new(namespaces()), usize::MAX);
        let mut node = Self {
            hub,
            outlet: TestOutlet::default(),
            seed,
        };
        node.at(START_MS);
        node
    }

    /// Creates a node with one worker.
    pub(crate) fn alone() -> Self {
        Self::new(1, 5, Options::default())
    }

    pub(crate) fn alone_with(options: Options) -> Self {
        Self::new(1, 5, options)
    }

    /// Creates a node with one worker and a history log.
    pub(crate) fn logged() -> Self {
        let mut node = Self::alone();
        node.hub.enable_log();
        node
    }

    /// Creates worker 0 of four, which is the home of the namespace `news`.
    pub(crate) fn home() -> Self {
        Self::home_with(Options::default())
    }

    pub(crate) fn home_with(options: Options) -> Self {
        let seeds = 1..;
        let mut nodes = seeds.map(|seed| Self::new(4, seed, options.clone()));
        let node = nodes.find(|node| node.is_home_of("news:1"));
        node.expect("every fourth seed")
    }

    pub(crate) fn is_home_of(&self, channel: &str) -> bool {
        self.hub.home_of(name(channel)) == HOME
    }

    /// Returns the names of channels in a namespace that have this worker as their home.
    pub(crate) fn names<const COUNT: usize>(&self, namespace: &str) -> [String; COUNT] {
        let all = (0..).map(|number| format!("{namespace}:{number}"));
        let mut own = all.filter(|channel| self.is_home_of(channel));
        std::array::from_fn(|_| own.next().expect("there are more"))
    }

    pub(crate) fn at(&mut self, ms: u64) {
        self.hub.set_now(Now {
            mono_ms: ms,
            wall_ms: ms,
        });
    }

    pub(crate) fn try_subscribe(
        &mut self,
        session: ConnectionId,
        channel: &str,
        subscribe_options: &SubscribeOptions,
    ) -> Result<(), SubscribeError> {
        let channel = name(channel);
        subscribe(
            &mut self.hub,
            session,
            channel,
            Ticket(0),
            subscribe_options,
            &mut self.outlet,
        )
    }

    pub(crate) fn subscribe(&mut self, index: u32, channel: &str) {
        self.join(session(index), channel, &SubscribeOptions::default());
    }

    /// Subscribes a session. Returns the outcome if this worker is the channel's home and the channel has history.
    pub(crate) fn join(
        &mut self,
        session: ConnectionId,
        channel: &str,
        subscribe_options: &SubscribeOptions,
    ) -> Option<SubscribeOutcome> {
        self.try_subscribe(session, channel, subscribe_options)
            .expect("there is room");
        match self.outlet.answers.pop() {
            Some((_, HubReply::Subscribed(joined))) => joined.map(|joined| *joined),
            other => {
                self.outlet.answers.extend(other);
                None
            }
        }
    }

    pub(crate) fn unsubscribe(&mut self, index: u32, channel: &str) {
        assert!(
            self.hub
                .unsubscribe(session(index), name(channel), &mut self.outlet)
        );
    }

    pub(crate) fn close(&mut self, session: ConnectionId) {
        self.hub.close(session, &mut self.outlet);
    }

    /// Returns the message by which a session of another worker subscribes.
    pub(crate) fn request_from(
        &self,
        worker: WorkerId,
        channel: &str,
        subscribe_options: &SubscribeOptions,
    ) -> HubMessage {
        let mut there = Hub::new(worker, self.hub.workers(), self.seed, Options::default());
        there.set_history(Arc::new(namespaces()), usize::MAX);
        let mut outlet = TestOutlet::default();
        subscribe(
            &mut there,
            session(0),
            name(channel),
            Ticket(0),
            subscribe_options,
            &mut outlet,
        )
        .expect("there is room");
        let (to, mail) = outlet.sent.pop().expect("the home is elsewhere");
        assert_eq!(to, HOME);
        mail
    }

    /// Subscribes a session of another worker.
    pub(crate) fn subscribe_from(&mut self, worker: WorkerId, channel: &str) {
        let mail = self.request_from(worker, channel, &SubscribeOptions::default());
        self.receive(worker, mail);
    }

    pub(crate) fn receive(&mut self, from: WorkerId, mail: HubMessage) {
        self.hub.receive(from, mail, &mut self.outlet);
    }

    pub(crate) fn publish(
        &mut self,
        text: &str,
        channel: &str,
    ) -> Result<RequestOutcome<PublishOutcome>, NoCredit> {
        self.publish_with(text, channel, PublishOptions::default())
    }

    pub(crate) fn publish_with(
        &mut self,
        text: &str,
        channel: &str,
        terms: PublishOptions,
    ) -> Result<RequestOutcome<PublishOutcome>, NoCredit> {
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: text.as_bytes(),
        };
        let terms = (terms != PublishOptions::default()).then(|| Arc::new(terms));
        let from = Some((session(77), Ticket(77)));
        self.hub.publish(
            from,
            name(channel),
            payload,
            terms.as_ref(),
            &mut self.outlet,
        )
    }

    /// Publishes to a channel whose home is this worker. The channel has to accept the publication at once.
    pub(crate) fn put(&mut self, text: &str, channel: &str) -> PublishOutcome {
        match self.publish(text, channel) {
            Ok(RequestOutcome::Done(published)) => published,
            other => panic!("{other:?}"),
        }
    }

    /// Receives a publication that a session of another worker has sent.
    pub(crate) fn publish_from(&mut self, worker: WorkerId, text: &'static str, channel: &str) {
        let payload = Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from_static(text.as_bytes()),
        };
        let mail = HubMessage::Publish {
            channel: Arc::from(channel),
            payload,
            terms: None,
            reply: None,
        };
        self.receive(worker, mail);
    }

    pub(crate) fn ask(&mut self, channel: &str, query: ChannelQuery) -> RequestOutcome<HubReply> {
        let caller = (session(77), Ticket(77));
        self.hub
            .query(caller, name(channel), query, &mut self.outlet)
    }

    /// Returns the whole history of a channel.
    pub(crate) fn page(&mut self, channel: &str) -> HistoryPage {
        let all = HistoryQuery {
            limit: usize::MAX,
            ..HistoryQuery::default()
        };
        match self.ask(channel, ChannelQuery::History(all)) {
            RequestOutcome::Done(HubReply::History(Ok(page))) => *page,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sweep(&mut self, deliveries_max: usize) -> bool {
        self.hub.sweep(deliveries_max, &mut self.outlet)
    }

    /// If a batch of records waits for the history log, takes the batch and reports it as durable.
    pub(crate) fn write_log(&mut self) {
        if let Some(batch) = self.hub.take_batch(false) {
            self.hub.batch_durable(batch.number, &mut self.outlet);
        }
    }

    /// Returns the texts delivered since the last call, in order.
    pub(crate) fn texts(&mut self) -> Vec<String> {
        let given = std::mem::take(&mut self.outlet.given);
        given.into_iter().map(|one| one.text).collect()
    }
}

pub(crate) fn member(user: &str, client: &str) -> SubscribeOptions {
    let info = ClientInfo {
        user: user.into(),
        client: client.into(),
        conn_info: None,
        chan_info: None,
    };
    SubscribeOptions {
        client: Some(Arc::new(info)),
        ..SubscribeOptions::default()
    }
}

/// Returns the options of a returning subscriber that knows this offset, in any epoch.
pub(crate) fn back_from(offset: u64) -> SubscribeOptions {
    let since = Since {
        epoch: None,
        offset,
    };
    SubscribeOptions {
        since: Some(Arc::from([since])),
        ..SubscribeOptions::default()
    }
}
