#![no_main]
//! Arbitrary bytes as what a client of Centrifugo's protocol sends.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::centrifuge::run(data));
