//! The server process: its workers and the mail between them. A crash loses all of it.

use veche_frontends::Now;

use crate::Failure;
use crate::disk::Disk;
use crate::failure::promise;
use crate::lanes::Lanes;
use crate::setup::Setup;
use crate::site;
use crate::worker::Worker;

pub(crate) struct Process {
    pub(crate) workers: Vec<Worker>,
    pub(crate) lanes: Lanes,
}

impl Process {
    /// One that begins; with what a disk has kept, if there is one.
    pub(crate) fn begin(
        setup: &Setup,
        count: u16,
        seed: u64,
        now: Now,
        disk: Option<&mut Disk>,
    ) -> Result<Self, Failure> {
        let worker = |me: u16| {
            let mut shared = site::shared(setup, me, count, seed);
            shared.set_now(now);
            Worker::new(shared, setup)
        };
        let mut workers: Vec<_> = (0..count).map(worker).collect();
        if let Some(disk) = disk {
            disk.begin(count);
            for worker in &mut workers {
                worker.shared_mut().hub.keep_log();
            }
            let mut all: Vec<_> = disk.restored().collect();
            all.sort_by_key(|one| one.publications.last().map_or(0, |last| last.at_ms));
            for restored in all {
                let name = veche_hub::ChannelName::new(&restored.channel);
                let home = name.map(|name| workers[0].shared().hub.home_of(name));
                let home = home.map_or(0, |home| usize::from(home.0));
                let channel = restored.channel.clone();
                let is_back = workers[home].shared_mut().hub.restore(restored);
                promise!(
                    is_back == Ok(true),
                    "what was kept comes back",
                    "{channel}: {is_back:?}"
                );
            }
        }
        Ok(Self {
            workers,
            lanes: Lanes::new(count),
        })
    }
}
