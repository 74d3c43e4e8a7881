//! The operation of the logs, and crashes of the process at any moment.

use std::collections::VecDeque;

use veche_hub::WorkerId;

use super::{World, remembered};
use crate::common::session;

impl World {
    /// Performs one random operation on the log of a worker, or crashes the process.
    pub(super) fn step_of_log(&mut self, random: &mut fastrand::Rng) {
        let worker = WorkerId(random.u16(0..self.hubs.len() as u16));
        let place = usize::from(worker.0);
        let Some(disk) = &mut self.disk else { return };
        match random.u8(0..100) {
            0..40 => {
                if let Some(batch) = self.hubs[place].take_batch(random.u8(0..8) == 0) {
                    disk.take(place, batch);
                }
            }
            40..70 => {
                disk.commit(place);
            }
            70..99 => self.tell(worker),
            _ if random.bool() => self.crash(random),
            _ => self.check_disk_of_all(),
        }
    }

    /// Writes all queued batches of a worker's log and reports them. Returns `false` if there were none.
    pub(super) fn write_log(&mut self, worker: WorkerId) -> bool {
        let place = usize::from(worker.0);
        let Some(disk) = &mut self.disk else {
            return false;
        };
        if let Some(batch) = self.hubs[place].take_batch(true) {
            disk.take(place, batch);
        }
        let was_quiet = disk.is_quiet();
        while disk.commit(place) {}
        self.tell(worker);
        !was_quiet
    }

    /// Reports to the hub of a worker which batch of its log is durable.
    fn tell(&mut self, worker: WorkerId) {
        let Some(disk) = &mut self.disk else { return };
        let log = &mut disk.logs[usize::from(worker.0)];
        log.reported = log.committed;
        let reported = log.reported;
        let (hub, mut port) = self.at(worker);
        hub.batch_durable(reported, &mut port);
    }

    /// Crashes the process and starts another one.
    fn crash(&mut self, random: &mut fastrand::Rng) {
        // Before the crash, some submitted batches still reach the disk, but this is not reported.
        if let Some(disk) = &mut self.disk {
            for place in 0..self.hubs.len() {
                for _ in 0..random.usize(0..3) {
                    disk.commit(place);
                }
            }
        }
        self.check_disk_of_all();
        let wires = &mut self.wires;
        for ticket in std::mem::take(&mut wires.current).into_values() {
            let life = wires.lives.get_mut(&ticket).expect("members have a life");
            life.ended = true;
        }
        wires.lanes.clear();
        wires.taken.clear();
        wires.returning.clear();
        wires.published.clear();
        let Some(disk) = &self.disk else { return };
        // The next process restores all written publications, including those that were not delivered.
        for channel in &self.channels {
            let Some(kept) = disk.streams.get(channel) else {
                wires.epochs.remove(channel);
                continue;
            };
            let order = wires.orders.entry(channel.clone()).or_default();
            for offset in order.len() as u64 + 1..=kept.top {
                let payload = &kept.publications[&offset].payload;
                let number = payload.bytes[..].try_into().expect("eight bytes");
                order.push(u64::from_le_bytes(number));
            }
        }
        let workers = random.u16(1..=4);
        let indices = 0..self.sessions[0].len() as u32;
        self.sessions = vec![indices.map(session).collect(); workers.into()];
        self.paused = vec![VecDeque::new(); workers.into()];
        self.begin(workers, random.u64(..));
    }

    /// Checks that every delivered publication is on disk, with its epoch and in order, unless it exceeds the history
    /// size.
    fn check_disk_of_all(&self) {
        let Some(disk) = &self.disk else { return };
        for channel in self.channels.iter().filter(|name| remembered(name) > 0) {
            let order = self.wires.orders.get(channel);
            let order = order.map_or(&[][..], Vec::as_slice);
            let Some(kept) = disk.streams.get(channel) else {
                assert!(order.is_empty(), "{channel} was lost");
                continue;
            };
            let epoch = self.wires.epochs.get(channel);
            assert!(epoch.is_none_or(|epoch| *epoch == kept.epoch), "{channel}");
            assert!(kept.top >= order.len() as u64, "{channel} was cut");
            let lowest = (order.len() as u64).saturating_sub(remembered(channel) as u64);
            for (number, offset) in order.iter().zip(1..).filter(|(_, at)| *at > lowest) {
                let bytes = &kept.publications[&offset].payload.bytes;
                assert_eq!(bytes[..], number.to_le_bytes(), "{channel} at {offset}");
            }
        }
    }

    /// Checks that, once everything is written, the disk stores exactly the publications that the history size
    /// requires.
    pub(super) fn check_disk(&self) {
        self.check_disk_of_all();
        let streams = self.disk.iter().flat_map(|disk| &disk.streams);
        for (channel, kept) in streams {
            let count = kept.publications.len();
            let due = remembered(channel).min(kept.top as usize);
            assert_eq!(count, due, "{channel}");
        }
    }
}
