#![no_main]
//! Fuzzes sessions of Centrifugo's protocol: commands in both encodings, recovery, deltas, filters, hook decisions,
//! and commands of back ends.

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    veche_fuzz::session::run(data);
});
