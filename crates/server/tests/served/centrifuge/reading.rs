//! Tests which clients may read the history and presence of channels.

use serde_json::json;

use super::Client;
use crate::support::{Options, Server, on_all};

const CONFIG: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"open\"\nhistory_size = 10\npresence = true\nsubscribe = \"client\"\n\
    allow_history = \"client\"\nallow_presence = \"client\"\n\
    [[namespace]]\nname = \"shut\"\nhistory_size = 10\npresence = true\nsubscribe = \"client\"\n\
    allow_history = \"none\"\nallow_presence = \"none\"\n\
    [[namespace]]\nname = \"usual\"\nhistory_size = 10\npresence = true\nsubscribe = \"client\"\n";

#[test]
fn a_namespace_says_which_clients_read_history_and_presence() {
    on_all(|setup| {
        let options = Options {
            routes: CONFIG,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let (mut ann, _) = Client::connect(&server, "ann");
        let mut codes = |channel: &str| {
            ["history", "presence", "presence_stats"].map(|what| {
                let reply = ann.ask(json!({"id": 2, what: {"channel": channel}}));
                reply["error"]["code"].as_u64()
            })
        };
        assert_eq!(codes("open:1"), [None; 3]);
        assert_eq!(codes("usual:1"), [Some(103); 3]);
        assert_eq!(codes("shut:1"), [Some(103); 3]);
        assert_eq!(codes("open:1#ann,bob"), [None; 3]);
        assert_eq!(codes("open:1#bob"), [Some(103); 3], "it is not for her");
        assert_eq!(codes("open:$1"), [Some(103); 3], "it is private");
        let (mut bob, _) = Client::connect(&server, "bob");
        for (channel, expected) in [("usual:1", None), ("shut:1", Some(103))] {
            let joined = bob.ask(json!({"id": 3, "subscribe": {"channel": channel}}));
            assert!(joined["subscribe"]["recoverable"] == true, "{joined}");
            for what in ["history", "presence", "presence_stats"] {
                let reply = bob.ask(json!({"id": 4, what: {"channel": channel}}));
                assert_eq!(
                    reply["error"]["code"].as_u64(),
                    expected,
                    "{what} {channel}"
                );
            }
        }
    });
}
