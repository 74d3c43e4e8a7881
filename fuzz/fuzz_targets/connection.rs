#![no_main]
//! Fuzzes a few workers with arbitrary clients: bytes, splits, timeouts, drains, and clients that
//! stop reading.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::connection::run(data));
