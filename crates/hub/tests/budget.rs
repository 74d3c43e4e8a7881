//! Tests history budgets in bytes, including changes of the budgets by a new configuration.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Budget, Caller, ChannelQuery, ClientInfo, ConnectionId, Delivery, Epoch, FeedEvent,
    HistoryOptions, HistoryQuery, Hub, HubMessage, HubMessageClass, HubReply, NamespaceOptions,
    Namespaces, Now, Options, Outlet, Payload, PayloadKind, PayloadRef, Position, Publication,
    PublicationInfo, PublishOptions, RecoveryMode, RequestOutcome, RestoredStream, Since,
    SubscribeOptions, Ticket, UserCommand, WorkerId,
};

use common::{name, session, subscribe};

/// An outlet that records the last reply.
#[derive(Default)]
struct Last(Option<HubReply>);

impl Outlet for Last {
    fn send_message(&mut self, _: WorkerId, _: HubMessage) {}
    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }
    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
    fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {}
    fn send_reply(&mut self, _: ConnectionId, _: Ticket, answer: HubReply) {
        self.0 = Some(answer);
    }
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

fn remembering() -> Arc<Namespaces> {
    namespaces(None)
}

/// Returns namespaces in which all channels have history. The namespace `own` has a budget of `own` bytes, if not
/// `None`.
fn namespaces(own: Option<usize>) -> Arc<Namespaces> {
    let mut namespaces = Namespaces::new();
    let own = own.map(|bytes| namespaces.add_budget("own", bytes));
    for (name, budget) in [("", None), ("own", own)] {
        let history = Some(HistoryOptions {
            size: 10_000,
            ttl_ms: 1_000_000,
            position_ttl_ms: 2_000_000,
            recovery: RecoveryMode::Missed,
            budget: budget.unwrap_or(Budget::COMMON),
        });
        let options = NamespaceOptions {
            history,
            ..NamespaceOptions::default()
        };
        namespaces.insert(name, options);
    }
    Arc::new(namespaces)
}

fn hub(bytes_max: usize) -> Hub {
    let mut hub = Hub::new(WorkerId(0), 1, 7, Options::default());
    hub.set_history(remembering(), bytes_max);
    hub
}

fn publish(hub: &mut Hub, channel: &str, bytes: &[u8]) {
    let payload = PayloadRef {
        kind: PayloadKind::Binary,
        bytes,
    };
    let outcome = hub.publish(None, name(channel), payload, None, &mut Last::default());
    assert!(matches!(outcome, Ok(RequestOutcome::Done(_))));
}

fn info_of(user: &str) -> Arc<PublicationInfo> {
    let client = ClientInfo {
        user: user.into(),
        client: "c".into(),
        conn_info: None,
        chan_info: None,
    };
    Arc::new(PublicationInfo {
        client: Some(Arc::new(client)),
        ..PublicationInfo::default()
    })
}

/// Publishes as a client of the given user.
fn publish_as(hub: &mut Hub, user: &str, channel: &str, bytes: &[u8]) {
    let payload = PayloadRef {
        kind: PayloadKind::Binary,
        bytes,
    };
    let terms = Arc::new(PublishOptions {
        info: Some(info_of(user)),
        ..PublishOptions::default()
    });
    let terms = Some(&terms);
    let outcome = hub.publish(None, name(channel), payload, terms, &mut Last::default());
    assert!(matches!(outcome, Ok(RequestOutcome::Done(_))));
}

/// Subscribes session `index`. Returns the position at which the session joins and, if `since` is set, whether recovery
/// was complete and how many publications were recovered.
fn join(
    hub: &mut Hub,
    index: u32,
    channel: &str,
    since: Option<Since>,
) -> (Since, Option<(bool, usize)>) {
    let subscribe_options = SubscribeOptions {
        since: since.map(|since| Arc::from([since])),
        ..SubscribeOptions::default()
    };
    let mut last = Last::default();
    let result = subscribe(
        hub,
        session(index),
        name(channel),
        Ticket(0),
        &subscribe_options,
        &mut last,
    );
    result.expect("there is room");
    let Some(HubReply::Subscribed(Some(joined))) = last.0 else {
        panic!("{:?}", last.0);
    };
    let recovered = joined.recovered;
    let recovered = recovered.map(|one| (one.is_complete, one.publications.len()));
    (joined.position.into(), recovered)
}

#[test]
fn no_budget_is_too_small_to_go_on() {
    for bytes_max in [0, 1, 1_000, 20_000, 200_000] {
        let mut hub = hub(bytes_max);
        let mut random = fastrand::Rng::with_seed(bytes_max as u64);
        let data = [7; 2_000];
        let mut base = 0;
        for step in 0..20_000u64 {
            let channel = format!("channel-{}", random.u32(..200));
            let index = random.u32(..100);
            hub.set_now(Now {
                mono_ms: step,
                wall_ms: step,
            });
            match random.u8(..10) {
                0..5 => publish(&mut hub, &channel, &data[..random.usize(..2_000)]),
                5..7 => {
                    let _ = subscribe(
                        &mut hub,
                        session(index),
                        name(&channel),
                        Ticket(0),
                        &SubscribeOptions::default(),
                        &mut Last::default(),
                    );
                }
                7 => drop(hub.unsubscribe(session(index), name(&channel), &mut Last::default())),
                8 => {
                    let caller = (session(index), Ticket(0));
                    let all = HistoryQuery {
                        limit: usize::MAX,
                        ..HistoryQuery::default()
                    };
                    let asked = ChannelQuery::History(all);
                    hub.query(caller, name(&channel), asked, &mut Last::default());
                }
                _ => hub.maintain(),
            }
            // A stream in use is kept even without publications. Only the number of subscriptions
            // limits the number of such streams, so their size is added to the limit.
            base = base.max(hub.gauges().streams as usize * 300);
            let bytes = hub.gauges().history_bytes as usize;
            assert!(bytes <= bytes_max + base, "{bytes} of {bytes_max}");
        }
    }
}

/// Returns the number of stored publications of a channel.
fn kept(hub: &mut Hub, channel: &str) -> usize {
    let caller = (session(0), Ticket(0));
    let all = HistoryQuery {
        limit: usize::MAX,
        ..HistoryQuery::default()
    };
    let asked = ChannelQuery::History(all);
    match hub.query(caller, name(channel), asked, &mut Last::default()) {
        RequestOutcome::Done(HubReply::History(Ok(page))) => page.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flood_evicts_the_flooder() {
    let mut hub = hub(1 << 20);
    for number in 0..20 {
        publish_as(&mut hub, "ann", "dialog", &[0; 1_000]);
        publish(&mut hub, &format!("news-{number}"), &[0; 1_000]);
    }
    for number in 0..5_000 {
        let channel = format!("junk-{}", number % 100);
        publish_as(&mut hub, "mallory", &channel, &[0; 1_000]);
    }
    let news: usize = (0..20)
        .map(|number| kept(&mut hub, &format!("news-{number}")))
        .sum();
    assert_eq!((kept(&mut hub, "dialog"), news), (20, 20));
    assert!(hub.evicted_total() > 4_000);
}

/// Publishes an empty message of the same user to each of `count` channels.
fn scatter(hub: &mut Hub, count: usize) {
    for number in 0..count {
        publish_as(hub, "mallory", &format!("tiny-{number}"), b"");
    }
}

#[test]
fn a_large_publication_evicts_as_many_small_streams_as_it_takes() {
    let bytes_max = 4 << 20;
    let mut hub = hub(bytes_max);
    scatter(&mut hub, 12_000);
    for number in 0..20 {
        publish(&mut hub, "large", &vec![0; 200_000]);
        let (_, bytes, _) = hub.budgets().next().expect("the common one");
        assert!(bytes <= bytes_max, "{bytes} after {number}");
    }
    assert!(kept(&mut hub, "large") > 10);
}

#[test]
fn a_budget_that_was_lowered_is_kept_to_within_a_pass() {
    let mut hub = hub(16 << 20);
    scatter(&mut hub, 30_000);
    let bytes_max = 1 << 20;
    hub.set_history(remembering(), bytes_max);
    (0..30).for_each(|_| hub.maintain());
    let (_, bytes, _) = hub.budgets().next().expect("the common one");
    assert!(bytes <= bytes_max, "{bytes}");
}

#[test]
fn budgets_of_namespaces_are_kept_apart_and_changed_while_running() {
    let mut hub = hub(1 << 20);
    let flood = |hub: &mut Hub, namespace: &str| {
        for number in 0..3_000 {
            let channel = format!("{namespace}junk-{}", number % 100);
            publish(hub, &channel, &[0; 1_000]);
        }
    };
    let pass = |hub: &mut Hub| (0..30).for_each(|_| hub.maintain());
    (0..100).for_each(|_| publish(&mut hub, "own:1", &[0; 1_000]));
    hub.set_history(namespaces(Some(1 << 18)), 1 << 20);
    pass(&mut hub);
    flood(&mut hub, "");
    assert_eq!(kept(&mut hub, "own:1"), 100);
    let before = hub.evicted_total();
    let others = (0..100)
        .map(|number| kept(&mut hub, &format!("junk-{number}")))
        .sum::<usize>();
    assert!(others > 500, "{others}");
    flood(&mut hub, "own:");
    assert!(hub.evicted_total() > before + 2_000);
    let still = (0..100)
        .map(|number| kept(&mut hub, &format!("junk-{number}")))
        .sum::<usize>();
    assert_eq!(still, others);
    let of_own = hub.budgets().find(|(name, ..)| *name == Some("own"));
    let (_, bytes, bytes_max) = of_own.expect("it has one");
    assert!(bytes <= bytes_max && bytes > bytes_max / 2, "{bytes}");
    // Once the namespace has no budget of its own, its channels use the common budget. The new
    // configuration alone evicts nothing.
    let (held, evicted) = (hub.gauges().history_bytes, hub.evicted_total());
    hub.set_history(remembering(), 1 << 20);
    pass(&mut hub);
    assert_eq!(hub.budgets().count(), 1);
    assert_eq!(hub.evicted_total(), evicted);
    assert!(hub.gauges().history_bytes <= held);
    (0..10).for_each(|_| flood(&mut hub, ""));
    let more = (0..100)
        .map(|number| kept(&mut hub, &format!("junk-{number}")))
        .sum::<usize>();
    assert!(more > others, "{more}");
    let (_, bytes, bytes_max) = hub.budgets().next().expect("the common one");
    assert!(bytes <= bytes_max, "{bytes}");
}

#[test]
fn accounts_are_restored_from_a_log() {
    const EACH: u64 = 20;
    let restored = |channel: &str, user: &str| {
        let epoch = Epoch::from_bits(1);
        let publication = |offset| Publication {
            payload: Payload {
                kind: PayloadKind::Binary,
                bytes: Bytes::from(vec![0; 1_000]),
            },
            position: Some(Position { epoch, offset }),
            at_ms: 0,
            event: FeedEvent::Published,
            info: Some(info_of(user)),
        };
        RestoredStream {
            channel: channel.into(),
            epoch,
            top: EACH,
            version: None,
            publications: (1..=EACH).map(publication).collect(),
        }
    };
    let mut hub = Hub::new(WorkerId(0), 1, 7, Options::default());
    hub.set_history(namespaces(Some(100_000)), 300_000);
    hub.enable_log();
    assert_eq!(hub.restore(restored("dialog", "ann")), Ok(true));
    assert_eq!(hub.restore(restored("own:1", "ann")), Ok(true));
    for number in 0..50 {
        let channel = format!("junk-{number}");
        assert_eq!(hub.restore(restored(&channel, "mallory")), Ok(true));
    }
    assert_eq!(
        (kept(&mut hub, "dialog"), kept(&mut hub, "own:1")),
        (20, 20)
    );
    assert!(hub.evicted_total() > 500);
    assert!(
        hub.budgets()
            .all(|(_, bytes, bytes_max)| bytes <= bytes_max)
    );
}

#[test]
fn subscriptions_cost_no_publication() {
    let mut hub = hub(1 << 20);
    for number in 0..200 {
        publish(&mut hub, &format!("kept-{number}"), &[0; 1_000]);
    }
    for index in 0..10_240 {
        let channel = format!("silent-{index}");
        join(&mut hub, index, &channel, None);
        if index % 100 == 0 {
            hub.maintain();
        }
    }
    // Streams of channels that have lost their subscribers must not displace stored publications.
    for index in 0..5_000 {
        let channel = format!("silent-{index}");
        hub.unsubscribe(session(index), name(&channel), &mut Last::default());
    }
    for number in 0..10_240 {
        kept(&mut hub, &format!("asked-{number}"));
    }
    hub.maintain();
    let left: usize = (0..200)
        .map(|number| kept(&mut hub, &format!("kept-{number}")))
        .sum();
    assert_eq!((left, hub.evicted_total()), (200, 0));
}

#[test]
fn silent_channels_without_subscribers_have_a_bound_of_their_own() {
    let mut hub = hub(1 << 20);
    publish(&mut hub, "kept", &[0; 1_000]);
    let held = hub.gauges().history_bytes;
    for number in 0..20_000 {
        kept(&mut hub, &format!("asked-{number}"));
        let silent = hub.gauges().history_bytes - held;
        assert!(silent <= (1 << 18) + 400, "{silent} after {number}");
    }
    assert_eq!(kept(&mut hub, "kept"), 1);
    // The stream of a channel with a subscriber is not closed, so the channel keeps its position.
    let (position, _) = join(&mut hub, 0, "used", None);
    for number in 0..20_000 {
        kept(&mut hub, &format!("asked-{number}"));
    }
    let (_, recovered) = join(&mut hub, 1, "used", Some(position));
    assert_eq!(recovered, Some((true, 0)));
}

#[test]
fn empty_channels_in_use_do_not_block_eviction() {
    let mut hub = hub(1 << 20);
    for index in 0..5_000 {
        join(&mut hub, index, &format!("silent-{index}"), None);
    }
    let base = hub.gauges().history_bytes;
    for number in 0..20_000 {
        publish(&mut hub, &format!("loud-{}", number % 50), &[0; 1_000]);
    }
    let bytes = hub.gauges().history_bytes;
    let most = base + (1 << 20);
    assert!(bytes <= most, "{bytes}, {base} before");
    assert!(hub.evicted_total() > 0);
}

#[test]
fn a_channel_that_did_not_remember_for_a_while_begins_again() {
    let mut hub = hub(1 << 20);
    let (start, _) = join(&mut hub, 0, "news", None);
    publish(&mut hub, "news", b"one");
    hub.set_history(Arc::default(), 1 << 20);
    publish(&mut hub, "news", b"without a number");
    hub.set_history(remembering(), 1 << 20);
    let known = Since { offset: 1, ..start };
    let (position, recovered) = join(&mut hub, 1, "news", Some(known));
    assert_eq!(recovered, Some((false, 0)));
    assert_ne!(position.epoch, start.epoch);
    // If nothing was published while the channel had no history, a subscriber has missed nothing.
    publish(&mut hub, "news", b"two");
    hub.set_history(Arc::default(), 1 << 20);
    hub.set_history(remembering(), 1 << 20);
    let (_, recovered) = join(&mut hub, 2, "news", Some(position));
    assert_eq!(recovered, Some((true, 1)));
}

#[test]
fn epochs_say_nothing_of_the_seed_of_names() {
    let epoch = |seed, epoch_seed| {
        let options = Options {
            epoch_seed,
            ..Options::default()
        };
        let mut hub = Hub::new(WorkerId(0), 1, seed, options);
        hub.set_history(remembering(), 1 << 20);
        join(&mut hub, 0, "news", None).0.epoch
    };
    assert_eq!(epoch(1, 5), epoch(2, 5));
    assert_ne!(epoch(1, 5), epoch(1, 6));
}
