//! Users: connections, instructions, last seen.

use std::sync::Arc;

use veche_hub::{Answer, Deed, Instruction, Mail, Outcome, Question, Ticket, UserStatus};

use crate::common::session;
use crate::node::{FAR, NEAR, Node, START_MS};

fn status(node: &mut Node, user: &str) -> UserStatus {
    match node.ask(&format!("#{user}"), Question::UserStatus) {
        Outcome::Done(Answer::UserStatus(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn begone() -> Instruction {
    Instruction::to_all(Deed::Disconnect {
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
    assert_eq!(node.hub.counts().users, 1);
    let there = |connections| UserStatus {
        connections,
        last_seen_ms: None,
    };
    assert_eq!(status(&mut node, &user), there(3));
    node.close(session(0));
    node.close(session(1));
    assert_eq!(status(&mut node, &user), there(1));
    assert_eq!(node.hub.counts().users, 1);
    node.at(START_MS + 7);
    let mail = Mail::Unsubscribe {
        channel: Arc::from(channel.as_str()),
        client: None,
    };
    node.receive(NEAR, mail);
    let gone = UserStatus {
        connections: 0,
        last_seen_ms: Some(START_MS + 7),
    };
    assert_eq!(status(&mut node, &user), gone);
    assert_eq!(node.hub.counts().users, 0);
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
    node.desk.sent.clear();
    let from = Some((session(9), Ticket(9)));
    let outcome = node.hub.instruct(from, &user, begone(), &mut node.desk);
    assert_eq!(outcome, Ok(Outcome::Done(4)));
    assert_eq!(node.desk.instructed, [session(0), session(1)]);
    let told = node.desk.sent.iter().map(|(to, mail)| {
        assert!(matches!(mail, Mail::Instruct { .. }));
        *to
    });
    assert_eq!(told.collect::<Vec<_>>(), [NEAR, FAR]);
    let mut here: Vec<_> = node.hub.sessions_of_user(&user).collect();
    here.sort();
    assert_eq!(here, [session(0), session(1)]);
    assert_eq!(node.hub.sessions_of_user("").count(), 0);

    // A remote home is told by mail.
    node.desk.sent.clear();
    let outcome = node.hub.instruct(from, &away, begone(), &mut node.desk);
    assert_eq!(outcome, Ok(Outcome::Pending));
    assert!(matches!(
        node.desk.sent[..],
        [(_, Mail::InstructAll { .. })]
    ));
    let outcome = node.hub.instruct(from, "", begone(), &mut node.desk);
    assert!(outcome.is_err());
}

#[test]
fn instructions_select_connections_by_id() {
    let all = begone();
    assert!(all.means_all() && all.means("a"));
    let one = Instruction {
        client: Some("a".into()),
        ..begone()
    };
    assert!(!one.means_all() && one.means("a") && !one.means("b"));
    let others = Instruction {
        except: ["a".into(), "b".into()].into(),
        ..begone()
    };
    assert!(!others.means_all() && !others.means("a") && !others.means("b") && others.means("c"));
    let none = Instruction {
        client: Some("a".into()),
        ..others
    };
    assert!(!none.means_all() && !none.means("a") && !none.means("c"));
}
