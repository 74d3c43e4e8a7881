//! The code paths whose instructions are counted. Each is set up completely, then its [run](Path::run) repeats one
//! operation a fixed number of times.
//!
//! Paths of a worker run on a real worker without sockets ([`veche::stage::WorkerRig`]). One operation is a turn of the
//! worker's loop with at most one event, from the received bytes to the sent bytes, without system calls. Frames and
//! tables are also counted alone, so that a change in them is not hidden by the rest. `bench/instructions` divides the
//! instructions of a path by its number of [operations](OPERATIONS).

mod client;
mod frames;
mod path;
mod tables;
mod worker;

pub use path::Path;

/// The name of each measured code path, and the number of operations in a run of the path.
pub const OPERATIONS: &[(&str, u32)] = &[
    ("frame_in_20", 1000),
    ("frame_in_1k", 1000),
    ("frame_in_8k", 1000),
    ("frame_out_20", 1000),
    ("frame_out_1k", 1000),
    ("frame_out_8k", 1000),
    ("echo_20", 200),
    ("echo_1k", 200),
    ("echo_8k", 200),
    ("http_request", 200),
    ("push_line", 200),
    ("publish_100", 100),
    ("subscribe_recover_10", 50),
    ("lua_echo", 200),
    ("lua_publish", 200),
    ("table_lookup", 1000),
    ("table_scan_100", 100),
    ("idle_turn", 1000),
];

impl Path {
    /// Sets up the path with this name for its number of operations in [`OPERATIONS`].
    ///
    /// # Panics
    /// No path has this name.
    #[must_use]
    pub fn set_up(name: &str) -> Self {
        let operations = OPERATIONS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, operations)| *operations)
            .unwrap_or_else(|| panic!("no path is called {name}"));
        match name {
            "frame_in_20" => frames::received(20, operations),
            "frame_in_1k" => frames::received(1024, operations),
            "frame_in_8k" => frames::received(8192, operations),
            "frame_out_20" => frames::sent(20, operations),
            "frame_out_1k" => frames::sent(1024, operations),
            "frame_out_8k" => frames::sent(8192, operations),
            "echo_20" => worker::echo(20, operations),
            "echo_1k" => worker::echo(1024, operations),
            "echo_8k" => worker::echo(8192, operations),
            "http_request" => worker::http_request(operations),
            "push_line" => worker::push_line(operations),
            "publish_100" => worker::publish(100, operations),
            "subscribe_recover_10" => worker::subscribe_and_recover(10, operations),
            "lua_echo" => worker::lua_echo(operations),
            "lua_publish" => worker::lua_publish(operations),
            "table_lookup" => tables::lookup(operations),
            "table_scan_100" => tables::scan(100, operations),
            "idle_turn" => worker::idle_turn(operations),
            _ => unreachable!("every name of OPERATIONS is set up above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_does_what_it_is_counted_for() {
        for (name, _) in OPERATIONS {
            assert_eq!(Path::set_up(name).run(), Ok(()), "{name}");
        }
    }
}
