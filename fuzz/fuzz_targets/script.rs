#![no_main]
//! Arbitrary programs to a VM: all functions that scripts can reach, with strange arguments, at strange times.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::script::run(data));
