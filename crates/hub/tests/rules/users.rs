//! Tests users: their connections, commands for them, and the time at which they were last seen.

use std::sync::Arc;

use veche_hub::{
    Caller, ChannelQuery, CommandDispatch, HubMessage, HubReply, RequestOutcome, Ticket,
    UserAction, UserCommand, UserStatus, WorkerId,
};

use crate::common::session;
use crate::node::{FAR, NEAR, Node, START_MS};

fn status(node: &mut Node, user: &str) -> UserStatus {
    match node.ask(&format!("#{user}"), ChannelQuery::UserStatus) {
        RequestOutcome::Done(HubReply::UserStatus(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn disconnect() -> UserCommand {
    UserCommand::to_all(UserAction::Disconnect {
        code: 3000,
        reason: Arc::from("begone"),
    })
}

#[test]
fn last_seen_is_kept_for_many_users() {
    const MANY: u32 = 40_000;
    let mut node = Node::alone();
    assert_eq!(status(&mut node, "0"), UserStatus::default());
    for number in 0..MANY {
        node.at(START_MS + u64::from(number));
        node.subscribe(number, &format!("#{number}"));
        node.close(session(number));
    }
    for number in [0, 1, MANY / 2, MANY - 2, MANY - 1] {
        let expected = UserStatus {
            connections: 0,
            last_seen_ms: Some(START_MS + u64::from(number)),
        };
        assert_eq!(status(&mut node, &number.to_string()), expected, "{number}");
    }
}

#[test]
fn a_connected_user_has_no_last_seen() {
    let mut node = Node::home();
    let user = (0..).map(|number: u32| number.to_string());
    let user = user
        .clone()
        .find(|user| node.is_home_of(&format!("#{user}")));
    let user = user.expect("a quarter of them");
    let channel = format!("#{user}");
    node.subscribe(0, &channel);
    node.subscribe(1, &channel);
    node.subscribe_from(NEAR, &channel);
    assert_eq!(node.hub.gauges().users, 1);
    let there = |connections| UserStatus {
        connections,
        last_seen_ms: None,
    };
    assert_eq!(status(&mut node, &user), there(3));
    node.close(session(0));
    node.close(session(1));
    assert_eq!(status(&mut node, &user), there(1));
    assert_eq!(node.hub.gauges().users, 1);
    node.at(START_MS + 7);
    let mail = HubMessage::Unsubscribe {
        channel: Arc::from(channel.as_str()),
        client: None,
        registration: None,
    };
    node.receive(NEAR, mail);
    let gone = UserStatus {
        connections: 0,
        last_seen_ms: Some(START_MS + 7),
    };
    assert_eq!(status(&mut node, &user), gone);
    assert_eq!(node.hub.gauges().users, 0);
    node.subscribe_from(NEAR, &channel);
    assert_eq!(status(&mut node, &user), there(1));
}

#[test]
fn an_instruction_reaches_and_counts_all_connections_of_a_user() {
    let mut node = Node::home();
    let users = (0..).map(|number: u32| number.to_string());
    let is_here = |user: &String| node.is_home_of(&format!("#{user}"));
    let user = users.clone().find(is_here).expect("a quarter of them");
    let away = users.clone().find(|user| !is_here(user));
    let away = away.expect("three quarters of them");
    let channel = format!("#{user}");
    node.subscribe(0, &channel);
    node.subscribe(1, &channel);
    node.subscribe(2, "chat");
    node.subscribe_from(NEAR, &channel);
    node.subscribe_from(FAR, &channel);
    node.outlet.sent.clear();
    let from = Some((session(9), Ticket(9)));
    let outcome = node
        .hub
        .send_user_command(from, &user, disconnect(), &mut node.outlet);
    // The user has connections on three workers. Each of these workers must notify the homes on all four workers,
    // because its sessions may have been subscribed to any channel.
    let instructed = CommandDispatch {
        connections: 4,
        pending_acknowledgements: 3 * 4,
    };
    assert_eq!(outcome, Ok(RequestOutcome::Done(instructed)));
    assert_eq!(node.outlet.instructed, [session(0), session(1)]);
    let receivers = node.outlet.sent.iter().map(|(to, mail)| {
        assert!(matches!(mail, HubMessage::Command { .. }));
        *to
    });
    assert_eq!(receivers.collect::<Vec<_>>(), [NEAR, FAR]);
    let mut here: Vec<_> = node.hub.sessions_of_user(&user).collect();
    here.sort();
    assert_eq!(here, [session(0), session(1)]);
    assert_eq!(node.hub.sessions_of_user("").count(), 0);

    // If the user's home is another worker, the command is sent there.
    node.outlet.sent.clear();
    let outcome = node
        .hub
        .send_user_command(from, &away, disconnect(), &mut node.outlet);
    assert_eq!(outcome, Ok(RequestOutcome::Pending));
    assert!(matches!(
        node.outlet.sent[..],
        [(_, HubMessage::CommandUser { .. })]
    ));
    let outcome = node
        .hub
        .send_user_command(from, "", disconnect(), &mut node.outlet);
    assert!(outcome.is_err());
}

#[test]
fn a_caller_is_answered_by_the_homes_concerned_behind_all_that_sessions_have_changed() {
    let mut node = Node::home();
    let mut users = (0..).map(|number: u32| number.to_string());
    let user = users.find(|user| node.is_home_of(&format!("#{user}")));
    let user = user.expect("a quarter of them");
    node.subscribe(0, &format!("#{user}"));
    let names = (0..).map(|number: u32| format!("chat:{number}"));
    let here = names.clone().find(|name| node.is_home_of(name));
    let here: Arc<str> = here.expect("a quarter of them").into();
    let away = names.clone().find(|name| !node.is_home_of(name));
    let away: Arc<str> = away.expect("three quarters of them").into();
    let from = (session(9), Ticket(9));
    let unsubscribe = |channel: &Arc<str>| {
        let channel = Arc::clone(channel);
        UserCommand::to_all(UserAction::Unsubscribe { channel })
    };
    let refresh = |is_expired| {
        UserCommand::to_all(UserAction::Refresh {
            is_expired,
            expires_at_s: None,
            info: None,
        })
    };
    for (instruction, answers, mails) in [
        (unsubscribe(&here), 1, 0),
        (unsubscribe(&away), 0, 1),
        (refresh(false), 1, 0),
        (refresh(true), 1, 3),
        (disconnect(), 1, 3),
    ] {
        node.outlet.sent.clear();
        node.outlet.answers.clear();
        let outcome = node
            .hub
            .send_user_command(Some(from), &user, instruction, &mut node.outlet);
        let Ok(RequestOutcome::Done(instructed)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(instructed.pending_acknowledgements, answers + mails);
        assert!(
            node.outlet.answers.is_empty(),
            "its session has done nothing"
        );
        for (caller, instruction) in std::mem::take(&mut node.outlet.settling) {
            node.hub
                .acknowledge_command(caller, &instruction, &mut node.outlet);
        }
        assert_eq!(node.outlet.answers.len(), answers as usize);
        let all_settle =
            |(_, mail): &(WorkerId, HubMessage)| matches!(mail, HubMessage::Acknowledge { .. });
        assert!(node.outlet.sent.iter().all(all_settle));
        assert_eq!(node.outlet.sent.len(), mails as usize);
    }
    // This worker is the home of an affected channel. It acknowledges a command whose caller is on
    // another worker.
    node.outlet.sent.clear();
    let caller = Caller {
        worker: FAR,
        session: session(3),
        ticket: Ticket(7),
    };
    node.hub
        .receive(NEAR, HubMessage::Acknowledge { caller }, &mut node.outlet);
    let [
        (
            FAR,
            HubMessage::Answer {
                session: to,
                ticket: Ticket(7),
                answer: HubReply::CommandAcknowledged,
            },
        ),
    ] = &node.outlet.sent[..]
    else {
        panic!("{:?}", node.outlet.sent);
    };
    assert_eq!(*to, session(3));
}

#[test]
fn instructions_select_connections_by_id() {
    let all = disconnect();
    assert!(all.applies_to_all() && all.applies_to("a"));
    let one = UserCommand {
        client: Some("a".into()),
        ..disconnect()
    };
    assert!(!one.applies_to_all() && one.applies_to("a") && !one.applies_to("b"));
    let others = UserCommand {
        except: ["a".into(), "b".into()].into(),
        ..disconnect()
    };
    assert!(
        !others.applies_to_all()
            && !others.applies_to("a")
            && !others.applies_to("b")
            && others.applies_to("c")
    );
    let none = UserCommand {
        client: Some("a".into()),
        ..others
    };
    assert!(!none.applies_to_all() && !none.applies_to("a") && !none.applies_to("c"));
}
