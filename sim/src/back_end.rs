//! The back end: publishes, sends commands, and checks replies against the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use veche_hub::{
    ChannelQuery, HistoryPage, HistoryQuery, HubReply, PayloadKind, PayloadRef, PublishOptions,
    PublishOutcome, RequestOutcome, Ticket, Version,
};

use crate::apps::BACK_END;
use crate::channels::{CHANNELS, Kind};
use crate::coverage::CoverageEvent;
use crate::data::{data, number_in_text};
use crate::disconnect::PendingDisconnect;
use crate::failure::{PromiseResult, promise};
use crate::ledger::Source;
use crate::world::{WALL_MS, World, channel_name};

/// Lifetime of idempotency keys in milliseconds.
const KEY_TTL_MS: u64 = 300_000;

/// A repetition that is sent within this time, in milliseconds, must be recognised by the hub.
const REPEATED_WITHIN_MS: u64 = 60_000;

/// The state of the back end since the current server process started.
#[derive(Default)]
pub(crate) struct BackEnd {
    /// The back end's requests, indexed by ticket.
    pub(crate) requests: Vec<BackEndRequest>,
    /// The replies to queries.
    pub(crate) query_replies: Vec<(usize, HubReply)>,
    /// The last publication of each channel. `older` contains an earlier publication of the channel.
    latest: BTreeMap<usize, Pushed>,
    older: BTreeMap<usize, Pushed>,
    /// The latest version published.
    version: u64,
}

/// A pending request of the back end.
pub(crate) enum BackEndRequest {
    Publication(usize, u64),
    /// The removal of a channel's history.
    Removal,
    /// The read of a page of a channel's history.
    Look(HistoryLook),
    /// A query made while the world is at rest.
    Query,
    /// The disconnection of a user.
    Disconnect(PendingDisconnect),
}

#[derive(Clone, Copy)]
struct Pushed {
    number: u64,
    /// The number of the publication that first used the idempotency key; equal to `number` if the
    /// key is new.
    key: u64,
    version: Option<u64>,
    worker: usize,
    pad: u16,
    at_ms: u64,
    /// The latest time at which the publication may have been accepted, in milliseconds.
    answered_ms: Option<u64>,
}

/// The parameters of a history read, and when it was sent.
#[derive(Clone, Copy)]
pub(crate) struct HistoryLook {
    channel: usize,
    limit: usize,
    is_reverse: bool,
    at_ms: u64,
}

impl World {
    /// Registers a request and returns its ticket.
    pub(crate) fn ticket(&mut self, asked: BackEndRequest) -> Ticket {
        self.back_end.requests.push(asked);
        Ticket(self.back_end.requests.len() as u32 - 1)
    }

    /// Publishes new data several times.
    pub(crate) fn push(
        &mut self,
        worker: usize,
        channel: usize,
        pad: u16,
        times: u8,
    ) -> PromiseResult {
        if !CHANNELS[channel].kind.takes_any() {
            return Ok(());
        }
        for _ in 0..times {
            let source = self.ledger.incarnation * 8 + worker as Source;
            let number = self.ledger.publish(channel, source);
            let version =
                (CHANNELS[channel].kind == Kind::State).then(|| self.next_version(number));
            if let Some(version) = version {
                self.ledger.set_version(channel, number, version);
            }
            let pushed = Pushed {
                number,
                key: number,
                version,
                worker,
                pad,
                at_ms: self.now_ms,
                answered_ms: None,
            };
            self.publish(channel, pushed)?;
        }
        Ok(())
    }

    /// Returns the next version, which is sometimes an outdated one.
    fn next_version(&mut self, number: u64) -> u64 {
        if number % 4 == 3 {
            return self.back_end.version.saturating_sub(1);
        }
        self.back_end.version += 1;
        self.back_end.version
    }

    /// Repeats a publication, like a back end that got no reply. If its idempotency key has
    /// expired, the repetition counts as another publication.
    pub(crate) fn push_again(&mut self, channel: usize, is_older: bool) -> PromiseResult {
        let from = match is_older {
            true => &mut self.back_end.older,
            false => &mut self.back_end.latest,
        };
        let Some(mut again) = from.get(&channel).copied() else {
            return Ok(());
        };
        // The repetition is sent so early that the hub recognises it even if it is delayed.
        if self.now_ms < again.at_ms + REPEATED_WITHIN_MS {
            self.ledger.seen.note(CoverageEvent::Repeated);
            return self.publish(channel, again);
        }
        // The hub may have accepted the publication some milliseconds before its reply, so the key has certainly
        // expired one lifetime after the reply.
        let is_forgotten = |answered_ms: u64| self.now_ms >= answered_ms + KEY_TTL_MS;
        if again.version.is_some() || !again.answered_ms.is_some_and(is_forgotten) {
            return Ok(());
        }
        from.remove(&channel);
        self.ledger.seen.note(CoverageEvent::RepeatedLate);
        let source = self.ledger.incarnation * 8 + again.worker as Source;
        again.number = self.ledger.publish(channel, source);
        again.at_ms = self.now_ms;
        again.answered_ms = None;
        self.publish(channel, again)
    }

    fn publish(&mut self, channel: usize, pushed: Pushed) -> PromiseResult {
        let number = pushed.number;
        let ticket = self.ticket(BackEndRequest::Publication(channel, number));
        let data = data(channel, number, pushed.pad).to_string();
        let payload = PayloadRef {
            kind: PayloadKind::Json,
            bytes: data.as_bytes(),
        };
        let version = pushed.version.map(|number| Version {
            number,
            epoch: self.ledger.incarnation.to_string().into(),
        });
        let terms = Arc::new(PublishOptions {
            idempotency_key: Some(pushed.key.to_string().into()),
            version,
            ..PublishOptions::default()
        });
        let now = self.now();
        let shared = self.process.workers[pushed.worker].shared_mut();
        shared.set_now(now);
        let from = Some((BACK_END, ticket));
        let name = channel_name(channel);
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let outcome = hub.publish(from, name, payload, Some(&terms), ports);
        if outcome.is_ok() {
            self.back_end.note(channel, pushed);
        }
        match outcome {
            Ok(RequestOutcome::Done(published)) => {
                self.ledger.seen.note(CoverageEvent::TakenAtOnce);
                self.answered(ticket, HubReply::Published(published))
            }
            Ok(RequestOutcome::Pending) => Ok(()),
            Err(_) => {
                self.ledger.seen.note(CoverageEvent::Refused);
                // If this was a repetition, the first attempt may have been accepted, so its outcome is unchanged.
                if !self.back_end.has_tried(channel, number) {
                    self.ledger.refused(channel, number);
                }
                Ok(())
            }
        }
    }

    /// Reads a channel's history.
    pub(crate) fn read_history(
        &mut self,
        worker: usize,
        channel: usize,
        limit: u8,
        is_reverse: bool,
    ) -> PromiseResult {
        if !CHANNELS[channel].kind.has_history() {
            return Ok(());
        }
        let look = HistoryLook {
            channel,
            limit: if limit < 128 { limit.into() } else { 1_000 },
            is_reverse,
            at_ms: self.now_ms,
        };
        let query = HistoryQuery {
            limit: look.limit,
            is_reverse,
            ..HistoryQuery::default()
        };
        self.query(
            worker,
            channel,
            BackEndRequest::Look(look),
            ChannelQuery::History(query),
        )
    }

    fn query(
        &mut self,
        worker: usize,
        channel: usize,
        asked: BackEndRequest,
        query: ChannelQuery,
    ) -> PromiseResult {
        let ticket = self.ticket(asked);
        let now = self.now();
        let shared = self.process.workers[worker].shared_mut();
        shared.set_now(now);
        let to = (BACK_END, ticket);
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        match hub.query(to, channel_name(channel), query, ports) {
            RequestOutcome::Done(answer) => self.answered(ticket, answer),
            RequestOutcome::Pending => Ok(()),
        }
    }

    /// Removes a channel's history.
    pub(crate) fn clear(&mut self, worker: usize, channel: usize) -> PromiseResult {
        if !CHANNELS[channel].kind.has_history() {
            return Ok(());
        }
        self.ledger.clear(channel);
        self.ledger.seen.note(CoverageEvent::Cleared);
        self.query(
            worker,
            channel,
            BackEndRequest::Removal,
            ChannelQuery::RemoveHistory,
        )
    }

    /// Handles the reply to a request.
    pub(crate) fn answered(&mut self, Ticket(ticket): Ticket, answer: HubReply) -> PromiseResult {
        match (self.back_end.requests.get(ticket as usize), answer) {
            (
                Some(&BackEndRequest::Publication(channel, number)),
                HubReply::Published(published),
            ) => {
                self.taken(channel, number, published)?;
            }
            (Some(BackEndRequest::Look(look)), HubReply::History(Ok(page))) => {
                self.ledger.seen.note(CoverageEvent::Looked);
                let look = *look;
                self.check_page(look, &page)?;
            }
            (Some(BackEndRequest::Query), answer) => {
                self.back_end.query_replies.push((ticket as usize, answer))
            }
            (Some(BackEndRequest::Removal), HubReply::HistoryRemoved(Ok(()))) => {}
            (Some(BackEndRequest::Disconnect(_)), answer) => {
                self.disconnect_answered(Ticket(ticket), &answer)?
            }
            (_, answer) => promise!(false, "every answer has a request", "{answer:?}"),
        }
        Ok(())
    }

    /// Handles the result of a publication.
    fn taken(&mut self, channel: usize, number: u64, published: PublishOutcome) -> PromiseResult {
        let incarnation = self.ledger.incarnation;
        self.ledger.trace.note(&[channel as u64, number]);
        self.back_end.answered(channel, number, self.now_ms);
        let is_kept = CHANNELS[channel].kind.has_history();
        promise!(
            published.position.is_some() == is_kept,
            "stored publications have a position",
            "{published:?}"
        );
        let place = published.position.map(|at| (at.epoch.bits(), at.offset));
        if CHANNELS[channel].kind != Kind::State {
            self.ledger.taken(channel, number);
            return match place {
                Some(place) => {
                    self.ledger
                        .note_publication_position(channel, number, place, incarnation)
                }
                None => Ok(()),
            };
        }
        let Some(place) = place else {
            return Ok(());
        };
        let other = self.ledger.number_at(channel, place);
        if published.receivers > Some(0) {
            self.ledger.taken(channel, number);
            return self
                .ledger
                .note_publication_position(channel, number, place, incarnation);
        }
        // Without receivers, the state was outdated or the channel had no subscribers.
        if other.is_some_and(|other| other != number) {
            self.ledger.seen.note(CoverageEvent::Outdated);
            self.ledger.refused(channel, number);
        }
        self.ledger.answered(channel, number);
        self.ledger.note_position(channel, place, incarnation)
    }

    /// Checks a page of history: not too many publications, none expired, and in order.
    fn check_page(&mut self, look: HistoryLook, page: &HistoryPage) -> PromiseResult {
        let (channel, name) = (look.channel, CHANNELS[look.channel].name);
        let most = CHANNELS[channel].kind.size(&self.setup) as usize;
        let count = page.len();
        promise!(
            count <= most.min(look.limit),
            "history respects its size",
            "{count} publications of {name}, which keeps {most}, and {} were asked for",
            look.limit
        );
        let mut before = None;
        for publication in page.iter() {
            let age_ms = (WALL_MS + look.at_ms).saturating_sub(publication.at_ms);
            promise!(
                age_ms < self.setup.history_ttl_ms || self.ledger.doubts_clock(look.at_ms),
                "expired publications are not read",
                "{name} returned a publication that is {age_ms} ms old"
            );
            let (epoch, offset) = publication
                .position
                .map_or((0, 0), |at| (at.epoch.bits(), at.offset));
            let expected = before.map(|last| match look.is_reverse {
                true => last - 1,
                false => last + 1,
            });
            promise!(
                expected.is_none_or(|expected| expected == offset)
                    && offset <= page.position.offset,
                "history has no gap",
                "{offset} behind {before:?} in {name}"
            );
            before = Some(offset);
            let text = String::from_utf8_lossy(&publication.payload.bytes);
            let (of, number) = number_in_text(&text)?;
            promise!(
                of == channel,
                "publications arrive on their channel",
                "{text} in {name}"
            );
            self.ledger.note_publication_position(
                channel,
                number,
                (epoch, offset),
                self.ledger.incarnation,
            )?;
        }
        Ok(())
    }
}

impl BackEnd {
    /// Records a publication that the hub has not refused: it is accepted or pending.
    fn note(&mut self, channel: usize, pushed: Pushed) {
        if self.is_older(channel, pushed.number) {
            return;
        }
        if let Some(before) = self.latest.insert(channel, pushed)
            && before.number != pushed.number
        {
            self.older.entry(channel).or_insert(before);
        }
    }

    fn is_older(&self, channel: usize, number: u64) -> bool {
        let older = self.older.get(&channel);
        older.is_some_and(|older| older.number == number)
    }

    fn has_tried(&self, channel: usize, number: u64) -> bool {
        let latest = self.latest.get(&channel);
        latest.is_some_and(|latest| latest.number == number) || self.is_older(channel, number)
    }

    fn answered(&mut self, channel: usize, number: u64, now_ms: u64) {
        for all in [&mut self.latest, &mut self.older] {
            if let Some(pushed) = all.get_mut(&channel)
                && pushed.number == number
            {
                pushed.answered_ms.get_or_insert(now_ms);
            }
        }
    }
}
