//! Loads visits from JSON files into a table like that of examples/highload-cup, and prints time and memory.
//!
//! ```sh
//! examples/highload-cup/generate.py data --users 1000000 --locations 800000 --visits 11000000
//! cargo run --release -p veche-store --example visits -- data
//! ```
//!
//! If a second argument names a file, the table is also saved to it and loaded again. An input file with the extension
//! .table is loaded as a snapshot.

#[path = "../../../tests/now.rs"]
mod now;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use veche_store::Store;
use veche_store::table::{Job, LoadFormat, LoadOptions, SchemaDraft, Table};
use veche_types::Now;

use now::now;

/// Returns a value from /proc/self/status, in megabytes.
fn status(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kilobytes.unwrap_or(0.0) * 1024.0 / 1e6
}

/// Returns the CPU time of this process in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}

fn run(what: &str, start: impl FnOnce() -> Arc<Job>) {
    let (begun, used, before) = (now(), processor_seconds(), status("VmRSS:"));
    let job = start();
    let mut most: f64 = 0.0;
    let mut read = None;
    while job.outcome().is_none() {
        most = most.max(status("VmRSS:"));
        let progress = job.progress();
        if read.is_none() && progress.bytes == progress.bytes_total && progress.bytes > 0 {
            read = Some((begun.elapsed(), status("VmRSS:")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rows = job.wait().unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{what}: {rows} rows in {seconds:.2} s ({:.2} s until all was read, RSS {:.0} MB), {:.0}% of a core; \
         RSS {before:.0} -> {:.0} MB, at most {most:.0} MB",
        read.unwrap_or_default().0.as_secs_f64(),
        read.unwrap_or_default().1,
        (processor_seconds() - used) / seconds * 100.0,
        status("VmRSS:"),
    );
}

fn info(table: &Table) {
    let info = table.info();
    println!(
        "info: {} rows, {:.1} MB; columns {:?}, indexes {:?}",
        info.rows,
        info.bytes as f64 / 1e6,
        info.columns,
        info.indexes
    );
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let data: PathBuf = arguments
        .next()
        .expect("the first argument must be a folder, an archive or a file");
    let pair = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![
            pair("location", "u32"),
            pair("mark", "u8"),
            pair("user", "u32"),
            pair("visited_at", "i32"),
        ],
        indexes: vec![
            (
                "by_user".to_owned(),
                vec!["user".to_owned(), "visited_at".to_owned()],
                false,
            ),
            ("by_location".to_owned(), vec!["location".to_owned()], false),
        ],
        ..SchemaDraft::default()
    };
    let schema = draft.check().expect("a schema");
    let store = Store::default();
    let table = store.table("visits", Some(schema)).expect("a table");
    let mut options = LoadOptions::new(LoadFormat::Json);
    options.files = Some("visits_*".to_owned());
    let time = Now::default();
    match data.extension().is_some_and(|ending| ending == "table") {
        true => run("restore", || table.start_restore(data, time)),
        false => run("load", || table.start_load(data, options, time)),
    }
    info(&table);
    println!("VmHWM {:.0} MB", status("VmHWM:"));
    if let Some(path) = arguments.next() {
        run("save", || table.start_save(path.clone(), time));
        table
            .clear()
            .expect("no other load of the table may be running");
        println!("cleared: RSS {:.0} MB", status("VmRSS:"));
        run("restore", || table.start_restore(path, time));
        info(&table);
        println!("VmHWM {:.0} MB", status("VmHWM:"));
    }
}
