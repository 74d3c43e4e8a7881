#![no_main]
//! Fuzzes the parser of worker frames with arbitrary bytes.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::runtime::run(data));
