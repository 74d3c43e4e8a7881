//! No room on the disk: it is told, nothing is lost, and it goes on when there is room. One test fills a file system
//! of its own, where a process may make one; the other runs into the limit that the system sets for files.

mod support;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Model, Worker, options, published};
use veche_archive::{Error, Fsync, Options};

const FOLDER: &str = "VECHE_ARCHIVE_FULL_FOLDER";

/// Appends until it can't be written, has room made, and finds everything.
fn run_full(folder: &Path, make_room: impl FnOnce()) {
    // What waits is little beside what the disk holds.
    let options = Options {
        queue_bytes_max: 2 << 20,
        ..options(Fsync::EveryCommit)
    };
    let (archive, _) = veche_archive::open(folder, &options).expect("an archive");
    let mut worker = Worker::new(&archive);
    let mut model = Model::default();
    let mut batch = 0;
    loop {
        let record = published("a", 1, batch + 1, vec![3; 50_000]);
        match worker.writer.append(vec![record.clone()]) {
            Ok(number) => {
                batch = number;
                model.apply(&record);
            }
            Err(_) if archive.stats().is_failing => break,
            Err(_) => thread::yield_now(),
        }
        assert!(batch < 4_000, "it is never full");
    }
    let stats = archive.stats();
    println!("full: {:?}", stats.last_error);
    assert!(stats.errors > 0 && stats.last_error.is_some());
    make_room();
    worker.wait(batch);
    let stats = archive.stats();
    assert!(
        !stats.is_failing && stats.queue_bytes == 0 && stats.last_error.is_some(),
        "{stats:?}"
    );
    archive.close().expect("closed");
    let (_archive, loaded) = veche_archive::open(folder, &options).expect("an archive");
    assert_eq!(loaded.warnings(), &[]);
    assert!(Model::of(loaded) == model);
}

fn this_test_again(shell: &str, test: &str, folder: &support::Folder) -> bool {
    let status = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, folder.path())
        .status()
        .expect("a shell");
    assert_ne!(status.code(), Some(101), "see above");
    status.success()
}

#[test]
fn a_full_disk_is_waited_for() {
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let ballast = folder.join("ballast");
        fs::write(&ballast, vec![1; 40 << 20]).expect("room for the ballast");
        run_full(&folder.join("archive"), || {
            fs::remove_file(&ballast).expect("removed")
        });
        println!("recovered");
        return;
    }
    let folder = support::Folder::new("tmpfs");
    fs::create_dir_all(folder.path()).expect("a folder");
    let mount = format!(
        "mount -t tmpfs -o size=56m tmpfs '{}'",
        folder.path().display()
    );
    let attempt = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .output();
    if !attempt.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this system lets no process make a file system of its own");
        return;
    }
    let shell = format!(
        "exec unshare --user --map-root-user --mount sh -c \"{mount} && exec \\\"\\$@\\\"\" sh \"$@\""
    );
    assert!(this_test_again(
        &shell,
        "a_full_disk_is_waited_for",
        &folder
    ));
}

#[test]
fn a_limit_on_files_is_waited_for() {
    if let Some(folder) = env::var_os(FOLDER) {
        run_full(Path::new(&folder), lift_limit);
        println!("recovered");
        return;
    }
    let folder = support::Folder::new("limited");
    // Blocks of 512 bytes: 10 MiB. Who ignores the signal gets an error instead.
    let shell = "trap '' XFSZ; ulimit -S -f 20480; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "a_limit_on_files_is_waited_for",
        &folder
    ));
}

#[test]
fn closing_says_what_could_not_be_written() {
    if let Some(folder) = env::var_os(FOLDER) {
        let (archive, _) =
            veche_archive::open(Path::new(&folder), &options(Fsync::Never)).expect("an archive");
        let mut worker = Worker::new(&archive);
        // Until the queue is full too.
        for offset in 1.. {
            let records = vec![published("a", 1, offset, vec![3; 500_000])];
            if worker.writer.append(records).is_err() && archive.stats().is_failing {
                break;
            }
            thread::yield_now();
        }
        let error = archive.close().expect_err("no room");
        assert!(
            matches!(error, Error::Unwritten { batches: 1.., .. }),
            "{error}"
        );
        println!("told");
        return;
    }
    let folder = support::Folder::new("unwritten");
    let shell = "trap '' XFSZ; ulimit -S -f 20480; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "closing_says_what_could_not_be_written",
        &folder
    ));
}

/// What fails is the commit: the log is full before anything is to be moved into the tables.
#[test]
fn a_failed_commit_is_tried_again_after_a_pause_which_the_end_ends() {
    if let Some(folder) = env::var_os(FOLDER) {
        let patient = patient();
        let (archive, _) = veche_archive::open(Path::new(&folder), &patient).expect("an archive");
        let mut worker = Worker::new(&archive);
        let mut batch = 0;
        while !archive.stats().is_failing {
            let record = published("a", 1, batch + 1, vec![3; 50_000]);
            batch = worker.writer.append(vec![record]).unwrap_or(batch);
            assert!(batch < 4_000, "it is never full");
            thread::yield_now();
        }
        // Each of these wakes the thread.
        for _ in 0..50 {
            let record = published("a", 1, batch + 1, "x");
            batch = worker.writer.append(vec![record]).expect("room for it");
            thread::sleep(Duration::from_millis(2));
        }
        let stats = archive.stats();
        assert_eq!((stats.errors, stats.is_failing), (1, true));
        lift_limit();
        archive.close().expect("written at last");
        let (_archive, loaded) =
            veche_archive::open(Path::new(&folder), &patient).expect("an archive");
        assert_eq!(loaded.publications(), batch);
        println!("kept all");
        return;
    }
    let folder = support::Folder::new("patient");
    // 2 MiB.
    let shell = "trap '' XFSZ; ulimit -S -f 4096; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "a_failed_commit_is_tried_again_after_a_pause_which_the_end_ends",
        &folder
    ));
}

/// What fails is to move the log into the tables: commits go on.
#[test]
fn failed_upkeep_is_tried_again_after_a_pause() {
    if let Some(folder) = env::var_os(FOLDER) {
        let (archive, _) = veche_archive::open(Path::new(&folder), &patient()).expect("an archive");
        let mut worker = Worker::new(&archive);
        let mut batch = 0;
        // The tables have room at first, and at last no more.
        while archive.stats().errors == 0 {
            let record = published("a", 1, batch + 1, vec![3; 200_000]);
            batch = worker.append(vec![record]);
            worker.wait(batch);
            assert!(batch < 100, "it is never full");
            // Beyond the time after which the size of the files is looked at.
            thread::sleep(Duration::from_millis(5));
        }
        let checkpoints = archive.stats().checkpoints;
        for _ in 0..20 {
            batch = worker.append(vec![published("a", 1, batch + 1, "x")]);
            worker.wait(batch);
        }
        let stats = archive.stats();
        assert!(checkpoints > 0);
        assert_eq!(
            (stats.errors, stats.checkpoints),
            (1, checkpoints),
            "{stats:?}"
        );
        assert!(!stats.is_failing, "the commits have worked");
        lift_limit();
        archive.close().expect("closed");
        println!("kept all");
        return;
    }
    let folder = support::Folder::new("upkeep");
    // 12 MiB.
    let shell = "trap '' XFSZ; ulimit -S -f 24576; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "failed_upkeep_is_tried_again_after_a_pause",
        &folder
    ));
}

/// Tries again after the end of each test.
fn patient() -> Options {
    Options {
        retry: Duration::from_secs(3600),
        ..options(Fsync::EveryCommit)
    }
}

fn lift_limit() {
    let limit = getrlimit(Resource::Fsize);
    let lifted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Fsize, lifted).expect("no limit");
}
