#![no_main]
//! Arbitrary bytes as commands of a client of Centrifugo's protocol.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::centrifuge::run(data));
