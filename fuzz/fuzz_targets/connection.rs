#![no_main]
//! Arbitrary clients of a few workers: bytes, splits, timeouts, drains, readers that stop.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::connection::run(data));
