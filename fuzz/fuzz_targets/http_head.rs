#![no_main]
//! Parses arbitrary bytes as the head of an HTTP request.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::http::run_head(data));
