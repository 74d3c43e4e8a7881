#![no_main]
//! Arbitrary bytes as a request's head.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::http::run_head(data));
