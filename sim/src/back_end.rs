//! What the back end does: it publishes, has things done, and holds what it is answered against the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use veche_hub::{
    Answer, Deed, Instruction, Outcome, PayloadKind, PayloadRef, PublishOptions, Question, Ticket,
};

use crate::channels::{self, CHANNELS};
use crate::failure::{Check, promise};
use crate::ledger::Source;
use crate::seen::Event;
use crate::worker::BACK_END;
use crate::world::{World, channel_name};

/// A repetition comes in time to be known for one: keys are kept for five minutes.
const REPEATED_WITHIN_MS: u64 = 60_000;

/// What the back end knows, for one life of the process.
#[derive(Default)]
pub(crate) struct BackEnd {
    /// What it asked, by ticket.
    asked: Vec<Asked>,
    /// The answers to questions.
    pub(crate) heard: Vec<(usize, Answer)>,
    /// What it published last, by channel.
    latest: BTreeMap<usize, Pushed>,
}

/// What the back end waits for.
pub(crate) enum Asked {
    Publication(usize, u64),
    /// History that is let go of.
    Removal,
    /// What is looked at when everything has settled.
    Question,
}

#[derive(Clone, Copy)]
struct Pushed {
    number: u64,
    worker: usize,
    pad: u16,
    at_ms: u64,
}

impl World {
    /// The back end asks for something, and gets a ticket.
    pub(crate) fn ticket(&mut self, asked: Asked) -> Ticket {
        self.back_end.asked.push(asked);
        Ticket(self.back_end.asked.len() as u32 - 1)
    }

    /// Publishes something new so many times.
    pub(crate) fn push(&mut self, worker: usize, channel: usize, pad: u16, times: u8) -> Check {
        for _ in 0..times {
            let source = self.ledger.life * 8 + worker as Source;
            let number = self.ledger.publish(channel, source);
            let pushed = Pushed {
                number,
                worker,
                pad,
                at_ms: self.now_ms,
            };
            self.publish(channel, pushed)?;
        }
        Ok(())
    }

    /// Publishes once more what was published last, as a back end does that got no answer.
    pub(crate) fn push_again(&mut self, channel: usize) -> Check {
        let latest = self.back_end.latest.get(&channel);
        let latest = latest.filter(|latest| self.now_ms - latest.at_ms < REPEATED_WITHIN_MS);
        match latest.copied() {
            Some(latest) => {
                self.ledger.seen.note(Event::Repeated);
                self.publish(channel, latest)
            }
            None => Ok(()),
        }
    }

    fn publish(&mut self, channel: usize, pushed: Pushed) -> Check {
        let number = pushed.number;
        let ticket = self.ticket(Asked::Publication(channel, number));
        let pad = "x".repeat(pushed.pad.into());
        let data = json!({ "n": number, "p": pad }).to_string();
        let payload = PayloadRef {
            kind: PayloadKind::Json,
            bytes: data.as_bytes(),
        };
        let terms = Arc::new(PublishOptions {
            idempotency_key: Some(number.to_string().into()),
            ..PublishOptions::default()
        });
        let now = self.now();
        let shared = self.process.workers[pushed.worker].shared_mut();
        shared.set_now(now);
        let from = Some((BACK_END, ticket));
        let name = channel_name(channel);
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        let outcome = hub.publish(from, name, payload, Some(&terms), ports);
        if outcome.is_ok() {
            self.back_end.latest.insert(channel, pushed);
        }
        match outcome {
            Ok(Outcome::Done(published)) => {
                self.ledger.seen.note(Event::TakenAtOnce);
                self.answered(ticket, Answer::Published(published))
            }
            Ok(Outcome::Pending) => Ok(()),
            Err(_) => {
                self.ledger.seen.note(Event::Refused);
                // Another try of what was taken changes nothing.
                let latest = self.back_end.latest.get(&channel);
                if latest.is_none_or(|latest| latest.number != number) {
                    self.ledger.refused(channel, number);
                }
                Ok(())
            }
        }
    }

    /// Has a channel's history let go of.
    pub(crate) fn clear(&mut self, worker: usize, channel: usize) -> Check {
        if !CHANNELS[channel].kind.remembers() {
            return Ok(());
        }
        self.ledger.clear(channel);
        self.ledger.seen.note(Event::Cleared);
        let ticket = self.ticket(Asked::Removal);
        let now = self.now();
        let shared = self.process.workers[worker].shared_mut();
        shared.set_now(now);
        let name = channel_name(channel);
        let to = (BACK_END, ticket);
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        match hub.ask(to, name, Question::RemoveHistory, ports) {
            Outcome::Done(answer) => self.answered(ticket, answer),
            Outcome::Pending => Ok(()),
        }
    }

    /// Disconnects a user.
    pub(crate) fn kick(&mut self, worker: usize, user: u8) -> Check {
        let user = CHANNELS[channels::own_channel(user.into())].user;
        let deed = Deed::Disconnect {
            code: 3503,
            reason: "go".into(),
        };
        let now = self.now();
        let shared = self.process.workers[worker].shared_mut();
        shared.set_now(now);
        let instruction = Instruction::to_all(deed);
        let user = user.unwrap_or_default();
        let told = shared
            .hub
            .instruct(None, user, instruction, &mut shared.ports);
        promise!(told.is_ok(), "users can be disconnected", "{told:?}");
        Ok(())
    }

    /// What the back end asked is answered.
    pub(crate) fn answered(&mut self, Ticket(ticket): Ticket, answer: Answer) -> Check {
        match (self.back_end.asked.get(ticket as usize), answer) {
            (Some(&Asked::Publication(channel, number)), Answer::Published(published)) => {
                self.ledger.trace.note(&[channel as u64, number]);
                self.ledger.taken(channel, number);
                let is_kept = CHANNELS[channel].kind.remembers();
                promise!(
                    published.position.is_some() == is_kept,
                    "what is kept has a place",
                    "{published:?}"
                );
                if let Some(position) = published.position {
                    let place = (position.epoch.bits(), position.offset);
                    let life = self.ledger.life;
                    self.ledger.placed(channel, number, place, life)?;
                }
            }
            (Some(Asked::Question), answer) => self.back_end.heard.push((ticket as usize, answer)),
            (Some(Asked::Removal), Answer::HistoryRemoved(Ok(()))) => {}
            (_, answer) => promise!(false, "answers are to what was asked", "{answer:?}"),
        }
        Ok(())
    }
}
