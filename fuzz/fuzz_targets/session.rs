#![no_main]
//! Arbitrary clients of Centrifugo's protocol: commands of both encodings, recovery, deltas, filters, verdicts, instructions.

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    veche_fuzz::session::run(data);
});
