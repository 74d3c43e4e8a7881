//! Compares libraries that could store the archive of channel history. The load is that of the
//! archive: publications of many channels are appended in groups, the oldest publications of a
//! channel are trimmed as its window slides, and everything is read once, in order, at the start of
//! the server.
//!
//! `archive-candidates LIBRARY FOLDER [bytes=128] [records=1000000] [window=50] [channels=10000]
//! [group=500] [sync=no|yes] [order=robin|skewed]` prints one line of figures, then reopens the
//! folder and reads it back.

mod candidates;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The changes that are committed together.
pub struct Group<'a> {
    /// Sequence number, channel and offset of each appended publication.
    pub appended: Vec<(u64, u32, u64)>,
    /// Sequence number, channel and offset of each trimmed publication.
    pub trimmed: Vec<(u64, u32, u64)>,
    pub payload: &'a [u8],
}

struct Plan {
    bytes: usize,
    records: u64,
    window: usize,
    channels: u32,
    group: u64,
    is_synced: bool,
    is_skewed: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, folder, rest @ ..] = arguments.as_slice() else {
        panic!("LIBRARY FOLDER [name=value…]");
    };
    let value = |name: &str, default: &str| -> String {
        let found = rest
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or(default).to_owned()
    };
    let number = |name, default| value(name, default).parse::<u64>().expect("a number");
    let plan = Plan {
        bytes: number("bytes", "128") as usize,
        records: number("records", "1000000"),
        window: number("window", "50") as usize,
        channels: number("channels", "10000") as u32,
        group: number("group", "500"),
        is_synced: value("sync", "no") == "yes",
        is_skewed: value("order", "robin") == "skewed",
    };
    let folder = PathBuf::from(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    append(library, &folder, &plan);
    open(library, &folder, &plan);
}

fn append(library: &str, folder: &Path, plan: &Plan) {
    let mut store = candidates::open(library, folder, plan.is_synced);
    // About half of the payload does not compress, as in typical JSON.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let payload: Vec<u8> = (0..plan.bytes)
        .map(|at| {
            if at % 2 == 0 {
                b'a'
            } else {
                random(&mut state) as u8
            }
        })
        .collect();
    let mut windows: Vec<(u64, VecDeque<u64>)> = vec![Default::default(); plan.channels as usize];
    let (cpu, written, begun) = (cpu_us(), written_bytes(), Instant::now());
    let mut slowest = 0;
    let mut number = 0;
    while number < plan.records {
        let mut group = Group {
            appended: Vec::new(),
            trimmed: Vec::new(),
            payload: &payload,
        };
        for _ in 0..plan.group {
            let channel = if plan.is_skewed && random(&mut state) % 10 != 0 {
                // Nine of ten publications go to one hundredth of the channels.
                random(&mut state) % u64::from(plan.channels / 100)
            } else if plan.is_skewed {
                random(&mut state) % u64::from(plan.channels)
            } else {
                number % u64::from(plan.channels)
            } as u32;
            let (top, live) = &mut windows[channel as usize];
            *top += 1;
            number += 1;
            live.push_back(number);
            group.appended.push((number, channel, *top));
            if live.len() > plan.window {
                let gone = live.pop_front().expect("more than the window");
                group
                    .trimmed
                    .push((gone, channel, *top - plan.window as u64));
            }
        }
        let at = Instant::now();
        store.commit(&group);
        slowest = slowest.max(at.elapsed().as_micros());
    }
    let took = begun.elapsed();
    let spent = cpu_us() - cpu;
    store.close();
    let payload = plan.records * plan.bytes as u64;
    let live: u64 = windows.iter().map(|(_, live)| live.len() as u64).sum();
    println!(
        "{library:14} {:4} B {} {} | {:>8.0} records/s | CPU {:5.2} us (with close {:5.2}) | \
         written {:5.2} x payload | slowest group {:6.1} ms | disk {:6.1} MB = {:4.2} x live | RSS {} MB",
        plan.bytes,
        if plan.is_skewed { "skewed" } else { "robin" },
        if plan.is_synced { "sync" } else { "no sync" },
        plan.records as f64 / took.as_secs_f64(),
        spent as f64 / plan.records as f64,
        (cpu_us() - cpu) as f64 / plan.records as f64,
        (written_bytes() - written) as f64 / payload as f64,
        slowest as f64 / 1e3,
        disk_bytes(folder) as f64 / 1e6,
        disk_bytes(folder) as f64 / (live * plan.bytes as u64) as f64,
        resident_mb(),
    );
    let expected = live;
    let _ = std::fs::write(folder.with_extension("live"), expected.to_string());
}

fn open(library: &str, folder: &Path, plan: &Plan) {
    let (cpu, begun) = (cpu_us(), Instant::now());
    let mut store = candidates::open(library, folder, plan.is_synced);
    let (records, bytes) = store.read();
    println!(
        "{library:14} opened: {records} records, {} MB in {:.2} s, CPU {:.2} s",
        bytes / 1_000_000,
        begun.elapsed().as_secs_f64(),
        (cpu_us() - cpu) as f64 / 1e6,
    );
    let live = std::fs::read_to_string(folder.with_extension("live")).expect("the count");
    assert!(
        library == "floor" || records.to_string() == live,
        "{live} expected"
    );
    store.close();
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// CPU time of all threads, user and system, which the kernel reports in hundredths of a second.
fn cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat");
    let fields: Vec<&str> = text
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    (ticks(11) + ticks(12)) * 10_000
}

/// Returns the bytes passed to the kernel by `write` and similar calls.
fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("/proc/self/io");
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.expect("wchar").parse().expect("a number")
}

fn resident_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("VmHWM");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        / 1024
}

fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            let entry = entry.expect("an entry");
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
                Ok(meta) => meta.blocks() * 512,
                Err(_) => 0,
            }
        })
        .sum()
}
