#![no_main]
//! Fuzzes the server side of TLS with records that are split anywhere, changed, truncated, or
//! mixed with garbage.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche::fuzzing::tls_server(data));
