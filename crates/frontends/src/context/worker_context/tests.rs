//! Tests of credit, log messages, and the limit on connections per user.

use std::net::IpAddr;
use std::sync::RwLock;

use veche_hub::{Options, Ticket};
use veche_types::codes::CloseCode;

use super::*;
use crate::context::admin_view::AdminView;
use crate::context::frontend_config::ConnectionLimits;
use crate::context::issued_token::{Ban, BanError, IssuedToken};
use crate::context::publish_limiter::PublishLimiter;
use crate::http::static_files::{ContentCoding, File, OpenError, OpenResult};

struct NoFiles;

impl Files for NoFiles {
    fn open(&mut self, _: &std::path::Path, _: &str, _: u64) -> Result<OpenResult, OpenError> {
        Err(OpenError::NotFound)
    }

    fn open_variant(
        &mut self,
        _: &std::path::Path,
        _: &str,
        _: ContentCoding,
        _: u64,
    ) -> Result<Option<File>, OpenError> {
        Ok(None)
    }
}

/// Implements only the required methods of [`ProcessServices`].
struct Bare;

impl ProcessServices for Bare {
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

/// Accepts any number of sessions of every user except `crowd`, and records which users opened and
/// closed a session.
#[derive(Default)]
struct Counting(RwLock<Vec<String>>);

impl ProcessServices for Counting {
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

    fn user_opened(&self, user: &str, max: u32) -> bool {
        let mut all = self.0.write().expect("one thread");
        all.push(format!("{user} of {max}"));
        user != "crowd"
    }

    fn user_closed(&self, user: &str) {
        let mut all = self.0.write().expect("one thread");
        all.push(format!("{user} gone"));
    }

    fn is_banned(&self, user: &str, now_s: u64) -> bool {
        user == "blocked" && now_s == 1_700_000_000
    }

    fn is_disconnected_since(&self, user: &str, endings: u64, client: &str) -> bool {
        (user, endings, client) == ("ended", 3, "c")
    }
}

fn shared(process: Arc<dyn ProcessServices>, connections_per_user: u32) -> Context {
    let site = FrontendConfig {
        listeners: Vec::new(),
        routes: Vec::new(),
        limits: ConnectionLimits {
            connections_per_user,
            ..ConnectionLimits::default()
        },
        api_keys: Vec::new(),
        admin_keys: Vec::new(),
        accepts_unknown_fields: false,
        publish_rate: PublishLimiter::default(),
        namespaces: Arc::default(),
        history_bytes_max: 1 << 20,
        history_answer_max: 10_000,
    };
    Context::new(
        Hub::new(WorkerId(0), 1, 7, Options::default()),
        Requests::new(Outboxes::new(1 << 16), HubMailer::new(2, 8)),
        Arc::new(site),
        Arc::default(),
        Box::new(NoFiles),
        process,
    )
}

fn session(index: u32) -> ConnectionId {
    ConnectionId {
        index,
        generation: 1,
    }
}

fn at(mono_ms: u64) -> Now {
    Now {
        mono_ms,
        wall_ms: 1_700_000_000_000 + mono_ms,
    }
}

#[test]
fn a_process_without_opinions_lets_all_in_and_keeps_no_list() {
    let address = IpAddr::from([127, 0, 0, 1]);
    assert!(Bare.address_has_capacity(address) && Bare.address_opened(address));
    Bare.address_closed(address);
    assert!(Bare.may_begin_handshake(address, 0) && Bare.user_opened("ann", 1));
    assert_eq!(Bare.wrong_key(address, 0), 0);
    Bare.user_closed("ann");
    let issued = IssuedToken {
        user: Some("ann"),
        id: Some("1"),
        issued_at_s: Some(0),
    };
    assert!(!Bare.is_banned("ann", 0) && !Bare.is_revoked(&issued, 0));
    let block = Ban::UserAllowed { user: "ann".into() };
    assert_eq!(Bare.ban(&block, 0), Err(BanError::TooMany));
    Bare.disconnect_user("ann", &[]);
    Bare.disconnect_client("ann", "c");
    Bare.unsubscribe_user("ann", "news", None);
    assert_eq!(Bare.disconnect_count(), 0);
    assert!(!Bare.is_disconnected_since("ann", 0, ""));
    assert!(!Bare.is_unsubscribed_since("ann", "news", 0, "c"));
    assert_eq!(
        (Bare.node(), Bare.admin_view(AdminView::Figures)),
        (String::new(), "{}".to_owned())
    );
    Bare.script_failed("app", "what");
}

#[test]
fn sessions_of_a_user_count_once_each_and_only_where_there_is_a_limit() {
    let process = Arc::new(Counting::default());
    let took = |process: &Counting| std::mem::take(&mut *process.0.write().expect("one thread"));
    let mut unlimited = shared(process.clone(), 0);
    assert!(unlimited.add_user_session(session(1), "crowd"));
    unlimited.remove_user_session(session(1));
    assert_eq!(took(&process), [""; 0]);
    let mut shared = shared(process.clone(), 4);
    assert!(shared.add_user_session(session(1), "ann"));
    assert!(shared.add_user_session(session(2), "bob"));
    assert!(!shared.add_user_session(session(3), "crowd"));
    shared.remove_user_session(session(3));
    assert_eq!(took(&process), ["ann of 4", "bob of 4", "crowd of 4"]);
    // A second session with the same connection index replaces the first in the count.
    assert!(shared.add_user_session(session(1), "cid"));
    assert_eq!(took(&process), ["ann gone", "cid of 4"]);
    shared.remove_user_session(session(2));
    shared.remove_user_session(session(2));
    shared.remove_user_session(session(1));
    assert_eq!(took(&process), ["bob gone", "cid gone"]);
}

#[test]
fn blocks_and_endings_are_asked_of_the_process_by_the_wall_clock() {
    let mut shared = shared(Arc::new(Counting::default()), 0);
    shared.set_now(at(999));
    assert!(shared.is_banned("blocked") && !shared.is_banned("ann"));
    shared.set_now(at(1_000));
    assert!(!shared.is_banned("blocked"));
    assert!(shared.is_disconnected_since("ended", Some(3), "c"));
    for (user, asked, client) in [
        ("ended", None, "c"),
        ("ended", Some(2), "c"),
        ("ended", Some(3), "d"),
        ("ann", Some(3), "c"),
    ] {
        assert!(
            !shared.is_disconnected_since(user, asked, client),
            "{user} {asked:?} {client}"
        );
    }
}

#[test]
fn a_flood_of_one_kind_of_note_is_cut_and_hides_no_other() {
    let mut shared = shared(Arc::new(Bare), 0);
    shared.set_now(at(5_000));
    let flood = |shared: &mut Context, kind: &str, count: u32| {
        for number in 0..count {
            let what = format!("{kind}{number}");
            shared.log_as(kind, session(number), NoteLevel::Info, what);
        }
    };
    let whats = |shared: &mut Context| -> Vec<String> {
        let notes = std::mem::take(&mut shared.log_notes);
        notes.into_iter().map(|note| note.text).collect()
    };
    flood(&mut shared, "a", NOTES_PER_SECOND + 5);
    flood(&mut shared, "b", 2);
    let mut expected: Vec<String> = (0..NOTES_PER_SECOND).map(|n| format!("a{n}")).collect();
    expected.extend(["b0".to_owned(), "b1".to_owned()]);
    assert_eq!(whats(&mut shared), expected);
    // The number of dropped messages is reported once, in the first second in which messages of that kind are
    // permitted again.
    assert_eq!(shared.take_dropped_log_notes(), None);
    shared.set_now(at(5_999));
    assert_eq!(shared.take_dropped_log_notes(), None);
    flood(&mut shared, "a", 1);
    assert_eq!(whats(&mut shared), [""; 0]);
    shared.set_now(at(6_000));
    let last = format!("a{}", NOTES_PER_SECOND - 1);
    assert_eq!(shared.take_dropped_log_notes(), Some((6, last)));
    assert_eq!(shared.take_dropped_log_notes(), None);
    flood(&mut shared, "a", 1);
    assert_eq!(whats(&mut shared), ["a0"]);
    // A kind of log message that reached its limit without exceeding it has no drops to report.
    flood(&mut shared, "b", NOTES_PER_SECOND);
    shared.set_now(at(7_000));
    assert_eq!(shared.take_dropped_log_notes(), None);
}

#[test]
fn notes_say_whose_they_are_and_long_ones_are_cut_at_a_character() {
    let mut shared = shared(Arc::new(Bare), 0);
    let exact = "x".repeat(NOTE_BYTES_MAX);
    shared.log(session(1), NoteLevel::Warn, exact.clone());
    shared.log(session(2), NoteLevel::Info, exact.clone() + "y");
    shared.log(
        session(3),
        NoteLevel::Info,
        "x".repeat(NOTE_BYTES_MAX - 1) + "äz",
    );
    let expected = [
        (1, NoteLevel::Warn, exact.clone()),
        (2, NoteLevel::Info, exact + "…"),
        (3, NoteLevel::Info, "x".repeat(NOTE_BYTES_MAX - 1) + "…"),
    ];
    let expected = expected.map(|(index, level, what)| LogNote {
        session: session(index),
        level,
        text: what,
    });
    assert_eq!(shared.log_notes, expected);
}

#[test]
fn kinds_of_notes_are_few_and_the_same_for_the_same_words() {
    let numbers: std::collections::HashSet<u16> = (0..2_000)
        .map(|number| number_of(&format!("kind {number}")))
        .collect();
    assert_eq!(numbers.len(), usize::from(NOTE_KINDS));
    assert!(numbers.iter().all(|number| *number < NOTE_KINDS));
    assert_ne!(number_of("ab"), number_of("ba"));
    assert_eq!(number_of("ab"), number_of("ab"));
}

#[test]
fn the_date_is_written_when_the_second_changes() {
    let mut date = Date::default();
    assert_eq!(date.text(), b"Thu, 01 Jan 1970 00:00:00 GMT");
    for (wall_ms, text) in [
        (999, b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (1_000, b"Thu, 01 Jan 1970 00:00:01 GMT"),
        (1_700_000_000_999, b"Tue, 14 Nov 2023 22:13:20 GMT"),
        (1_700_000_001_000, b"Tue, 14 Nov 2023 22:13:21 GMT"),
    ] {
        date.set(wall_ms);
        assert_eq!(date.text(), text, "{wall_ms}");
    }
}

#[test]
fn a_shutdown_states_its_reason() {
    let mut shared = shared(Arc::new(Bare), 0);
    assert!(!shared.is_draining());
    assert_eq!(
        shared.shutdown_reason().close_code_and_reason(),
        CloseCode::GoingAway.parts()
    );
    shared.start_draining(ShutdownReason::Replaced);
    assert!(shared.is_draining());
    assert_eq!(
        shared.shutdown_reason().close_code_and_reason(),
        CloseCode::Restarting.parts()
    );
}

#[test]
fn a_session_is_disconnected_with_the_first_reason() {
    let mut ports = Requests::new(Outboxes::new(1 << 16), HubMailer::new(1, 8));
    assert!(!ports.is_disconnecting(session(1)));
    assert_eq!(ports.take_disconnect(session(1)), None);
    let end = |code, client: Option<&str>| {
        Arc::new(UserCommand {
            client: client.map(Into::into),
            session: None,
            except: Box::default(),
            action: UserAction::Disconnect {
                code,
                reason: "why".into(),
            },
        })
    };
    ports.execute_command(session(1), &end(4_000, None));
    ports.execute_command(session(2), &end(4_001, None));
    ports.execute_command(session(1), &end(4_002, None));
    ports.execute_command(session(3), &end(4_003, Some("c")));
    assert!(ports.is_disconnecting(session(1)) && ports.is_disconnecting(session(2)));
    assert!(
        !ports.is_disconnecting(session(3)),
        "that is for its connection to judge"
    );
    assert_eq!(ports.user_commands, [(session(3), end(4_003, Some("c")))]);
    assert_eq!(
        ports.take_disconnect(session(1)),
        Some((4_000, "why".to_owned()))
    );
    assert_eq!(
        ports.take_disconnect(session(1)),
        Some((4_002, "why".to_owned()))
    );
    assert_eq!(ports.take_disconnect(session(1)), None);
    assert!(!ports.is_disconnecting(session(1)) && ports.is_disconnecting(session(2)));
}

#[test]
fn half_of_a_lanes_credits_is_for_deliveries_alone() {
    let mut post = HubMailer::new(2, 8);
    assert_eq!(post.lanes.len(), 2);
    let to = WorkerId(1);
    let room = |post: &HubMailer| {
        [
            HubMessageClass::Control,
            HubMessageClass::Publish,
            HubMessageClass::Deliver,
        ]
        .map(|class| post.has_credit(to, class))
    };
    for (unfinished, outgoing, expected) in [
        (0, 0, [true, true, true]),
        (3, 0, [true, true, true]),
        (2, 1, [true, true, true]),
        (2, 2, [true, false, true]),
        (4, 0, [true, false, true]),
        (0, 7, [true, false, true]),
        (4, 4, [true, false, false]),
        (8, 0, [true, false, false]),
        (9, 9, [true, false, false]),
    ] {
        post.lanes[1].unfinished = unfinished;
        post.lanes[1].outgoing_data = outgoing;
        assert_eq!(room(&post), expected, "{unfinished} {outgoing}");
    }
    let mut ports = Requests::new(Outboxes::new(1 << 16), HubMailer::new(2, 8));
    ports.return_credit(WorkerId(1), HubMessageClass::Publish);
    ports.return_credit(WorkerId(1), HubMessageClass::Deliver);
    let finished: Vec<u32> = ports
        .mailer
        .lanes
        .iter()
        .map(|lane| lane.finished)
        .collect();
    assert_eq!(finished, [0, 2]);
    ports.send_reply(session(1), Ticket(5), HubReply::Subscribed(None));
    assert_eq!(ports.answers.len(), 1);
}

#[test]
fn another_configuration_is_in_force_at_once() {
    let mut shared = shared(Arc::new(Bare), 0);
    let other = self::shared(Arc::new(Bare), 5).config;
    shared.set_config(Arc::clone(&other));
    assert!(Arc::ptr_eq(&shared.config, &other));
    assert_eq!(shared.config.limits.connections_per_user, 5);
}

#[test]
fn waiting_connections_are_reported_once() {
    let mut shared = shared(Arc::new(Bare), 0);
    assert_eq!(shared.waiting_counts().count(), 0);
    let session = |index| ConnectionId {
        index,
        generation: 1,
    };
    shared.waiting_for_output.push(session(1));
    shared.waiting_for_credit.extend([session(2), session(3)]);
    let waiting: Vec<_> = shared.waiting_counts().collect();
    assert_eq!(
        waiting,
        [("waiting for output", 1), ("waiting for credit", 2)]
    );
    shared.waiting_for_output.clear();
    let waiting: Vec<_> = shared.waiting_counts().collect();
    assert_eq!(waiting, [("waiting for credit", 2)]);
}
