#![no_main]
//! Arbitrary clients under TLS: records split anywhere, changed, truncated, or mixed with garbage.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche::fuzzing::tls_server(data));
