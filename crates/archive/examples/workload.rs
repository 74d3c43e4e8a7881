//! Measures the cost of the archive under a realistic load. Each worker publishes to many channels in rotation, trims each
//! channel to a window of its latest publications, and submits the records of each turn as one batch.
//!
//! `cargo run --release -p veche-archive --example workload -- FOLDER [bytes=128] [records=1000000] [window=50]
//! [channels=10000] [turn=50] [workers=2] [sync=interval|every|never] [rate=0]`
//!
//! `rate` limits the publications per second of all workers together. Without this limit the archive is always saturated,
//! and batches wait in a full queue before they become durable.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use veche_archive::{AppendError, Archive, ArchiveRecord, FsyncPolicy, Options, StoredPublication};

struct Plan {
    records: u64,
    window: u64,
    channels: u64,
    turn: u64,
    /// Interval between two turns of a worker.
    pause: Duration,
    payload: Bytes,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rest @ ..] = arguments.as_slice() else {
        eprintln!("FOLDER [name=value]…");
        return;
    };
    let value = |name: &str, default: &str| -> String {
        let found = rest
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or(default).to_owned()
    };
    let number = |name, default| value(name, default).parse::<u64>().expect("a number");
    let workers = number("workers", "2");
    let payload: Bytes = (0..number("bytes", "128"))
        .map(|at| b'a' + (at % 23) as u8)
        .collect();
    let turn = number("turn", "50");
    let pause = match number("rate", "0") {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64((turn * workers) as f64 / rate as f64),
    };
    let plan = Plan {
        records: number("records", "1000000") / workers,
        window: number("window", "50"),
        channels: number("channels", "10000") / workers,
        turn,
        pause,
        payload,
    };
    let fsync = match value("sync", "interval").as_str() {
        "every" => FsyncPolicy::EveryCommit,
        "never" => FsyncPolicy::Never,
        _ => FsyncPolicy::Interval(Duration::from_secs(1)),
    };
    let options = Options {
        fsync,
        ..Options::default()
    };
    let folder = Path::new(folder);

    let (archive, loaded) = veche_archive::open(folder, &options).expect("an archive");
    assert_eq!(loaded.len(), 0, "the folder of the archive must be empty");
    let (written, cpu, begun) = (written_bytes(), cpu_ms("self"), Instant::now());
    let (mut waits, mut own) = (Vec::new(), Duration::ZERO);
    thread::scope(|scope| {
        let (archive, plan) = (&archive, &plan);
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker, archive, plan)))
            .collect();
        for worker in workers {
            let (its_waits, its_own) = worker.join().expect("it worked");
            waits.extend(its_waits);
            own += its_own;
        }
    });
    let took = begun.elapsed();
    let stats = archive.stats();
    archive.close().expect("closed");
    let records = (plan.records * workers) as f64;
    waits.sort_unstable();
    let wait = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{:.0} publications/s, CPU {:.2} us each, of which the workers' append {:.2} us; written {:.2} x payload; \
         {} commits, {} checkpoints, {} fsyncs; durable after {:.1} ms (median), {:.1} (p99), {:.1} (longest); \
         {:.1} MB on disk = {:.2} x what is live",
        records / took.as_secs_f64(),
        (cpu_ms("self") - cpu) as f64 * 1e3 / records,
        own.as_secs_f64() * 1e6 / records,
        (written_bytes() - written) as f64 / (records * plan.payload.len() as f64),
        stats.commits,
        stats.checkpoints,
        stats.fsyncs,
        wait(0.5),
        wait(0.99),
        wait(1.0),
        disk_bytes(folder) as f64 / 1e6,
        disk_bytes(folder) as f64 / (stats.publications * plan.payload.len() as u64) as f64,
    );

    let (cpu, begun) = (cpu_ms("self"), Instant::now());
    let (_archive, loaded) = veche_archive::open(folder, &options).expect("an archive");
    let publications = loaded.publications();
    let read: usize = loaded.map(|channel| channel.publications.len()).sum();
    assert_eq!(read as u64, publications);
    println!(
        "opened with {publications} publications in {:.2} s, CPU {:.2} s",
        begun.elapsed().as_secs_f64(),
        (cpu_ms("self") - cpu) as f64 / 1e3,
    );
}

/// Runs one worker. Returns how long each of its turns took to become durable, and the time spent
/// in `append`.
fn work(worker: u64, archive: &Archive, plan: &Plan) -> (Vec<Duration>, Duration) {
    let me = thread::current();
    let mut writer = archive.writer(move || me.unpark());
    let names: Vec<Arc<str>> = (0..plan.channels)
        .map(|channel| format!("w{worker}:channel-{channel}").into())
        .collect();
    let (mut handed, mut waits, mut own) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut done = 0;
    let mut next = Instant::now();
    while done < plan.records {
        next += plan.pause;
        while !plan.pause.is_zero() && Instant::now() < next {
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
            note(&mut writer, &handed, &mut waits);
        }
        let mut records = Vec::with_capacity(2 * plan.turn as usize);
        for _ in 0..plan.turn {
            let channel = &names[(done % plan.channels) as usize];
            let offset = done / plan.channels + 1;
            let publication = StoredPublication {
                offset,
                at_ms: 1_700_000_000_000 + done,
                kind: 1,
                payload: plan.payload.clone(),
                version: None,
                extra: None,
            };
            records.push(ArchiveRecord::Published {
                channel: Arc::clone(channel),
                epoch: worker,
                publication,
            });
            if offset > plan.window {
                records.push(ArchiveRecord::Trimmed {
                    channel: Arc::clone(channel),
                    below: offset + 1 - plan.window,
                });
            }
            done += 1;
        }
        loop {
            let at = Instant::now();
            let result = writer.append(records);
            own += at.elapsed();
            match result {
                Ok(_) => break,
                Err(AppendError::Full(back) | AppendError::Closed(back)) => records = back,
            }
            thread::park_timeout(Duration::from_millis(100));
            note(&mut writer, &handed, &mut waits);
        }
        handed.push(Instant::now());
        note(&mut writer, &handed, &mut waits);
    }
    while waits.len() < handed.len() {
        thread::park_timeout(Duration::from_millis(100));
        note(&mut writer, &handed, &mut waits);
    }
    (waits, own)
}

fn note(writer: &mut veche_archive::Writer, handed: &[Instant], waits: &mut Vec<Duration>) {
    if let Some(durable) = writer.take_durable() {
        let told = waits.len()..durable.batch as usize;
        waits.extend(handed[told].iter().map(Instant::elapsed));
    }
}

/// Returns the user and system time of all threads of a process in milliseconds. The kernel reports it in hundredths of a
/// second.
fn cpu_ms(process: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("/proc");
    let fields: Vec<&str> = text
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    (ticks(11) + ticks(12)) * 10
}

/// Returns the number of bytes passed to the kernel by `write` and similar calls.
fn written_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").expect("/proc");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("wchar: "))
        .expect("wchar");
    line.parse().expect("a number")
}

fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| {
            entry
                .and_then(|entry| entry.metadata())
                .map_or(0, |meta| meta.len())
        })
        .sum()
}
