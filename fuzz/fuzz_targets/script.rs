#![no_main]
//! Runs arbitrary programs in a VM. They call all functions that scripts can reach, with strange
//! arguments and at strange times.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::script::run(data));
