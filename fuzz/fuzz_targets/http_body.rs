#![no_main]
//! Arbitrary bytes as a chunked body.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::http::run_body(data));
