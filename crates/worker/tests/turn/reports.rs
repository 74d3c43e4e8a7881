//! Tests the reports of a worker to its applications and to the outside: channel events, outgoing connections, token
//! renewals, history batches, gauges.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use veche_frontends::hooks::{HookDecision, HookRequest, HookRequestId, HookTarget};
use veche_frontends::identity::token::{KeyProvider, TokenAuth, TokenSource, TokenVerifier};
use veche_frontends::identity::{
    AuthError, CertificateField, CertificateNames, CompletionSink, Identity, IdentityResult,
};
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, ClientOptions, DialCommand, DialId, ProcessServices, TransportEnd};
use veche_hub::{
    ChannelName, ConnectionId, Epoch, EventLevel, LogRecord, NamespaceOptions, Namespaces, Now,
    PayloadKind, PayloadRef, RestoredStream, SubscribeOptions, Ticket, WorkerId,
};
use veche_jwt::{ClaimRules, Keys};
use veche_proto::websocket::MessageLimits;
use veche_worker::{
    AppHost as _, ExternalRequest, PendingWrite, TransportCommand, TurnLimits, TurnState, Worker,
};

use crate::recorder::{Recorder, list_request};
use crate::world::apps::TestApps;
use crate::world::wire::{get, handshake, text};
use crate::world::{Options, PUBLIC};
use crate::{BEGAN_MS, id};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WRITE_TIMEOUT_MS: u64 = 1000;

type Alone = Worker<Recorder, ()>;

/// Returns the only worker of a process, which is therefore the home worker of every channel.
fn alone() -> Alone {
    let mut options = Options::default();
    options.limits.write_timeout_ms = WRITE_TIMEOUT_MS;
    let mut shared = options.shared(WorkerId(0));
    shared.apps = Some(Box::new(Recorder::default()));
    let limits = TurnLimits {
        maintains: false,
        ..TurnLimits::default()
    };
    let mut worker = Worker::new(shared, limits);
    set_ms(&mut worker, BEGAN_MS);
    worker
}

fn set_ms(worker: &mut Alone, mono_ms: u64) {
    worker.set_now(Now {
        mono_ms,
        wall_ms: 1_800_000_000_000 + mono_ms,
    });
}

fn write(worker: &mut Alone) -> Vec<PendingWrite> {
    std::iter::from_fn(|| worker.poll_write()).collect()
}

fn commands(worker: &mut Alone) -> Vec<TransportCommand> {
    std::iter::from_fn(|| worker.poll_transport()).collect()
}

fn turn(worker: &mut Alone) -> (Vec<PendingWrite>, TurnState) {
    worker.finish_turn();
    let writes = write(worker);
    worker.end_turn();
    (writes, worker.state())
}

fn take<T: Default>(worker: &mut Alone, of: impl Fn(&mut Recorder) -> &mut T) -> T {
    let taken = worker.with_apps(|apps, _| std::mem::take(of(apps)));
    taken.expect("it has applications")
}

fn subscribe(worker: &mut Alone, index: u32, channel: &str) {
    let shared = worker.shared_mut();
    let channel = ChannelName::new(channel).expect("a name");
    let options = SubscribeOptions::default();
    let ticket = Ticket(index);
    let (hub, ports) = (&mut shared.hub, &mut shared.requests);
    hub.subscribe(id(index, 1), channel, ticket, &options, ports)
        .expect("a subscription");
    ports.answers.clear();
}

/// Enables channel events for the back end; a channel is reported as vacated after `leave_delay_ms`.
fn enable_channel_events(worker: &mut Alone, leave_delay_ms: u64) {
    let mut namespaces = Namespaces::new();
    let with_events = NamespaceOptions {
        event_level: EventLevel::Occupancy,
        leave_delay_ms,
        ..NamespaceOptions::default()
    };
    namespaces.insert("told", with_events);
    worker
        .shared_mut()
        .hub
        .set_history(Arc::new(namespaces), 1 << 20);
}

fn dial(token: u64) -> DialCommand {
    DialCommand {
        caller: caller(token),
        authority: "other:81".to_owned(),
        target: "/".to_owned(),
        protocols: String::new(),
        headers: Vec::new(),
        compresses: false,
        timeout_ms: 5000,
        options: ClientOptions {
            message_limits: MessageLimits {
                message_bytes_max: 1000,
                fragments_max: 10,
                inflate_ratio_max: 0,
            },
            ping_interval_ms: 0,
            pong_timeout_ms: 1000,
        },
    }
}

fn caller(token: u64) -> DialId {
    let app = AppId(0);
    DialId { app, token }
}

#[test]
fn applications_need_neither_messages_nor_events_nor_an_end() {
    let mut apps = TestApps(Rc::default());
    assert_eq!(TestApps::requesting_app(id(0, 1)), None);
    assert!(!apps.has_messages() && apps.has_stopped());
    assert!(!apps.handle_channel_event(&[], 1), "no work");
}

#[test]
fn events_of_channels_go_to_applications_and_to_the_back_end() {
    let mut worker = alone();
    enable_channel_events(&mut worker, 0);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    assert_eq!(take(&mut worker, |apps| &mut apps.happened), [], "no event");
    subscribe(&mut worker, 1, "told:a");
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    assert_eq!(take(&mut worker, |apps| &mut apps.happened), [(1, 0)]);
    let (events, lost) = worker.poll_channel_events();
    let channels: Vec<_> = events.drain(..).map(|event| event.channel).collect();
    assert_eq!((channels, lost), (vec!["told:a".into()], 0));
    // An application that has work because of the events gets another turn at once.
    worker.with_apps(|apps, _| apps.has_work = true);
    subscribe(&mut worker, 2, "told:b");
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    worker.poll_channel_events().0.clear();
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
}

#[test]
fn events_that_found_no_room_are_counted() {
    const EVENTS_MAX: u32 = 65_536;
    let mut worker = alone();
    enable_channel_events(&mut worker, 0);
    for number in 0..EVENTS_MAX + 3 {
        subscribe(&mut worker, number % 1000, &format!("told:{number}"));
    }
    turn(&mut worker);
    let taken = take(&mut worker, |apps| &mut apps.happened);
    assert_eq!(taken, [(EVENTS_MAX as usize, 3)]);
    let (events, lost) = worker.poll_channel_events();
    assert_eq!((events.len(), lost), (EVENTS_MAX as usize, 3));
    events.clear();
    turn(&mut worker);
    assert_eq!(
        worker.poll_channel_events().1,
        0,
        "lost events are reported once"
    );
}

#[test]
fn what_maintenance_has_to_tell_takes_another_turn() {
    let mut worker = alone();
    worker.set_limits(TurnLimits::default());
    enable_channel_events(&mut worker, 500);
    subscribe(&mut worker, 1, "told:a");
    turn(&mut worker);
    worker.poll_channel_events().0.clear();
    let shared = worker.shared_mut();
    shared.hub.close(id(1, 1), &mut shared.requests);
    set_ms(&mut worker, BEGAN_MS + 999);
    assert_ne!(turn(&mut worker).1, TurnState::Busy);
    set_ms(&mut worker, BEGAN_MS + 1000);
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    assert_ne!(turn(&mut worker).1, TurnState::Busy);
    assert_eq!(worker.poll_channel_events().0.len(), 1, "it is vacant");
}

#[test]
fn what_only_the_log_is_to_hear_waits_for_maintenance() {
    let mut worker = alone();
    worker.shared_mut().hub.enable_log();
    let forget = |worker: &mut Alone| {
        let restored = RestoredStream {
            channel: "nothing".into(),
            epoch: Epoch::from_bits(1),
            top: 1,
            version: None,
            publications: Vec::new(),
        };
        let is_kept = worker.shared_mut().hub.restore(restored);
        assert_eq!(is_kept, Ok(false), "its channel remembers nothing");
    };
    let taken = |worker: &mut Alone| {
        worker.finish_turn();
        let batch = worker.poll_history();
        worker.end_turn();
        batch.map(|batch| batch.records)
    };
    forget(&mut worker);
    assert_eq!(taken(&mut worker), None, "it does not maintain");
    worker.set_limits(TurnLimits::default());
    let dropped = LogRecord::Dropped {
        channel: "nothing".into(),
    };
    assert_eq!(taken(&mut worker), Some(vec![dropped.clone()]));
    forget(&mut worker);
    set_ms(&mut worker, BEGAN_MS + 999);
    assert_eq!(taken(&mut worker), None);
    set_ms(&mut worker, BEGAN_MS + 1000);
    assert_eq!(taken(&mut worker), Some(vec![dropped]));
}

#[test]
fn an_application_that_asks_after_an_answer_is_not_kept_waiting() {
    let mut worker = alone();
    worker.with_apps(|apps, _| apps.asks_again = true);
    worker
        .shared_mut()
        .requests
        .list_requests
        .push(list_request(1));
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    assert!(worker.shared().requests.list_requests.is_empty());
}

#[test]
fn renewals_are_answered_also_where_the_session_is_gone() {
    let mut worker = alone();
    worker.shared_mut().requests.renewals.push(TokenRenewal {
        session: id(3, 1),
        credential: "a token".to_owned(),
        app: AppId(0),
        ticket: 1,
    });
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    let renewed = take(&mut worker, |apps| &mut apps.renewed);
    assert_eq!(renewed.len(), 1);
    assert!(renewed[0].is_err());
}

#[test]
fn a_failed_dial_is_reported_to_its_application() {
    let mut worker = alone();
    let failed = |worker: &mut Alone| take(worker, |apps| &mut apps.failed);
    worker.handle_dial_failed(caller(1), "no such name");
    assert_eq!(failed(&mut worker), [(1, "no such name".to_owned())]);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));

    for token in 2..6 {
        let id = id(token as u32, 1);
        worker.handle_dialed(id, PEER, dial(token), ());
    }
    assert_eq!(worker.connections(), 4);
    assert_eq!(worker.shared().stats.connections.read(), 0, "no clients");
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes.len(), 4, "each has a request");
    worker.hang_up(caller(3));
    assert_eq!(
        failed(&mut worker),
        [(
            3,
            "the application no longer needs the connection".to_owned()
        )]
    );
    worker.handle_late(id(4, 1), "too late");
    assert_eq!(failed(&mut worker), [(4, "too late".to_owned())]);
    let (writes, _) = turn(&mut worker);
    let ends: Vec<_> = writes.iter().map(|write| (write.id, write.end)).collect();
    assert_eq!(
        ends,
        [
            (id(3, 1), TransportEnd::Abort),
            (id(4, 1), TransportEnd::Abort)
        ]
    );
    worker.handle_closed(id(5, 1), Some("reset"));
    assert_eq!(failed(&mut worker), [(5, "reset".to_owned())]);
    worker.hang_up(caller(9));
    assert_eq!(failed(&mut worker), [], "there is none");
}

#[test]
fn what_comes_after_the_steps_of_a_turn_makes_for_another() {
    let cases: [fn(&mut Alone); 4] = [
        |worker| worker.handle_dialed(id(1, 1), PEER, dial(1), ()),
        |worker| worker.handle_dial_failed(caller(1), "refused"),
        |worker| worker.handle_hook_decision(id(9, 1), HookRequestId(1), HookDecision::Failed),
        |worker| worker.hang_up(caller(2)),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let mut worker = alone();
        worker.handle_dialed(id(2, 1), PEER, dial(2), ());
        assert_eq!(turn(&mut worker).1, TurnState::Idle(None), "{number}");
        worker.finish_turn();
        case(&mut worker);
        write(&mut worker);
        worker.end_turn();
        assert_eq!(worker.state(), TurnState::Busy, "{number}");
    }
}

#[test]
fn a_decision_within_a_turn_requires_another_turn() {
    let mut worker = alone();
    let peer = id(1, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    let mut request = handshake("/centrifuge/asked/websocket", "").into_bytes();
    worker.handle_received(peer, &mut request);
    worker.handle_received(peer, &mut text(r#"{"id":1,"connect":{}}"#));
    turn(&mut worker);
    let Some(ExternalRequest::Hook(hook_request)) = worker.poll_request() else {
        panic!("the back end is asked");
    };
    let (session, number) = (hook_request.session, hook_request.id);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    // An application may have published or begun work when it received a hook request, so another turn follows at once.
    let target = HookTarget::App {
        app: AppId(0),
        timeout_ms: 0,
    };
    let asked = HookRequest {
        target,
        ..hook_request
    };
    worker.shared_mut().requests.hook_requests.push_back(asked);
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    assert_eq!(take(&mut worker, |apps| &mut apps.decided), 1);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    // A session that continues after a hook decision may have begun work, so another turn follows at once.
    let decision = (session, number, HookDecision::Failed);
    worker
        .shared_mut()
        .requests
        .hook_decisions
        .push_back(decision);
    let (writes, state) = turn(&mut worker);
    assert_eq!((writes.len(), state), (1, TurnState::Busy));
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
}

/// A process in which one IP address has reached its connection limit.
struct Crowded(IpAddr);

impl ProcessServices for Crowded {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        unreachable!()
    }

    fn address_opened(&self, address: IpAddr) -> bool {
        address != self.0
    }

    fn log_error(&self, _: &str) {
        unreachable!()
    }

    fn nodes(&self) -> String {
        unreachable!()
    }
}

#[test]
fn a_client_behind_a_proxy_is_counted_and_named_as_itself() {
    let mut worker = alone();
    let [full, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
    worker.shared_mut().process = Arc::new(Crowded(full));
    let [first, second] = [id(0, 1), id(1, 1)];
    for id in [first, second] {
        worker.handle_accepted(id, PUBLIC, PEER, ());
    }
    assert!(!worker.count_address(first, full));
    assert!(worker.count_address(second, other));
    assert!(
        worker.count_address(id(2, 1), full),
        "there is no such connection"
    );
    worker.reject(first, b"too many");
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes.len(), 1);
    assert_eq!(
        (&writes[0].bytes[..], writes[0].end),
        (&b"too many"[..], TransportEnd::Shutdown)
    );
    worker.handle_proxy_header(second, full);
    let closed = worker.handle_closed(second, None).expect("it is there");
    assert_eq!(closed.peer, full);
}

#[test]
fn gauges_count_users_and_channels_apart() {
    let mut worker = alone();
    subscribe(&mut worker, 1, "#ann");
    subscribe(&mut worker, 1, "news");
    subscribe(&mut worker, 2, "news");
    subscribe(&mut worker, 2, "#bob");
    subscribe(&mut worker, 2, "room:1");
    turn(&mut worker);
    let stats = &worker.shared().stats;
    assert_eq!((stats.users.read(), stats.channels.read()), (2, 2));
    assert_eq!(stats.subscriptions.read(), 5);
}

#[test]
fn messages_that_leave_are_counted() {
    let mut worker = alone();
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    let mut request = handshake("/echo", "").into_bytes();
    worker.handle_received(peer, &mut request);
    turn(&mut worker);
    assert_eq!(worker.shared().stats.messages_sent.read(), 0);
    worker.handle_received(peer, &mut text("hello"));
    turn(&mut worker);
    let stats = &worker.shared().stats;
    let sent = (stats.messages_sent.read(), stats.message_bytes_sent.read());
    assert_eq!(sent, (1, 5));
}

#[test]
fn nothing_leaves_before_the_turn_is_finished() {
    let mut worker = alone();
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    worker.handle_received(peer, &mut get("/nothing").into_bytes());
    assert!(write(&mut worker).is_empty());
    assert_eq!(turn(&mut worker).0.len(), 1);
    assert!(write(&mut worker).is_empty());
}

#[test]
fn sent_buffers_are_reused() {
    let mut worker = alone();
    assert_eq!(worker.spare_buffer().capacity(), 0);
    worker.recycle(Vec::with_capacity(5000));
    let spare = worker.spare_buffer();
    assert!(spare.is_empty() && spare.capacity() >= 5000);
}

#[test]
fn a_stalled_connection_is_looked_at_when_its_time_is_over_and_not_before() {
    let mut worker = alone();
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    commands(&mut worker);
    worker.handle_stalled(peer, 100);
    let due = TransportCommand::SetTimer(peer, BEGAN_MS + WRITE_TIMEOUT_MS);
    assert_eq!(commands(&mut worker), [due]);
    set_ms(&mut worker, BEGAN_MS + 500);
    worker.handle_stalled(peer, 200);
    assert_eq!(commands(&mut worker), [], "it stalls since then already");
    // A timer that fires early is set again for the deadline.
    worker.handle_timeout(peer);
    assert_eq!(commands(&mut worker).last(), Some(&due));
    worker.arm(peer, BEGAN_MS + WRITE_TIMEOUT_MS);
    assert_eq!(commands(&mut worker), [], "it is set already");
}

#[test]
fn sent_output_resumes_only_a_waiting_connection() {
    let mut worker = alone();
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    turn(&mut worker);
    worker.handle_sent(peer, 0);
    worker.end_turn();
    assert_eq!(worker.state(), TurnState::Idle(None));
}

#[test]
fn a_transport_closes_when_both_ends_are_done_and_nothing_is_unsent() {
    let mut worker = alone();
    let peer = id(0, 1);
    let close = TransportCommand::Close(peer);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    worker.reject(peer, b"go");
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes[0].end, TransportEnd::Shutdown);
    worker.handle_sent(peer, 0);
    assert!(!commands(&mut worker).contains(&close), "the peer may send");
    assert!(!worker.has_ended(peer));
    worker.handle_ended(peer);
    commands(&mut worker);
    assert!(worker.has_ended(peer));
    worker.handle_shut_down(peer, 1);
    assert!(!commands(&mut worker).contains(&close), "bytes are unsent");
    worker.handle_shut_down(peer, 0);
    assert_eq!(commands(&mut worker), [close]);
}

#[test]
fn a_configuration_takes_the_place_of_another() {
    let mut worker = alone();
    let site = Options::default().shared(WorkerId(0)).config;
    worker.set_config(Arc::clone(&site), 4096);
    assert!(Arc::ptr_eq(&worker.shared().config, &site));
}

#[test]
fn a_worker_knows_its_number_and_how_many_there_are() {
    let options = Options {
        workers: 3,
        ..Options::default()
    };
    for number in 0..3 {
        let shared = options.shared(WorkerId(number));
        let worker: Alone = Worker::new(shared, TurnLimits::default());
        assert_eq!((worker.index(), worker.workers()), (number.into(), 3));
    }
}

/// A key provider whose keys are always still being fetched, so that authentication has to wait.
#[derive(Debug)]
struct Asked;

impl KeyProvider for Asked {
    fn keys(&self) -> Option<Arc<Keys>> {
        None
    }

    fn fetch(&self, _: ConnectionId, _: &Arc<dyn CompletionSink>, _: Option<&Arc<Keys>>) -> bool {
        true
    }
}

/// Returns a worker whose route `/header` identifies users in the given way.
fn knows_by(identity: Identity) -> Alone {
    let mut shared = Options::default().shared(WorkerId(0));
    let site = Arc::get_mut(&mut shared.config).expect("its only owner");
    let routes = &mut site.routes;
    let header = routes.iter_mut().find(|route| route.path == "/header");
    let header = Arc::get_mut(header.expect("a route")).expect("its only owner");
    header.identity = identity;
    Worker::new(shared, TurnLimits::default())
}

fn status(writes: &[PendingWrite]) -> Option<&str> {
    let head = std::str::from_utf8(&writes.first()?.bytes).expect("UTF-8");
    head.split(' ').nth(1)
}

#[test]
fn a_connection_waits_for_its_identity_and_continues() {
    let verifier = TokenVerifier {
        rules: ClaimRules::default(),
        keys: Arc::new(Asked),
    };
    let tokens = TokenAuth::new(vec![TokenSource::Query("token".into())], verifier);
    let mut worker = knows_by(Identity::Token(Arc::new(tokens)));
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    let token = "eyJhbGciOiJIUzI1NiJ9.e30.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let mut request = handshake(&format!("/header?token={token}"), "").into_bytes();
    worker.handle_received(peer, &mut request);
    assert_eq!(status(&turn(&mut worker).0), None, "it waits");
    worker.handle_identity(peer, IdentityResult::Failed(AuthError::ForbiddenByHook));
    assert_eq!(status(&turn(&mut worker).0), Some("403"));
}

#[test]
fn a_user_is_known_by_the_certificate_that_was_shown() {
    let mut worker = knows_by(Identity::Certificate(CertificateField::CommonName));
    let certificate_names = CertificateNames {
        common_name: Some("ann".to_owned()),
        ..CertificateNames::default()
    };
    for (index, certificate_names, expected) in
        [(0, None, "401"), (1, Some(certificate_names), "101")]
    {
        let peer = id(index, 1);
        worker.handle_accepted(peer, PUBLIC, PEER, ());
        if let Some(certificate_names) = certificate_names {
            worker.handle_certificate(peer, certificate_names);
        }
        worker.handle_received(peer, &mut handshake("/header", "").into_bytes());
        assert_eq!(status(&turn(&mut worker).0), Some(expected));
    }
}

#[test]
fn a_client_that_cannot_be_sent_all_of_it_is_closed() {
    let options = Options {
        outbox_bytes: 4096,
        ..Options::default()
    };
    let mut worker = Alone::new(options.shared(WorkerId(0)), TurnLimits::default());
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    let mut request = handshake("/ws?user=ann", "").into_bytes();
    worker.handle_received(peer, &mut request);
    turn(&mut worker);
    worker.handle_stalled(peer, 100);
    let shared = worker.shared_mut();
    let channel = ChannelName::new("#ann").expect("a name");
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: &[b'x'; 1000],
    };
    for _ in 0..10 {
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let published = hub.publish(None, channel, payload, None, ports);
        published.expect("it is taken");
    }
    turn(&mut worker);
    assert_eq!(worker.shared().stats.slow_consumers.read(), 1);
}

#[test]
fn the_close_timeout_begins_with_the_last_byte() {
    let mut worker = alone();
    let close_timeout_ms = worker.shared().config.limits.close_timeout_ms;
    let peer = id(0, 1);
    worker.handle_accepted(peer, PUBLIC, PEER, ());
    worker.reject(peer, b"go");
    turn(&mut worker);
    let due_ms = |worker: &Alone| worker.connection(peer).expect("it is there").deadline_ms();
    for (ms, unsent, expected) in [(10, 1, 0), (20, 0, 20)] {
        set_ms(&mut worker, BEGAN_MS + ms);
        worker.handle_sent(peer, unsent);
        assert_eq!(due_ms(&worker), BEGAN_MS + expected + close_timeout_ms);
    }
}
