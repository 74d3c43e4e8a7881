//! A process that appends is killed at random moments. Afterwards the archive contains all records
//! reported as durable, in order, and no record that was never submitted.

mod support;

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use support::{Folder, Model, Worker, batch, channels_of, marker, open};
use veche_archive::FsyncPolicy;

const WORKERS: u32 = 3;
const FOLDER: &str = "VECHE_ARCHIVE_KILL_FOLDER";

/// The process that the test kills. It does nothing unless the test has started it.
#[test]
fn child() {
    let Ok(folder) = env::var(FOLDER) else {
        return;
    };
    let fsync = match env::var("VECHE_ARCHIVE_KILL_FSYNC").as_deref() {
        Ok("every") => FsyncPolicy::EveryCommit,
        Ok("never") => FsyncPolicy::Never,
        _ => FsyncPolicy::Interval(Duration::from_millis(3)),
    };
    let (archive, loaded) =
        veche_archive::open(folder.as_ref(), &support::options(fsync)).expect("an archive");
    let loaded = Model::of(loaded);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (archive, mut model) = (&archive, channels_of(&loaded, worker));
            scope.spawn(move || {
                let mut writer = Worker::new(archive);
                let first = model.top(&marker(worker)) + 1;
                let mut reported = 0;
                for number in first.. {
                    let records = batch(worker, number, &model);
                    records.iter().for_each(|record| model.apply(record));
                    let at = writer.append(records);
                    // A few batches are in flight at any time.
                    writer.wait(at.saturating_sub(4));
                    if writer.durable > reported {
                        reported = writer.durable;
                        let checkpoints = archive.stats().checkpoints;
                        let line =
                            format!("durable {worker} {} {checkpoints}\n", first - 1 + reported);
                        let mut out = std::io::stdout().lock();
                        out.write_all(line.as_bytes())
                            .and_then(|()| out.flush())
                            .expect("the parent reads");
                    }
                }
            });
        }
    });
}

fn kill_again_and_again(kills: u32, fsync: &str) {
    let seed = env::var("VECHE_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("a number"),
    );
    println!("VECHE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new("kill");
    let mut models = vec![Model::default(); WORKERS as usize];
    let mut acknowledged = vec![0_u64; WORKERS as usize];
    let mut checkpoints = 0;
    for _ in 0..kills {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "child", "--nocapture"])
            .env(FOLDER, folder.path())
            .env("VECHE_ARCHIVE_KILL_FSYNC", fsync)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        // The process may be killed at any moment after its first output.
        let mut left = random.u32(1..150);
        let mut its_checkpoints = 0;
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        for line in lines.by_ref() {
            if let Some(count) = note(&line.expect("a line"), &mut acknowledged) {
                (left, its_checkpoints) = (left - 1, count);
            }
            if left == 0 {
                break;
            }
        }
        let until = std::hint::black_box(random.u32(0..200_000));
        (0..until).for_each(|step| {
            std::hint::black_box(step);
        });
        child.kill().expect("killed");
        // Every record that the child reported as durable before it was killed has to be present.
        for line in lines.map_while(Result::ok) {
            its_checkpoints = note(&line, &mut acknowledged).unwrap_or(its_checkpoints);
        }
        checkpoints += its_checkpoints;
        child.wait().expect("ended");
        assert_eq!(left, 0, "the child ended by itself");

        // The test opens a copy, so that the next child finds the files as the kill left them.
        let copy = folder.copy("kill-copy");
        let (archive, loaded) = open(&copy, FsyncPolicy::Never);
        let loaded = Model::of(loaded);
        for worker in 0..WORKERS {
            let (model, acknowledged) =
                (&mut models[worker as usize], acknowledged[worker as usize]);
            let found = channels_of(&loaded, worker);
            let last = found.top(&marker(worker));
            assert!(
                last >= acknowledged,
                "worker {worker}: {acknowledged} was durable, {last} is there"
            );
            for number in model.top(&marker(worker)) + 1..=last {
                for record in batch(worker, number, model) {
                    model.apply(&record);
                }
            }
            assert_eq!(&found, model, "worker {worker} at batch {last}");
        }
        archive.close().expect("closed");
    }
    println!("{kills} kills, batches {acknowledged:?}, {checkpoints} checkpoints");
}

/// Parses an output line of the child. If the line reports durability, returns the number of
/// checkpoints in the line.
fn note(line: &str, acknowledged: &mut [u64]) -> Option<u64> {
    let mut numbers = line
        .strip_prefix("durable ")?
        .split(' ')
        .map(str::parse::<u64>);
    let mut number = || numbers.next()?.ok();
    let (worker, batch, checkpoints) = (number()?, number()?, number()?);
    acknowledged[worker as usize] = batch;
    Some(checkpoints)
}

#[test]
fn durable_batches_survive_kills() {
    kill_again_and_again(50, "interval");
}

#[test]
fn durable_batches_survive_kills_with_fsync_per_commit() {
    kill_again_and_again(20, "every");
}

#[test]
fn durable_batches_survive_kills_without_fsync() {
    kill_again_and_again(20, "never");
}
