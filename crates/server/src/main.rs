//! `veche`: the realtime application server.

fn main() {}
