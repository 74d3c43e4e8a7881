#![no_main]
//! Loads a table from a file that contains arbitrary bytes.

libfuzzer_sys::fuzz_target!(|input: &[u8]| veche_fuzz::table::run(input));
