//! Messages between workers: in order within a lane, in any order between lanes, with credits for data.

use std::collections::VecDeque;

use fastrand::Rng;
use veche_worker::WorkerMessage;

use crate::apps::BackEndApp;
use crate::watch::Watch;

/// What workers of a world send each other.
pub(crate) type Message = WorkerMessage<<BackEndApp as veche_worker::AppHost>::Message>;

/// All lanes, each from one worker to another.
pub(crate) struct Lanes {
    workers: usize,
    lanes: Vec<Lane>,
    /// By worker: so many messages are there to be taken, and all others are late.
    due: Vec<usize>,
    /// In which order publications are served, where that is looked at.
    pub(crate) watch: Option<Watch>,
}

#[derive(Default)]
struct Lane {
    messages: VecDeque<Message>,
    /// Data that was sent and is not finished.
    unfinished: u32,
}

impl Lanes {
    pub(crate) fn new(workers: u16) -> Self {
        let workers = usize::from(workers);
        Self {
            workers,
            lanes: (0..workers * workers).map(|_| Lane::default()).collect(),
            due: vec![usize::MAX; workers],
            watch: None,
        }
    }

    fn at(&mut self, from: usize, to: usize) -> &mut Lane {
        &mut self.lanes[from * self.workers + to]
    }

    pub(crate) fn unfinished(&mut self, from: usize, to: usize) -> u32 {
        self.at(from, to).unfinished
    }

    pub(crate) fn post(&mut self, from: usize, to: usize, message: Message) {
        if let Some(watch) = &mut self.watch {
            watch.posted(from, to, &message);
        }
        let lane = self.at(from, to);
        lane.unfinished += u32::from(message.is_data());
        lane.messages.push_back(message);
    }

    /// `to` has finished so much data of `from`. Whether it had got as much.
    pub(crate) fn finish(&mut self, from: usize, to: usize, count: u32) -> bool {
        let lane = self.at(from, to);
        let left = lane.unfinished.checked_sub(count);
        lane.unfinished = left.unwrap_or(0);
        left.is_some()
    }

    /// The next message for a worker, of any lane.
    pub(crate) fn next(&mut self, to: usize, random: &mut Rng) -> Option<(usize, Message)> {
        let begin = random.usize(0..self.workers);
        if self.due[to] == 0 {
            return None;
        }
        let found = (0..self.workers).find_map(|step| {
            let from = (begin + step) % self.workers;
            let message = self.at(from, to).messages.pop_front();
            message.map(|message| (from, message))
        });
        if let Some((_, message)) = &found {
            self.due[to] = self.due[to].saturating_sub(1);
            if let Some(watch) = &mut self.watch {
                watch.taken(to, message);
            }
        }
        found
    }

    /// A worker has ended its turn.
    pub(crate) fn turned(&mut self, worker: usize) {
        if let Some(watch) = &mut self.watch {
            watch.turned(worker);
        }
    }

    /// Of what is for a worker so many messages are there to be taken, until this is said again.
    pub(crate) fn set_due(&mut self, to: usize, messages: usize) {
        self.due[to] = messages;
    }

    /// The most data that is unfinished in any lane.
    pub(crate) fn unfinished_max(&self) -> u32 {
        let all = self.lanes.iter().map(|lane| lane.unfinished);
        all.max().unwrap_or(0)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let mut all = self.lanes.iter();
        all.all(|lane| lane.messages.is_empty() && lane.unfinished == 0)
    }
}
