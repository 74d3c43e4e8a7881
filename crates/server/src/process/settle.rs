//! What a reload makes of a new config: the directives that need a restart keep their old values.
//!
//! Pure. The supervisor and the server process both call this on the same two texts, so that they agree
//! without telling each other. Which directives these are is said to people by `config`'s table; here is
//! what it means for the types: all of `[server]` but the log, and the set of `[[listen]]`.

use crate::config::{Config, Listener, Server};

/// `new` with what can't change before a restart taken from `started`.
///
/// Routes name listeners by place, so they are carried over to the old places by address and role; a route
/// that only new listeners have waits for the restart with them.
pub(crate) fn settle(started: &Config, new: Config) -> Config {
    let mut settled = new;
    settled.server = Server { log: settled.server.log, ..started.server.clone() };

    let places: Vec<Option<usize>> =
        settled.listeners.iter().map(|listener| place_in(&started.listeners, listener)).collect();
    settled.listeners = started.listeners.clone();
    for route in &mut settled.routes {
        route.listeners = route.listeners.iter().filter_map(|&place| places[place]).collect();
    }
    settled.routes.retain(|route| !route.listeners.is_empty());
    for (index, route) in settled.routes.iter_mut().enumerate() {
        route.index = index;
    }
    settled
}

fn place_in(started: &[Listener], new: &Listener) -> Option<usize> {
    // At its own place first: two listeners may both be on port 0.
    let same = |old: &Listener| old.address == new.address && old.role == new.role;
    if started.get(new.index).is_some_and(same) {
        return Some(new.index);
    }
    started.iter().position(same)
}
