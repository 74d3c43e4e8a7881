//! A node with two workers and the lanes between them. The test drives the workers' engines.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Budget, Caller, ChannelName, ConnectionId, Delivery, FeedEvent, HistoryOptions, Hub,
    HubMessage, HubMessageClass, HubReply, NamespaceOptions, Namespaces, Options, Outlet, Payload,
    PayloadKind, PayloadRef, Publication, RecoveryMode, Since, SubscribeOptions, SubscribeOutcome,
    Ticket, UserCommand, Wildcards, WorkerId,
};

use crate::common::{name, session, subscribe};
use crate::unruly::{Broken, Unruly};

/// An event that a session has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceivedEvent {
    Joined(Option<Box<SubscribeOutcome>>),
    Failed,
    Item(u64, String),
    Lost,
}

#[derive(Default)]
pub(crate) struct TestOutlet {
    sent: VecDeque<(WorkerId, HubMessage)>,
    pub(crate) received: BTreeMap<u32, Vec<ReceivedEvent>>,
}

impl TestOutlet {
    fn hear(&mut self, session: ConnectionId, received: ReceivedEvent) {
        self.received
            .entry(session.index)
            .or_default()
            .push(received);
    }
}

impl Outlet for TestOutlet {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        self.sent.push_back((to, mail));
    }
    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }
    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        let text = String::from_utf8_lossy(delivery.payload.bytes).into_owned();
        let offset = delivery.position.map_or(0, |position| position.offset);
        self.hear(session, ReceivedEvent::Item(offset, text));
    }
    fn send_reply(&mut self, session: ConnectionId, _: Ticket, answer: HubReply) {
        match answer {
            HubReply::Subscribed(joined) => self.hear(session, ReceivedEvent::Joined(joined)),
            HubReply::Failed => self.hear(session, ReceivedEvent::Failed),
            _ => {}
        }
    }
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
    fn publications_lost(&mut self, session: ConnectionId, _: &Arc<str>) {
        self.hear(session, ReceivedEvent::Lost);
    }
}

/// Two workers. Sessions with an even index belong to the first one, the others to the second.
pub(crate) struct Pair {
    pub(crate) hubs: [Hub<Unruly>; 2],
    pub(crate) outlets: [TestOutlet; 2],
}

pub(crate) fn publication(text: &str) -> Publication {
    Publication {
        payload: Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::copy_from_slice(text.as_bytes()),
        },
        position: None,
        at_ms: 0,
        event: FeedEvent::Published,
        info: None,
    }
}

/// Returns a subscriber's known positions, one for each of these offsets. Their epoch is
/// unspecified, so it matches any epoch.
pub(crate) fn since(offsets: &[u64]) -> Option<Arc<[Since]>> {
    let since = |offset: &u64| Since {
        epoch: None,
        offset: *offset,
    };
    (!offsets.is_empty()).then(|| offsets.iter().map(since).collect())
}

impl Pair {
    pub(crate) fn new(seed: u64) -> Self {
        let history = |recovery| {
            Some(HistoryOptions {
                size: 1_000,
                ttl_ms: 60_000,
                position_ttl_ms: 60_000,
                recovery,
                budget: Budget::COMMON,
            })
        };
        let mut namespaces = Namespaces::with_wildcards(Wildcards::new(["news"]));
        for (name, recovery) in [
            ("kept", RecoveryMode::Missed),
            ("news", RecoveryMode::Missed),
            ("latest", RecoveryMode::Latest),
        ] {
            let namespace = NamespaceOptions {
                history: history(recovery),
                ..NamespaceOptions::default()
            };
            namespaces.insert(name, namespace);
        }
        let namespaces = Arc::new(namespaces);
        let hub = |worker| {
            let mut engine = Unruly::new(seed + u64::from(worker), Broken::Nothing);
            engine.is_late = true;
            let mut hub = Hub::with_engine(WorkerId(worker), 2, 7, Options::default(), engine);
            hub.set_history(Arc::clone(&namespaces), usize::MAX);
            hub
        };
        Self {
            hubs: [hub(0), hub(1)],
            outlets: [TestOutlet::default(), TestOutlet::default()],
        }
    }

    /// Sets namespaces in which no channel has history.
    pub(crate) fn forget_history(&mut self) {
        for hub in &mut self.hubs {
            let namespaces = Namespaces::with_wildcards(Wildcards::new(["news"]));
            hub.set_history(Arc::new(namespaces), usize::MAX);
        }
    }

    pub(crate) fn home(&self, channel: &str) -> usize {
        usize::from(self.hubs[0].home_of(name(channel)).0)
    }

    /// Returns the engine of the worker that is the channel's home.
    pub(crate) fn engine(&mut self, channel: &str) -> &mut Unruly {
        let home = self.home(channel);
        self.hubs[home].engine()
    }

    pub(crate) fn subscribe(&mut self, index: u32, channel: &str, places: &[u64]) {
        let subscribe_options = SubscribeOptions {
            since: since(places),
            ..SubscribeOptions::default()
        };
        let worker = index as usize % 2;
        let (hub, outlet) = (&mut self.hubs[worker], &mut self.outlets[worker]);
        subscribe(
            hub,
            session(index),
            name(channel),
            Ticket(1),
            &subscribe_options,
            outlet,
        )
        .expect("there is room");
    }

    pub(crate) fn unsubscribe(&mut self, index: u32, channel: &str) -> bool {
        let worker = index as usize % 2;
        let (hub, outlet) = (&mut self.hubs[worker], &mut self.outlets[worker]);
        hub.unsubscribe(session(index), name(channel), outlet)
    }

    pub(crate) fn close(&mut self, index: u32) {
        let worker = index as usize % 2;
        self.hubs[worker].close(session(index), &mut self.outlets[worker]);
    }

    /// Publishes to a channel, at its home.
    pub(crate) fn publish(&mut self, channel: &str, text: &str) {
        let home = self.home(channel);
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: text.as_bytes(),
        };
        let channel: ChannelName<'_> = name(channel);
        self.hubs[home]
            .publish(None, channel, payload, None, &mut self.outlets[home])
            .expect("there is room");
    }

    /// Delivers one message that a worker has sent. Returns `false` if there is none.
    pub(crate) fn carry(&mut self, from: usize) -> bool {
        let Some((to, mail)) = self.outlets[from].sent.pop_front() else {
            return false;
        };
        let to = usize::from(to.0);
        let sender = WorkerId(from as u16);
        self.hubs[to].receive(sender, mail, &mut self.outlets[to]);
        true
    }

    /// Makes the engine of a worker deliver one report in flight. Returns `false` if there is none.
    pub(crate) fn report(&mut self, worker: usize) -> bool {
        let has_arrived = self.hubs[worker].engine().arrive();
        self.take_reports(worker);
        has_arrived
    }

    /// Takes reports, and checks that a session gets nothing in the same call after its subscription is confirmed.
    fn take_reports(&mut self, worker: usize) {
        loop {
            let outlet = &mut self.outlets[worker];
            let before: BTreeMap<u32, usize> = outlet
                .received
                .iter()
                .map(|(index, received)| (*index, received.len()))
                .collect();
            let is_early = self.hubs[worker].take_reports(outlet);
            for (index, received) in &outlet.received {
                let new = &received[before.get(index).copied().unwrap_or(0)..];
                let joined = new
                    .iter()
                    .position(|one| matches!(one, ReceivedEvent::Joined(_)));
                assert!(
                    joined.is_none_or(|place| place + 1 == new.len()),
                    "{index} hears more before it knows what it has joined: {new:?}"
                );
            }
            if !is_early {
                return;
            }
        }
    }

    /// Delivers all messages and reports in flight, and checks that nothing is pending afterwards.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut is_quiet = true;
            for worker in 0..2 {
                while self.carry(worker) {
                    is_quiet = false;
                }
                while self.report(worker) {
                    is_quiet = false;
                }
                let outlet = &mut self.outlets[worker];
                while self.hubs[worker].sweep(1_000, outlet) {}
            }
            if is_quiet {
                break;
            }
        }
        for hub in &self.hubs {
            let under_way: Vec<_> = hub.pending_work().collect();
            assert!(under_way.is_empty(), "stuck: {under_way:?}");
        }
    }

    pub(crate) fn received(&self, index: u32) -> &[ReceivedEvent] {
        let received = self.outlets[index as usize % 2].received.get(&index);
        received.map_or(&[], Vec::as_slice)
    }

    /// Returns the offsets of the publications that a session has recovered or received live, and whether its recovery
    /// was complete; `None` if it did not recover.
    pub(crate) fn offsets(&self, index: u32) -> (Vec<u64>, Option<bool>) {
        let (mut offsets, mut is_whole) = (Vec::new(), None);
        for one in self.received(index) {
            match one {
                ReceivedEvent::Joined(Some(joined)) => {
                    let Some(recovered) = &joined.recovered else {
                        continue;
                    };
                    is_whole = Some(recovered.is_complete);
                    let missed = recovered.publications.iter();
                    offsets.extend(missed.filter_map(|one| Some(one.position?.offset)));
                }
                ReceivedEvent::Item(offset, _) => offsets.push(*offset),
                ReceivedEvent::Joined(None) | ReceivedEvent::Failed | ReceivedEvent::Lost => {}
            }
        }
        (offsets, is_whole)
    }
}
