//! Users: connections, commands, last seen.

use std::sync::Arc;

use veche_hub::{
    Answer, Caller, Deed, Instructed, Instruction, Mail, Outcome, Question, Ticket, UserStatus,
    WorkerId,
};

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
        registration: None,
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
    // Three workers, and each has to tell the homes of all channels to which its sessions were subscribed.
    let instructed = Instructed {
        connections: 4,
        open: 3 * 4,
    };
    assert_eq!(outcome, Ok(Outcome::Done(instructed)));
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

    // A remote home is notified by a message.
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
        Instruction::to_all(Deed::Unsubscribe { channel })
    };
    let refresh = |is_expired| {
        Instruction::to_all(Deed::Refresh {
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
        (begone(), 1, 3),
    ] {
        node.desk.sent.clear();
        node.desk.answers.clear();
        let outcome = node
            .hub
            .instruct(Some(from), &user, instruction, &mut node.desk);
        let Ok(Outcome::Done(instructed)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(instructed.open, answers + mails);
        assert!(node.desk.answers.is_empty(), "its session has done nothing");
        for (caller, instruction) in std::mem::take(&mut node.desk.settling) {
            node.hub.settle(caller, &instruction, &mut node.desk);
        }
        assert_eq!(node.desk.answers.len(), answers as usize);
        let all_settle = |(_, mail): &(WorkerId, Mail)| matches!(mail, Mail::Settle { .. });
        assert!(node.desk.sent.iter().all(all_settle));
        assert_eq!(node.desk.sent.len(), mails as usize);
    }
    // As home of a channel, for a remote caller.
    node.desk.sent.clear();
    let caller = Caller {
        worker: FAR,
        session: session(3),
        ticket: Ticket(7),
    };
    node.hub
        .receive(NEAR, Mail::Settle { caller }, &mut node.desk);
    let [
        (
            FAR,
            Mail::Answer {
                session: to,
                ticket: Ticket(7),
                answer: Answer::Settled,
            },
        ),
    ] = &node.desk.sent[..]
    else {
        panic!("{:?}", node.desk.sent);
    };
    assert_eq!(*to, session(3));
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
