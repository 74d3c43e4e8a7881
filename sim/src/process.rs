//! The server process: its workers and the messages between them, all lost in a crash.

use veche_frontends::Now;
use veche_worker::TurnLimits;

use crate::Failure;
use crate::disk::Disk;
use crate::driven::DrivenWorker;
use crate::failure::promise;
use crate::frontend_config;
use crate::lanes::Lanes;
use crate::setup::Setup;
use crate::worker_driver::{Conditions, StartWorkers};

pub(crate) struct Process {
    pub(crate) workers: Vec<DrivenWorker>,
    pub(crate) lanes: Lanes,
}

impl Process {
    /// Starts a process, with the content of a disk if there is one.
    pub(crate) fn begin(
        begin: StartWorkers,
        setup: &Setup,
        count: u16,
        seed: u64,
        now: Now,
        disk: Option<&mut Disk>,
    ) -> Result<Self, Failure> {
        let shared = |me: u16| {
            let mut shared = frontend_config::shared(setup, me, count, seed);
            shared.set_now(now);
            shared
        };
        let mut workers: Vec<_> = (0..count).map(shared).collect();
        if let Some(disk) = disk {
            disk.begin(count);
            for worker in &mut workers {
                worker.hub.enable_log();
            }
            let mut all: Vec<_> = disk.restored().collect();
            all.sort_by_key(|one| one.publications.last().map_or(0, |last| last.at_ms));
            for restored in all {
                let name = veche_hub::ChannelName::new(&restored.channel);
                let home = name.map(|name| workers[0].hub.home_of(name));
                let home = home.map_or(0, |home| usize::from(home.0));
                let channel = restored.channel.clone();
                let is_back = workers[home].hub.restore(restored);
                promise!(
                    is_back == Ok(true),
                    "stored streams are restored",
                    "{channel}: {is_back:?}"
                );
            }
        }
        let conditions = Conditions {
            now,
            limits: TurnLimits {
                deliveries: setup.deliveries_max,
                messages: setup.messages_max,
                connection_work: setup.connection_work,
                event_work: setup.event_work,
                backlog_work: setup.backlog_work,
                app_credits: (setup.credits / 2).max(1),
                ..TurnLimits::default()
            },
            credits: setup.credits,
            low_water_bytes: setup.low_water_bytes,
            room_bytes: setup.pipe_bytes,
            is_logged: setup.is_logged,
        };
        Ok(Self {
            workers: begin(workers, &conditions)
                .into_iter()
                .map(DrivenWorker::new)
                .collect(),
            lanes: Lanes::new(count, setup.messages_max, setup.as_bytes),
        })
    }
}
