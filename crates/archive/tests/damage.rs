//! Tests archives with damaged files: torn ends and flipped bytes.

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use support::{Folder, Model, Worker, batch, marker, open, published};
use veche_archive::{ArchiveRecord, Error, FsyncPolicy, LoadedStreams, Warning};

const FRAME_BYTES: usize = 24 + 8192;

/// Returns an archive as it is after its process was killed, with all data in its log, and the expected
/// content after each batch.
fn archive_with_log(name: &str, batches: u64) -> (Folder, Vec<Model>) {
    let folder = Folder::new(name);
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    let mut worker = Worker::new(&archive);
    let mut models = vec![Model::default()];
    for number in 1..=batches {
        let mut model = models[models.len() - 1].clone();
        let records = batch(0, number, &model);
        records.iter().for_each(|record| model.apply(record));
        let at = worker.append(records);
        worker.wait(at);
        models.push(model);
    }
    let copy = folder.copy(name);
    let bytes = fs::metadata(wal_path(&copy)).expect("the log").len();
    assert!(
        bytes < 900 * FRAME_BYTES as u64,
        "{bytes}: some of it may be in the tables"
    );
    (copy, models)
}

/// The reported state of the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    Nothing,
    /// The log ended with an incomplete commit.
    Torn,
    /// The log lost commits, and all epochs are new.
    Lost,
}

/// Returns the number of the last batch that the archive has, and the reported state of the end of the log.
fn state_of(loaded: LoadedStreams, models: &[Model]) -> (usize, TailState) {
    let state = match loaded.warnings() {
        [] => TailState::Nothing,
        [Warning::Tail { bytes: 1.. }] => TailState::Torn,
        [Warning::Cut { bytes: 1.., .. }] => TailState::Lost,
        others => panic!("{others:?}"),
    };
    let mut model = Model::of(loaded);
    let last = model.top(&marker(0)) as usize;
    if state == TailState::Lost {
        for (name, channel) in &mut model.0 {
            let before = models[last].0[name].epoch;
            assert_ne!(channel.epoch, before, "{name} keeps its epoch over a gap");
            channel.epoch = before;
        }
    }
    assert!(
        model == models[last],
        "not what was there after batch {last}"
    );
    (last, state)
}

fn wal_path(folder: &Folder) -> std::path::PathBuf {
    folder.path().join("history.sqlite-wal")
}

#[test]
fn a_torn_end_is_cut_off_and_all_before_it_is_used() {
    let (folder, models) = archive_with_log("torn", 60);
    let whole = fs::read(wal_path(&folder)).expect("the log");
    let mut random = fastrand::Rng::with_seed(11);
    let mut seen = 0;
    for round in 0..40 {
        let copy = folder.copy("torn-copy");
        let length = if round == 0 {
            whole.len() - 1
        } else {
            random.usize(40..whole.len())
        };
        fs::write(wal_path(&copy), &whole[..length]).expect("written");
        let (archive, loaded) = open(&copy, FsyncPolicy::Never);
        let (last, state) = state_of(loaded, &models);
        let is_within_a_frame = (length - 32) % FRAME_BYTES > 0;
        assert!(
            state == TailState::Torn || !is_within_a_frame,
            "cut at {length}, {last} batches: {state:?}"
        );
        assert_ne!(
            state,
            TailState::Lost,
            "cut at {length}: a kill may have done that"
        );
        seen += usize::from(0 < last && last < 60);
        // New batches can be stored after the loss.
        let mut worker = Worker::new(&archive);
        worker.append(vec![published("next", 1, 1, "x")]);
        archive.close().expect("closed");
        let (_archive, loaded) = open(&copy, FsyncPolicy::Never);
        assert_eq!(loaded.warnings(), &[]);
        let mut model = Model::of(loaded);
        assert!(model.0.remove("next").is_some());
        assert!(model == models[last]);
    }
    assert!(seen > 20, "{seen}");
}

/// Simulates a kill of the process while it writes the header of a frame, or soon afterwards.
#[test]
fn an_end_of_a_few_bytes_is_reported() {
    let (folder, models) = archive_with_log("header", 3);
    let whole = fs::read(wal_path(&folder)).expect("the log");
    for length in [1, 23, 24, 25] {
        let copy = folder.copy("header-copy");
        let begun = &whole[32..32 + length];
        fs::write(wal_path(&copy), [&whole, begun].concat()).expect("written");
        let (_archive, loaded) = open(&copy, FsyncPolicy::Never);
        let bytes = length as u64;
        assert_eq!(loaded.warnings(), [Warning::Tail { bytes }]);
        assert_eq!(state_of(loaded, &models), (3, TailState::Torn));
    }
}

#[test]
fn a_garbled_log_is_used_up_to_where_it_is_garbled() {
    let (folder, models) = archive_with_log("garbled", 20);
    let whole = fs::read(wal_path(&folder)).expect("the log");
    let mut random = fastrand::Rng::with_seed(12);
    for _ in 0..40 {
        let mut bytes = whole.clone();
        let at = random.usize(..bytes.len());
        let end = bytes.len().min(at + random.usize(1..64));
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        lost_or_whole(&folder, &bytes, at, &models);
    }
}

#[test]
fn a_flipped_byte_in_the_log_never_leaves_a_gap_under_the_same_epoch() {
    let (folder, models) = archive_with_log("bit", 20);
    let whole = fs::read(wal_path(&folder)).expect("the log");
    let mut random = fastrand::Rng::with_seed(14);
    let last_frame = whole.len() - FRAME_BYTES;
    // Damages each byte of the last commit's header, and some bytes elsewhere.
    let header = last_frame..last_frame + 24;
    let anywhere = std::iter::repeat_with(|| random.usize(32..whole.len()));
    let mut lost = 0;
    for at in header.chain(anywhere.take(80)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        lost += usize::from(lost_or_whole(&folder, &bytes, at, &models));
    }
    assert!(lost > 80, "{lost}");
}

/// Opens the archive with a log that is damaged at an offset. Returns whether commits were lost. If
/// so, the epochs are renewed, and a further start loses nothing; otherwise all batches are
/// present.
fn lost_or_whole(folder: &Folder, log: &[u8], at: usize, models: &[Model]) -> bool {
    let copy = folder.copy("damaged-log");
    fs::write(wal_path(&copy), log).expect("written");
    let (archive, loaded) = open(&copy, FsyncPolicy::EveryCommit);
    let epochs: Vec<_> = { models[models.len() - 1].0.values() }
        .map(|channel| channel.epoch)
        .collect();
    let (last, state) = state_of(loaded, models);
    let is_whole = last + 1 == models.len();
    assert_eq!(
        (state == TailState::Lost, state),
        (
            !is_whole,
            if is_whole {
                TailState::Nothing
            } else {
                TailState::Lost
            }
        ),
        "damaged at {at}, {last} batches"
    );
    // The process is killed before it writes anything else. The log is too short for a checkpoint in between.
    assert!(log.len() < 240 * FRAME_BYTES);
    let killed = copy.copy("damaged-log-killed");
    drop(archive);
    let (_archive, again) = open(&killed, FsyncPolicy::EveryCommit);
    assert_eq!(again.warnings(), &[], "damaged at {at}");
    for channel in again {
        assert!(is_whole || !epochs.contains(&channel.epoch));
    }
    !is_whole
}

/// Returns an archive whose tables hold all `records`, and the offset of `words` in its file.
fn archive_with_tables(name: &str, records: Vec<ArchiveRecord>, words: &[u8]) -> (Folder, usize) {
    let folder = Folder::new(name);
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    Worker::new(&archive).append(records);
    archive.close().expect("closed");
    assert!(!wal_path(&folder).exists());
    let bytes = fs::read(file_of(folder.path())).expect("the file");
    let at = bytes
        .windows(words.len())
        .position(|window| window == words)
        .expect("the words");
    (folder, at)
}

fn file_of(folder: &Path) -> std::path::PathBuf {
    folder.join("history.sqlite")
}

fn flip(folder: &Folder, at: usize) {
    let mut bytes = fs::read(file_of(folder.path())).expect("the file");
    bytes[at] ^= 1;
    fs::write(file_of(folder.path()), bytes).expect("written");
}

fn four() -> Vec<ArchiveRecord> {
    let other = published("other", 9, 1, "untouched");
    let words = ["first words", "second words", "third words", "fourth words"];
    (1..)
        .zip(words)
        .map(|(offset, words)| published("news", 9, offset, words))
        .chain([other])
        .collect()
}

#[test]
fn history_before_a_damaged_publication_is_left_out() {
    let (folder, at) = archive_with_tables("flipped", four(), b"second words");
    flip(&folder, at + 3);
    for round in 0..2 {
        let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
        let news: Arc<str> = "news".into();
        let expected = Warning::History {
            channel: news,
            offset: 2,
        };
        // The damage is reported once; the next start is clean.
        assert_eq!(
            loaded.warnings(),
            if round == 0 {
                vec![expected]
            } else {
                Vec::new()
            }
        );
        let model = Model::of(loaded);
        let offsets: Vec<u64> = model.0["news"]
            .publications
            .iter()
            .map(|publication| publication.offset)
            .collect();
        assert_eq!(
            (offsets, model.top("news"), model.0["news"].epoch),
            (vec![3, 4], 4, 9)
        );
        assert_eq!(model.0["other"].publications.len(), 1);
    }
}

#[test]
fn a_stream_whose_top_is_damaged_is_forgotten() {
    for words in [b"fourth words".as_slice(), b"news"] {
        let (folder, at) = archive_with_tables("flipped", four(), words);
        flip(&folder, at);
        let (archive, loaded) = open(&folder, FsyncPolicy::Never);
        assert!(
            matches!(loaded.warnings(), [Warning::Stream { .. }]),
            "{:?}",
            loaded.warnings()
        );
        assert_eq!(Model::of(loaded).0.keys().collect::<Vec<_>>(), ["other"]);
        archive.close().expect("closed");
        let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
        assert_eq!((loaded.warnings().len(), loaded.publications()), (0, 1));
    }
}

#[test]
fn no_damage_makes_it_panic() {
    let (folder, _) = archive_with_tables("anywhere", four(), b"first words");
    let bytes = fs::read(file_of(folder.path())).expect("the file");
    let mut random = fastrand::Rng::with_seed(13);
    for _ in 0..60 {
        let copy = folder.copy("anywhere-copy");
        let mut bytes = bytes.clone();
        for _ in 0..random.usize(1..40) {
            // Damages mostly bytes where pages contain data: in headers and at the ends of pages.
            let page = random.usize(..bytes.len() / 8192) * 8192;
            let at = if random.bool() {
                page + random.usize(..120)
            } else {
                page + 8191 - random.usize(..900)
            };
            bytes[at] = random.u8(..);
        }
        if random.bool() {
            bytes.truncate(random.usize(..bytes.len()));
        }
        fs::write(file_of(copy.path()), &bytes).expect("written");
        if let Ok((_archive, loaded)) =
            veche_archive::open(copy.path(), &support::options(FsyncPolicy::Never))
        {
            for channel in loaded {
                let words: Vec<_> = channel
                    .publications
                    .iter()
                    .map(|publication| &publication.payload[..])
                    .collect();
                let known = four();
                for word in words {
                    let is_known = known.iter().any(|record| match record {
                        ArchiveRecord::Published { publication, .. } => publication.payload == word,
                        _ => false,
                    });
                    assert!(is_known, "{word:?} was never written");
                }
            }
        }
    }
}

/// Returns a closed archive with free pages, and the offset of the pointer to the first free page.
fn archive_with_free_pages(name: &str) -> (Folder, usize) {
    let folder = Folder::new(name);
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    let mut worker = Worker::new(&archive);
    let long = (5..=40).map(|offset| published("news", 9, offset, vec![1; 20_000]));
    let last = worker.append(four().into_iter().chain(long).collect());
    worker.wait(last);
    let last = worker.append(vec![ArchiveRecord::Trimmed {
        channel: "news".into(),
        below: 39,
    }]);
    worker.wait(last);
    archive.close().expect("closed");
    let bytes = fs::read(file_of(folder.path())).expect("the file");
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
    let (first, count) = (word(32), word(36));
    assert!(first > 0 && count > 20, "{first} {count}");
    (folder, (first as usize - 1) * 8192)
}

#[test]
fn damage_that_reading_does_not_touch_is_found_at_the_start() {
    let (folder, free) = archive_with_free_pages("untouched");
    let whole = fs::read(file_of(folder.path())).expect("the file");
    let (user_version, application) = (60, 68);
    let schema = whole.windows(5).position(|text| text == b"TABLE");
    let places = [
        ("the list of free pages", free..free + 64),
        ("the page of pointers", 8192..8192 + 64),
        (
            "the text of a table",
            schema.map_or(0..0, |at| at + 40..at + 41),
        ),
        ("the format's number", user_version..user_version + 1),
        ("the format's number", user_version + 3..user_version + 4),
        ("whose file it is", application..application + 1),
    ];
    for (what, place) in places {
        let copy = folder.copy("untouched-copy");
        let mut bytes = whole.clone();
        bytes[place].iter_mut().for_each(|byte| *byte ^= 0x41);
        fs::write(file_of(copy.path()), &bytes).expect("written");
        let opened = veche_archive::open(copy.path(), &support::options(FsyncPolicy::Never));
        let Err(Error::Damaged { .. }) = opened else {
            panic!("{what}: {:?}", opened.map(|(_, loaded)| loaded));
        };
        let aside = veche_archive::set_aside(copy.path()).expect("a folder");
        assert_eq!(fs::read(file_of(&aside)).expect("kept"), bytes);
        let (_archive, loaded) = open(&copy, FsyncPolicy::Never);
        assert_eq!((loaded.len(), loaded.warnings().len()), (0, 0), "{what}");
    }
}

#[test]
fn damage_that_comes_while_it_is_open_ends_the_archive_and_is_set_aside_at_the_next_start() {
    let folder = Folder::new("rotten");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    // The data exceeds SQLite's cache in memory.
    let long = (1..=150).map(|offset| published("news", 9, offset, vec![1; 200_000]));
    Worker::new(&archive).append(long.collect());
    archive.close().expect("closed");
    let (archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.publications(), 150);
    let mut bytes = fs::read(file_of(folder.path())).expect("the file");
    bytes[5 * 8192..].fill(0xff);
    fs::write(file_of(folder.path()), &bytes).expect("written");
    let mut worker = Worker::new(&archive);
    worker.append(vec![ArchiveRecord::Cleared {
        channel: "news".into(),
    }]);
    while !worker.writer.is_closed() {
        std::thread::yield_now();
    }
    let error = archive.close().expect_err("it could not be written");
    assert!(
        matches!(error, Error::Unwritten { batches: 1.., .. }),
        "{error}"
    );
    let opened = veche_archive::open(folder.path(), &support::options(FsyncPolicy::Never));
    assert!(matches!(opened, Err(Error::Damaged { .. })));
    veche_archive::set_aside(folder.path()).expect("a folder");
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.len(), 0);
}
