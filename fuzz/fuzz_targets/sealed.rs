#![no_main]
//! Arbitrary clients under TLS: records split anywhere, changed, cut off, with garbage around them.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche::fuzzing::sealed(data));
