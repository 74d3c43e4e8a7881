#![no_main]
//! Arbitrary bytes as the output of a worker process.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::runtime::run(data));
