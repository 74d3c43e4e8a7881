#![no_main]
//! Passes arbitrary bytes to a WebSocket client's decoder.

use veche_proto::websocket::Role;

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::websocket::run(Role::Client, data));
