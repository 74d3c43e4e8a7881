#![no_main]
//! Arbitrary bytes as a file from which a table is loaded.

libfuzzer_sys::fuzz_target!(|input: &[u8]| veche_fuzz::table::run(input));
