//! Counts the instructions of every path. `bench/instructions` runs this and interprets the output.

#![expect(missing_docs, reason = "gungraun's macros make items without any")]

use gungraun::{library_benchmark, library_benchmark_group, main};
use veche_counts::Path;

#[library_benchmark(setup = Path::set_up)]
#[bench::frame_in_20("frame_in_20")]
#[bench::frame_in_1k("frame_in_1k")]
#[bench::frame_in_8k("frame_in_8k")]
#[bench::frame_out_20("frame_out_20")]
#[bench::frame_out_1k("frame_out_1k")]
#[bench::frame_out_8k("frame_out_8k")]
#[bench::echo_20("echo_20")]
#[bench::echo_1k("echo_1k")]
#[bench::echo_8k("echo_8k")]
#[bench::http_request("http_request")]
#[bench::push_line("push_line")]
#[bench::publish_100("publish_100")]
#[bench::subscribe_recover_10("subscribe_recover_10")]
#[bench::lua_echo("lua_echo")]
#[bench::lua_publish("lua_publish")]
#[bench::table_lookup("table_lookup")]
#[bench::table_scan_100("table_scan_100")]
#[bench::idle_turn("idle_turn")]
fn path(mut path: Path) -> Path {
    if let Err(error) = path.run() {
        panic!("{error}");
    }
    // The path is returned, so that its drop is not counted.
    path
}

library_benchmark_group!(name = paths; benchmarks = path);
main!(library_benchmark_groups = paths);
