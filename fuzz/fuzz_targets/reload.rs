#![no_main]
//! Arbitrary configurations for a running server: each is applied or refused, and no connection is lost.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche::fuzzing::reload(data));
