//! Tests with a store that loses entries of the control stream, so that bans are lost.

use super::bans::users;
use super::*;

/// A copy of a store's content.
struct Copy {
    epoch: u64,
    stream: Vec<(u64, Bytes)>,
    top: u64,
    table: BTreeMap<Bytes, Bytes>,
}

impl Cluster {
    fn copy(&self) -> Copy {
        Copy {
            epoch: self.epoch,
            stream: self.stream.clone(),
            top: self.top,
            table: self.table.clone(),
        }
    }

    /// Restores the store from a copy, and cuts off all nodes.
    fn roll_back(&mut self, copy: Copy) {
        for number in 0..self.nodes.len() {
            self.cut(number);
        }
        (self.epoch, self.top) = (copy.epoch, copy.top);
        (self.stream, self.table) = (copy.stream, copy.table);
    }

    /// Bans a user on a node, where the ban is in force at once.
    fn ban(&mut self, number: usize, user: &str) {
        let message = ban(user, 1);
        self.nodes[number].performed.push(message.clone());
        self.ask(number, message);
        self.nodes[number].answers.clear();
    }
}

fn names<const COUNT: usize>(names: [&str; COUNT]) -> HashSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn commands_that_the_stream_has_forgotten_are_reported() {
    let mut cluster = Cluster::of(2);
    cluster.cut(1);
    cluster.ask(0, ban("boris", 1));
    cluster.ask(0, disconnect(2));
    cluster.ask(0, disconnect(3));
    cluster.stream.drain(..2);
    cluster.mend(1);
    assert_eq!(cluster.nodes[1].others, [Output::Lost, Output::StoreBlocks]);
    assert!(cluster.nodes[1].node.is_current());
    // The node gets the ban from the table of bans, and the last command from the stream. One command is lost.
    assert_eq!(cluster.commands(1), 2);
    assert_eq!(cluster.nodes[1].node.counts().lost, 1);
}

#[test]
fn a_stream_that_is_lost_begins_again_and_loses_no_late_command() {
    let mut cluster = Cluster::of(3);
    cluster.cut(2);
    cluster.ask(0, disconnect(1));
    // The store is reachable again, but has lost its data.
    cluster.stream.clear();
    cluster.table.clear();
    (cluster.top, cluster.epoch) = (0, 2);
    cluster.mend(2);
    cluster.pass(LEASE_RENEWAL_MS);
    for (number, commands) in [(0, 1), (1, 1), (2, 1)] {
        let member = &cluster.nodes[number];
        assert_eq!(cluster.commands(number), commands, "{number}");
        assert_eq!(member.others, [Output::StoreBlocks], "{number}");
        assert!(member.node.is_current());
    }
    // Node 2 is cut off until other nodes no longer append old commands again, so it must report lost commands.
    cluster.cut(2);
    cluster.pass(commands::AGAIN_MS);
    (cluster.top, cluster.epoch) = (0, 3);
    cluster.stream.clear();
    cluster.mend(2);
    assert!(cluster.nodes[2].others.contains(&Output::Lost));
}

#[test]
fn a_failover_that_goes_back_loses_no_late_command() {
    let mut cluster = Cluster::of(2);
    cluster.ask(0, disconnect(1));
    cluster.cut(0);
    cluster.cut(1);
    // The store fails over to a replica that never received the last entry.
    cluster.stream.clear();
    cluster.top = 0;
    cluster.mend(1);
    cluster.mend(0);
    cluster.ask(0, disconnect(2));
    assert_eq!(cluster.commands(1), 2);
    assert_eq!(cluster.stream.len(), 2);
}

/// After a rollback, another entry has the offset of the last entry that the nodes know.
#[test]
fn an_entry_that_replaces_a_lost_one_is_carried_out() {
    let mut cluster = Cluster::of(3);
    let copy = cluster.copy();
    cluster.ban(0, "anna");
    cluster.roll_back(copy);
    // A node that has no bans is the first to append an entry after the rollback.
    let late = cluster.join();
    cluster.ban(late, "boris");
    for number in 0..3 {
        cluster.mend(number);
        let all = names(["anna", "boris"]);
        assert_eq!(users(&cluster, number), all, "{number}");
    }
    assert_eq!(users(&cluster, late), names(["anna", "boris"]));
    let last = cluster.join();
    assert_eq!(users(&cluster, last), names(["anna", "boris"]));
}

/// After a rollback, the last entry that a node knows is appended again at the same offset, but a
/// different entry precedes it.
#[test]
fn an_entry_before_a_repeated_one_is_carried_out() {
    let mut cluster = Cluster::of(3);
    let copy = cluster.copy();
    cluster.ban(1, "boris");
    cluster.ban(0, "anna");
    cluster.roll_back(copy);
    let late = cluster.join();
    cluster.ban(late, "carol");
    for number in [0, 2, 1] {
        cluster.mend(number);
        let all = names(["anna", "boris", "carol"]);
        assert_eq!(users(&cluster, number), all, "{number}");
    }
}

/// The ban's command is too old to be appended again, and node 2 was cut off when the ban was set.
#[test]
fn a_ban_that_the_store_has_lost_reaches_nodes_that_never_had_it() {
    let mut cluster = Cluster::of(3);
    cluster.cut(2);
    let copy = cluster.copy();
    cluster.ban(0, "anna");
    cluster.pass(2 * commands::AGAIN_MS);
    cluster.roll_back(copy);
    cluster.mend(2);
    assert_eq!(users(&cluster, 2), names([]));
    cluster.mend(1);
    assert_eq!(users(&cluster, 2), names(["anna"]));
    // Node 1 has stored the ban again, so node 0 need not append it.
    let top = cluster.top;
    cluster.mend(0);
    assert_eq!((cluster.table.len(), cluster.top), (1, top));
}

/// The store has executed the append and node 0 has received the answer, but no node has received the entry.
#[test]
fn an_appended_ban_that_no_node_has_read_is_appended_again() {
    let mut cluster = Cluster::of(2);
    let copy = cluster.copy();
    cluster.nodes[0].node.ask(ban("anna", 1), None);
    while let Some(output) = cluster.nodes[0].node.poll() {
        cluster.take(0, output);
    }
    // Node 0 receives the answers to its orders, but not the entry appended to the stream.
    let answers = std::mem::take(&mut cluster.nodes[0].events);
    let is_answer = |event: &Event| matches!(event, Event::Appended { .. } | Event::Stored { .. });
    for event in answers.into_iter().filter(is_answer) {
        cluster.nodes[0].node.handle_event(event);
    }
    cluster.nodes[1].events.clear();
    cluster.roll_back(copy);
    cluster.pass(2 * commands::AGAIN_MS);
    cluster.mend(0);
    cluster.mend(1);
    assert_eq!(users(&cluster, 1), names(["anna"]));
    assert_eq!(cluster.table.len(), 1);
}

/// The result of a read arrives after the feed has delivered a later entry; this must not be taken for a loss.
#[test]
fn a_feed_that_is_ahead_of_a_read_is_no_loss() {
    let mut cluster = Cluster::of(2);
    cluster.ask(1, disconnect(1));
    let own = announcement(0, 7);
    cluster.nodes[0].node.announce(own);
    let mut answer = None;
    while let Some(output) = cluster.nodes[0].node.poll() {
        if let Output::Order(Order::ReadControl { ticket, .. }) = output {
            let stream = Some(Entries {
                top: cluster.position(cluster.top),
                before: cluster.top - 1,
                entries: cluster.stream.clone(),
            });
            answer = Some(Event::ControlRead { ticket, stream });
        }
    }
    cluster.ask(1, disconnect(2));
    assert_eq!(cluster.commands(0), 2);
    cluster.post(0, answer.expect("it reads"));
    cluster.run();
    assert_eq!((cluster.commands(0), cluster.nodes[0].others.len()), (2, 0));
    // The next entry of the feed follows the last entry that the node knows, so there is no gap.
    cluster.ask(1, disconnect(3));
    assert_eq!(cluster.commands(0), 3);
    assert_eq!(cluster.nodes[0].node.counts().gaps, 0);
}

/// The store loses its data between storing a ban and appending it, so only the stream contains the
/// ban.
#[test]
fn a_ban_that_is_only_in_the_stream_reaches_nodes_that_start() {
    let mut cluster = Cluster::of(1);
    cluster.ask(0, disconnect(1));
    cluster.ban(0, "anna");
    cluster.ban(0, "boris");
    cluster.table.clear();
    let late = cluster.join();
    assert_eq!(users(&cluster, late), names(["anna", "boris"]));
    // The disconnect does not concern a node without connections.
    assert_eq!(cluster.commands(late), 2);
    // The last entry of the stream lifts a ban.
    cluster.ask(0, allow("boris", 2));
    let last = cluster.join();
    let bans = bans::of(&cluster.nodes[last]);
    assert_eq!(bans.last(), Some(&allowed("boris")));
}

/// Node 1 reconnects first, and appends its command of the last minute again before node 0 reads the stream.
#[test]
fn commands_appended_again_before_a_node_returns_are_executed() {
    let mut cluster = Cluster::of(2);
    cluster.cut(0);
    cluster.ask(1, disconnect(1));
    cluster.roll_back(Copy {
        epoch: 2,
        stream: Vec::new(),
        top: 0,
        table: BTreeMap::new(),
    });
    cluster.mend(1);
    cluster.mend(0);
    assert_eq!(cluster.commands(0), 1);
}

/// The store loses a ban that the banning node has read; another node ends the ban before the
/// banning node reconnects.
#[test]
fn a_lost_ban_that_was_ended_is_not_appended_again() {
    let mut cluster = Cluster::of(2);
    let copy = cluster.copy();
    cluster.ban(0, "anna");
    cluster.roll_back(copy);
    cluster.mend(1);
    cluster.ask(1, allow("anna", 2));
    cluster.mend(0);
    let bans = bans::of(&cluster.nodes[0]);
    assert_eq!(bans.last(), Some(&allowed("anna")));
    assert!(cluster.table.is_empty(), "{:?}", cluster.table);
    let of_node_1 = bans::of(&cluster.nodes[1]);
    assert_eq!(of_node_1.len(), 1, "{of_node_1:?}");
}

/// The store loses the first of a node's two bans. Another node starts before the loss is noticed,
/// and so learns the number of the second ban first.
#[test]
fn a_lost_command_reaches_nodes_that_know_a_later_one_of_its_node() {
    let mut cluster = Cluster::of(1);
    cluster.ban(0, "anna");
    cluster.stream.clear();
    cluster.table.clear();
    (cluster.top, cluster.epoch) = (0, 2);
    let message = ban("boris", 1);
    cluster.nodes[0].performed.push(message.clone());
    cluster.ask_only(0, message);
    let late = cluster.join();
    assert_eq!(users(&cluster, late), names(["anna", "boris"]));
}
