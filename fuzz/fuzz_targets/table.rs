#![no_main]
//! Arbitrary bytes as a file that a table is loaded from.

libfuzzer_sys::fuzz_target!(|input: &[u8]| veche_fuzz::table::run(input));
