#![no_main]
//! Arbitrary bytes as a header of the PROXY protocol.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::proxy::run(data));
