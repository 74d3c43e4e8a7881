//! Replays the corpora of the WebSocket fuzz targets as regression tests.

use std::fs;
use std::path::Path;

use veche_proto::websocket::Role;

#[path = "../../../fuzz/src/websocket.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod websocket;

#[test]
fn corpora_hold() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (folder, role) in [
        ("websocket_server", Role::Server),
        ("websocket_client", Role::Client),
    ] {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            websocket::run(role, &fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{folder} is empty");
    }
}
