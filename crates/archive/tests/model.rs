//! Compares an archive of random records with a plain model. Between batches of records, the archive is
//! closed or killed, and then reopened.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use support::{Folder, Model, Worker, open};
use veche_archive::{ArchiveRecord, FsyncPolicy, StoredPublication, StoredVersion};

/// A step of a test. Each step is possible in every state of the archive.
#[derive(Clone, Debug)]
enum Step {
    /// A batch of the given worker.
    Batch(u8, Vec<Change>),
    /// The archive is closed and reopened.
    Close,
    /// The archive is reopened from a copy of the current files, as after a kill. All data since the last opening is then in
    /// the log: it is too little to cause a checkpoint while the files are copied.
    Kill,
}

#[derive(Clone, Debug)]
enum Change {
    Open(u8, u64),
    /// Publishes at an offset that is `skip` beyond the channel's top; 0 repeats the top offset.
    Publish {
        channel: u8,
        skip: u64,
        size: usize,
        version: Option<(u64, bool)>,
        has_extra: bool,
    },
    /// Trims the history to the given number of publications.
    Trim(u8, u64),
    Clear(u8),
    Drop(u8),
}

fn change() -> impl Strategy<Value = Change> {
    let version = proptest::option::of((any::<u64>(), any::<bool>()));
    prop_oneof![
        1 => (0..4_u8, 0..3_u64).prop_map(|(channel, epoch)| Change::Open(channel, epoch)),
        12 => (0..4_u8, 0..4_u64, 0..3_000_usize, version, any::<bool>()).prop_map(
            |(channel, skip, size, version, has_extra)| Change::Publish { channel, skip, size, version, has_extra }
        ),
        5 => (0..4_u8, 0..6_u64).prop_map(|(channel, kept)| Change::Trim(channel, kept)),
        1 => (0..4_u8).prop_map(Change::Clear),
        1 => (0..4_u8).prop_map(Change::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let batch = (0..2_u8, proptest::collection::vec(change(), 0..10));
    prop_oneof![
        12 => batch.prop_map(|(worker, changes)| Step::Batch(worker, changes)),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
    ]
}

fn record(worker: u8, change: &Change, model: &Model) -> ArchiveRecord {
    // Names that would break SQL or a path.
    let name = |channel: &u8| -> Arc<str> {
        format!("{worker}:'\"\0/é{}", "x".repeat(60 * *channel as usize)).into()
    };
    let known = |channel: &u8| model.0.get(&*name(channel));
    match change {
        Change::Open(channel, epoch) => ArchiveRecord::Opened {
            channel: name(channel),
            epoch: *epoch,
            at_ms: 5,
        },
        Change::Publish {
            channel,
            skip,
            size,
            version,
            has_extra,
        } => ArchiveRecord::Published {
            channel: name(channel),
            epoch: known(channel).map_or(u64::MAX, |stream| stream.epoch),
            publication: StoredPublication {
                offset: known(channel).map_or(0, |stream| stream.top) + skip,
                at_ms: u64::MAX - skip,
                kind: *channel,
                payload: vec![*channel; *size].into(),
                version: version.map(|(number, has_epoch)| StoredVersion {
                    number,
                    epoch: has_epoch.then(|| "of a document".into()),
                }),
                extra: has_extra.then(Bytes::new),
            },
        },
        Change::Trim(channel, kept) => ArchiveRecord::Trimmed {
            channel: name(channel),
            below: (known(channel).map_or(0, |stream| stream.top) + 1).saturating_sub(*kept),
        },
        Change::Clear(channel) => ArchiveRecord::Cleared {
            channel: name(channel),
        },
        Change::Drop(channel) => ArchiveRecord::Dropped {
            channel: name(channel),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn stored_streams_equal_a_model(steps in proptest::collection::vec(step(), 1..40)) {
        let mut folder = Folder::new("model");
        let mut model = Model::default();
        let (mut archive, _) = open(&folder, FsyncPolicy::Never);
        let mut workers = [Worker::new(&archive), Worker::new(&archive)];
        let mut batches = [0, 0];
        for step in steps.iter().chain([&Step::Kill, &Step::Close]) {
            match step {
                Step::Batch(worker, changes) => {
                    let mut records = Vec::new();
                    for change in changes {
                        let record = record(*worker, change, &model);
                        model.apply(&record);
                        records.push(record);
                    }
                    let worker = usize::from(*worker);
                    batches[worker] = workers[worker].append(records);
                    continue;
                }
                Step::Close => archive.close().expect("closed"),
                Step::Kill => {
                    for (worker, batch) in workers.iter_mut().zip(batches) {
                        worker.wait(batch);
                    }
                    let copy = folder.copy("model");
                    drop(archive);
                    folder = copy;
                }
            }
            let (again, loaded) = open(&folder, FsyncPolicy::Never);
            prop_assert_eq!(loaded.warnings(), &[]);
            let expected: u64 = model.0.values().map(|stream| stream.publications.len() as u64).sum();
            prop_assert_eq!(loaded.publications(), expected);
            prop_assert_eq!(&Model::of(loaded), &model);
            let stats = again.stats();
            prop_assert_eq!((stats.publications, stats.streams), (expected, model.0.len() as u64));
            archive = again;
            workers = [Worker::new(&archive), Worker::new(&archive)];
            batches = [0, 0];
        }
    }
}
