//! `veche`: the realtime application server.

#[allow(dead_code, unused_imports)]
mod config;

fn main() {
    if let Err(report) = config::load("veche.toml".as_ref()) {
        eprintln!("{report}");
    }
}
