#![no_main]
//! Fuzzes a few workers with arbitrary clients, which send arbitrary bytes in arbitrary pieces,
//! time out and stop reading, while workers are drained.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::connection::run(data));
