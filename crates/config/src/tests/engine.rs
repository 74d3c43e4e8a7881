//! Tests settings that the nodes of a cluster have to share.

use super::{LISTEN, good};

const REDIS: &str = "[engine]\ntype = \"redis\"\nurl = \"redis://:secret@10.0.0.1\"\n";

#[test]
fn nodes_agree_on_channels_and_not_on_addresses() {
    let agreed = |text: &str| good(&format!("{LISTEN}{text}")).effective.agreed();
    let namespace = "[[namespace]]\nname = \"chat\"\nhistory_size = 7\n";
    let one = agreed(&format!("{REDIS}{namespace}"));
    let moved = REDIS.replace("10.0.0.1", "10.0.0.2");
    assert_eq!(
        agreed(&format!("{moved}{namespace}[node]\nname = \"b\"\n")),
        one
    );
    let longer = namespace.replace('7', "8");
    assert_ne!(agreed(&format!("{REDIS}{longer}")), one);
    assert_ne!(agreed(&format!("{REDIS}prefix = \"b\"\n{namespace}")), one);
    let events = |url: &str| format!("{REDIS}{namespace}[events]\nurl = \"{url}\"\n");
    let with_events = agreed(&events("http://127.0.0.1/a"));
    assert_ne!(with_events, one);
    assert_eq!(agreed(&events("http://127.0.0.1/b")), with_events);
}
