#![no_main]
//! Decodes arbitrary bytes as a message of another node.

libfuzzer_sys::fuzz_target!(|input: &[u8]| veche_fuzz::nodes::run(input));
