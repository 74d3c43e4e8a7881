//! Tests of channel members on several nodes, with an engine that records members.

use veche_hub::NamespaceOptions;

use crate::bench::{Bench, ROOM, client};
use crate::unruly::{Broken, Unruly};

fn rooms(is_late: bool, leave_delay_ms: u64) -> Bench<Unruly> {
    let mut bench = match is_late {
        true => crate::late(false, Broken::Nothing),
        false => crate::unruly(false, Broken::Nothing),
    };
    bench.set_rooms(NamespaceOptions {
        presence: true,
        join_leave: true,
        leave_delay_ms,
        ..NamespaceOptions::default()
    });
    bench
}

/// If presence counts users, the connection of a user that is a member on another node is not announced.
#[test]
fn member_of_two_nodes() {
    for is_late in [false, true] {
        let mut bench = rooms(is_late, 1_000);
        let elsewhere = (ROOM.into(), client(90, "ann"));
        bench.hub.engine().members_elsewhere.push(elsewhere);
        bench.enter(1, "ben");
        bench.enter(2, "ann");
        bench.leave(2);
        bench.pass(5_000);
        assert_eq!(bench.outlet.texts(1), ["Joined 1"], "{is_late}");
        assert_eq!(bench.presence().0, ["1", "90"]);
    }
}

/// A user that returns during the leave delay remains a member, with another connection.
#[test]
fn member_that_reconnects() {
    for is_late in [false, true] {
        let mut bench = rooms(is_late, 1_000);
        bench.enter(1, "ben");
        bench.enter(2, "ann");
        bench.leave(2);
        assert_eq!(bench.presence().0, ["1", "2"]);
        bench.enter(3, "ann");
        bench.pass(5_000);
        assert_eq!(bench.presence().0, ["1", "3"]);
        bench.leave(3);
        bench.pass(10_000);
        let expected = ["Joined 1", "Joined 2", "Left 3"];
        assert_eq!(bench.outlet.texts(1), expected, "{is_late}");
        assert_eq!(bench.presence(), (vec!["1".to_owned()], (1, 1)));
    }
}

/// When the lease of a node ends, its members leave, and subscribers are notified.
#[test]
fn lease_of_another_node() {
    for is_late in [false, true] {
        let mut bench = rooms(is_late, 0);
        let elsewhere = (ROOM.into(), client(90, "cid"));
        bench.hub.engine().members_elsewhere.push(elsewhere);
        bench.enter(1, "ben");
        assert_eq!(
            bench.presence(),
            (vec!["1".to_owned(), "90".to_owned()], (2, 2))
        );
        bench.hub.engine().end_lease();
        bench.settle();
        assert_eq!(bench.outlet.texts(1), ["Joined 1", "Left 90"], "{is_late}");
        assert_eq!(bench.presence().0, ["1"]);
    }
}
