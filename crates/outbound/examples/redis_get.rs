//! Measures the Redis benchmark of a hundred script coroutines without scripts: a hundred tokio tasks call `GET` in a
//! loop over one connection of the same Redis crate. `redis_get PORT SECONDS` prints the number of calls and the CPU
//! time of the process in nanoseconds.

use std::fs;
use std::time::Duration;

use redis::AsyncCommands as _;
use tokio::time::Instant;

const TASKS: usize = 100;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(port), Some(seconds)) = (number(), number()) else {
        eprintln!("redis_get PORT SECONDS");
        std::process::exit(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let (calls, cpu_ns) = runtime.block_on(run(port, Duration::from_secs(seconds)));
    println!("{calls} {cpu_ns}");
}

async fn run(port: u64, time: Duration) -> (u64, u64) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/?protocol=resp3"));
    let client = client.expect("a URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("a server");
    let () = connection.set("key", "value").await.expect("set");
    let before = cpu_ns();
    let until = Instant::now() + time;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let mut calls = 0;
                while Instant::now() < until {
                    let value: String = connection.get("key").await.expect("a reply");
                    assert_eq!(value, "value");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.expect("no panic");
    }
    (calls, cpu_ns() - before)
}

/// Returns the CPU time of all threads so far.
fn cpu_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok();
    let figures = tasks.flatten().filter_map(of);
    figures
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}
