//! Tests bans that a node set while it was cut off, and bans that may or may not have been stored.

use super::*;

/// Returns the bans that a node has executed.
pub(super) fn of(member: &Member) -> Vec<Ban> {
    let performed = member.performed.iter();
    let bans = performed.filter_map(|message| match message {
        NodeMessage::Block(command) => Some(command.block.clone()),
        _ => None,
    });
    bans.collect()
}

/// Returns the bans of users that are in force on a node.
pub(super) fn in_force(member: &Member) -> Vec<Ban> {
    let mut in_force = Vec::new();
    for ban in of(member) {
        let (Ban::User { user, .. } | Ban::UserAllowed { user }) = &ban else {
            continue;
        };
        in_force.retain(|other| !matches!(other, Ban::User { user: banned, .. } if banned == user));
        if matches!(ban, Ban::User { .. }) {
            in_force.push(ban);
        }
    }
    in_force
}

pub(super) fn users(cluster: &Cluster, number: usize) -> HashSet<String> {
    let performed = cluster.nodes[number].performed.iter();
    let banned = performed.filter_map(|message| match message {
        NodeMessage::Block(command) => match &command.block {
            Ban::User { user, .. } => Some(user.clone()),
            _ => None,
        },
        _ => None,
    });
    banned.collect()
}

#[test]
fn a_ban_of_a_node_that_was_cut_off_reaches_nodes_that_start_later() {
    let mut cluster = Cluster::of(2);
    cluster.cut(0);
    cluster.ask(0, ban("eve", 1));
    assert!(cluster.table.is_empty());
    cluster.mend(0);
    assert_eq!(users(&cluster, 1), HashSet::from(["eve".to_owned()]));
    let late = cluster.join();
    assert_eq!(users(&cluster, late), HashSet::from(["eve".to_owned()]));
}

#[test]
fn a_ban_of_a_node_that_was_cut_off_for_long_reaches_the_others() {
    let mut cluster = Cluster::of(2);
    cluster.cut(0);
    cluster.ask(0, ban("eve", 1));
    cluster.ask(0, disconnect(2));
    cluster.pass(2 * commands::AGAIN_MS);
    let before = cluster.commands(1);
    cluster.mend(0);
    assert_eq!(users(&cluster, 1), HashSet::from(["eve".to_owned()]));
    // Node 1 executes only the ban, since the disconnect is too old to be sent after the reconnect.
    assert_eq!(cluster.commands(1), before + 1);
}

/// The connection is lost after the stream was read, but before the stored bans were read.
#[test]
fn a_node_that_has_not_read_the_bans_reads_them_when_it_returns() {
    let mut cluster = Cluster::of(1);
    cluster.ask(0, ban("eve", 1));
    let late = cluster.nodes.len();
    let own = announcement(late, 7);
    let mut node = Node::new(id(late), own, WORKERS, NODE_WORKER, cluster.now_ms);
    node.handle_event(Event::Up(StoreState::Same));
    while let Some(output) = node.poll() {
        if let Output::Order(Order::ReadControl { ticket, .. }) = output {
            let stream = Some(Entries {
                top: cluster.position(cluster.top),
                before: cluster.top,
                entries: Vec::new(),
            });
            node.handle_event(Event::ControlRead { ticket, stream });
        }
    }
    node.handle_event(Event::Down);
    node.handle_event(Event::Up(StoreState::Same));
    let outputs: Vec<_> = std::iter::from_fn(|| node.poll()).collect();
    let is_table = |output: &Output| matches!(output, Output::Order(Order::ReadTable { .. }));
    assert!(outputs.iter().any(is_table), "{outputs:?}");
}

#[test]
fn a_ban_whose_answers_are_lost_gives_way_to_a_later_command() {
    let mut cluster = Cluster::of(2);
    // The ban is stored and appended, but node 0 receives no answers.
    cluster.ask_only(0, ban("eve", 1));
    cluster.cut(0);
    cluster.ask(1, allow("eve", 2));
    cluster.mend(0);
    assert!(cluster.table.is_empty());
}

/// Two nodes give contradictory commands about one user at the same time: the later one in the
/// stream is in force everywhere.
#[test]
fn of_two_commands_about_one_ban_the_later_one_is_in_force_on_each_node() {
    let mut cluster = Cluster::of(2);
    // All outputs of node 0 except the append to the stream reach the store first.
    cluster.nodes[0].node.ask(ban("eve", 1), None);
    let mut outputs: Vec<_> = std::iter::from_fn(|| cluster.nodes[0].node.poll()).collect();
    let append = outputs
        .iter()
        .position(|output| matches!(output, Output::Order(Order::Append { .. })));
    let append = outputs.remove(append.expect("the ban is appended"));
    for output in outputs {
        cluster.take(0, output);
    }
    cluster.ask_only(1, allow("eve", 2));
    cluster.take(0, append);
    cluster.run();
    let banned = Ban::User {
        user: "eve".to_owned(),
        until_s: None,
    };
    assert_eq!(of(&cluster.nodes[0]), [allowed("eve"), banned.clone()]);
    assert_eq!(of(&cluster.nodes[1]), [banned]);
    assert_eq!(cluster.table.len(), 1);
}
