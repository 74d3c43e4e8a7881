//! A client's commands and the validation of their replies.

use serde_json::{Value, json};

use crate::Failure;
use crate::channels::{self, CHANNELS, Kind};
use crate::client::{PENDING_MAX, PendingCommand, SimulatedClient};
use crate::client_transport::{ClientTransport, HookRoute};
use crate::coverage::CoverageEvent;
use crate::data::{data, offset_of};
use crate::emulation_connection::SessionAddress;
use crate::failure::{PromiseResult, promise};
use crate::frontend_config;
use crate::ledger::{CLIENTS, KnownState, Ledger, RawPosition, place_of};
use crate::phase::Phase;
use crate::setup::Setup;
use crate::subscription::{ExpectedSubscription, SubscriptionState, number_of};

/// A command that a client has sent, with the ledger's state of the channels concerned at that time.
#[derive(Debug)]
pub(crate) enum SentCommand {
    Connect(Vec<SentPosition>),
    Subscribe(usize, SentPosition),
    Unsubscribe(usize),
    Publish(usize, u64),
    Rpc(u64),
    Presence(usize),
    History(usize, Option<KnownState>, PendingHistory),
}

/// The limit of a history request, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingHistory {
    pub(crate) limit: usize,
    pub(crate) at_ms: u64,
}

/// The position that a returning client sends, with the ledger's state of the channel at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPosition {
    place: Option<RawPosition>,
    known: Option<KnownState>,
    at_ms: u64,
}

impl SimulatedClient {
    pub(crate) fn send(&mut self, command: SentCommand, mut request: Value) {
        self.next_id += 1;
        request["id"] = self.next_id.into();
        self.send_command(request);
        let id = self.next_id;
        self.pending.push_back(PendingCommand { id, command });
    }

    pub(crate) fn has_room(&self) -> bool {
        self.phase == Phase::Online && self.pending.len() < PENDING_MAX
    }

    fn since(&self, channel: usize, ledger: &Ledger) -> SentPosition {
        SentPosition {
            place: self.positions.get(&channel).copied(),
            known: ledger.known(channel),
            at_ms: ledger.now_ms,
        }
    }

    pub(crate) fn ask_to_connect(&mut self, ledger: &Ledger) {
        self.phase = Phase::Connecting;
        let user = CHANNELS[channels::own_channel(self.number)].user;
        let user = user.unwrap_or_default();
        let token = match self.hook_route {
            HookRoute::NoHook => frontend_config::token(user),
            // The hook accepts the user name that the client sends as its token.
            _ => user.to_owned(),
        };
        let mut connect = json!({ "token": token });
        let mut known = Vec::new();
        for channel in self.server_channels() {
            let since = self.since(channel, ledger);
            if let Some(place) = since.place {
                connect["subs"][CHANNELS[channel].name] = recovering(place, json!({}));
            }
            known.push(since);
        }
        self.send(SentCommand::Connect(known), json!({ "connect": connect }));
    }

    /// Subscribes to the wanted channels, up to the maximum number of pending commands.
    pub(crate) fn subscribe_to_all(&mut self, ledger: &Ledger) {
        for channel in self.wants.clone() {
            if !self.has_room() {
                return;
            }
            let may = self.hook_route != HookRoute::NoHook || !CHANNELS[channel].kind.is_hooked();
            if !may || self.subscriptions.contains_key(&channel) {
                continue;
            }
            let since = self.since(channel, ledger);
            let mut subscribe = json!({
                "channel": CHANNELS[channel].name,
                "join_leave": CHANNELS[channel].kind.has_presence(),
            });
            if let Some(place) = since.place {
                subscribe = recovering(place, subscribe);
            }
            if self.wants_deltas {
                subscribe["delta"] = "fossil".into();
            }
            self.subscriptions
                .insert(channel, ExpectedSubscription::new(channel));
            self.send(
                SentCommand::Subscribe(channel, since),
                json!({ "subscribe": subscribe }),
            );
        }
    }

    pub(crate) fn unsubscribe(&mut self, channel: usize) {
        self.wants.remove(&channel);
        let has_room = self.has_room();
        let subscription = self.subscriptions.get_mut(&channel);
        let Some(subscription) =
            subscription.filter(|one| has_room && one.state == SubscriptionState::Live)
        else {
            return;
        };
        subscription.state = SubscriptionState::Leaving;
        self.send(
            SentCommand::Unsubscribe(channel),
            json!({ "unsubscribe": { "channel": CHANNELS[channel].name } }),
        );
    }

    fn is_live(&self, channel: usize) -> bool {
        let subscription = self.subscriptions.get(&channel);
        subscription.is_some_and(|one| one.state == SubscriptionState::Live)
    }

    pub(crate) fn publish(&mut self, channel: usize, pad: u16, ledger: &mut Ledger) {
        let Some(link) = self
            .link
            .filter(|_| self.has_room() && self.is_live(channel))
        else {
            return;
        };
        if !CHANNELS[channel].kind.takes_clients() {
            return;
        }
        let number = ledger.publish(channel, CLIENTS | link);
        if CHANNELS[channel].kind.is_hooked() {
            // The publication counts as refused until the hook grants it.
            ledger.refused(channel, number);
        }
        let data = data(channel, number, pad);
        self.send(
            SentCommand::Publish(channel, number),
            json!({ "publish": { "channel": CHANNELS[channel].name, "data": data } }),
        );
    }

    pub(crate) fn ask_presence(&mut self, channel: usize) {
        if self.has_room() && self.is_live(channel) && CHANNELS[channel].kind.has_presence() {
            self.send(
                SentCommand::Presence(channel),
                json!({ "presence": { "channel": CHANNELS[channel].name } }),
            );
        }
    }

    pub(crate) fn ask_history(&mut self, channel: usize, ledger: &Ledger) {
        if self.has_room() && self.is_live(channel) && CHANNELS[channel].kind.has_history() {
            let asked = PendingHistory {
                limit: if self.next_id.is_multiple_of(2) {
                    10
                } else {
                    1_000
                },
                at_ms: ledger.now_ms,
            };
            self.send(
                SentCommand::History(channel, ledger.known(channel), asked),
                json!({ "history": { "channel": CHANNELS[channel].name, "limit": asked.limit } }),
            );
        }
    }

    /// Checks a reply against the oldest pending command.
    pub(crate) fn reply(
        &mut self,
        line: &Value,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        let id = line["id"].as_u64();
        let owed = self.pending.pop_front();
        promise!(
            owed.as_ref().map(|owed| u64::from(owed.id)) == id,
            "replies come in order",
            "{line}, not to {:?}",
            owed.map(|owed| owed.id)
        );
        let Some(PendingCommand { command, .. }) = owed else {
            return Ok(());
        };
        if !self.check_decision(&command, line, ledger)? {
            return Ok(());
        }
        promise!(
            line.get("error").is_none(),
            "commands succeed",
            "{line} to {command:?}"
        );
        ledger.trace.note(&[self.number as u64, id.unwrap_or(0)]);
        match command {
            SentCommand::Connect(known) => self.connected(&line["connect"], &known, ledger, setup),
            SentCommand::Subscribe(channel, since) => {
                let (reply, bytes_max) = (&line["subscribe"], setup.outbox_bytes);
                self.subscribed(channel, reply, since, bytes_max, ledger, setup)
            }
            SentCommand::Unsubscribe(channel) => {
                self.subscriptions.remove(&channel);
                Ok(())
            }
            SentCommand::Publish(channel, number) => {
                ledger.taken(channel, number);
                Ok(())
            }
            SentCommand::Rpc(_) => Ok(()),
            SentCommand::Presence(_) => self.check_presence_reply(&line["presence"], ledger),
            SentCommand::History(channel, known, asked) => {
                self.check_history_reply(channel, &line["history"], known, asked, ledger, setup)
            }
        }
    }

    fn connected(
        &mut self,
        reply: &Value,
        known: &[SentPosition],
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        let name = reply["client"].as_str().unwrap_or_default();
        promise!(!name.is_empty(), "clients have ids", "{reply}");
        ledger.trace.note_text(name);
        ledger.seen.note(CoverageEvent::Connected);
        let is_posting = self.transport != ClientTransport::WebSocket;
        promise!(
            reply.get("session").is_some() == is_posting,
            "a client that needs an address gets one",
            "{reply}"
        );
        self.address = is_posting.then(|| SessionAddress::new(reply, self.incarnation));
        self.name = name.to_owned();
        if self.phase == Phase::Connecting {
            self.phase = Phase::Online;
        }
        // The publications recovered by all server-side subscriptions together share one byte limit.
        let mut bytes_left = setup.outbox_bytes;
        for (channel, since) in self.server_channels().zip(known) {
            self.subscriptions
                .insert(channel, ExpectedSubscription::new(channel));
            let name = CHANNELS[channel].name;
            let reply = &reply["subs"][name];
            promise!(
                reply.is_object(),
                "server-side subscriptions are delivered",
                "{name}"
            );
            let publications = reply["publications"].as_array().map_or(0, Vec::len);
            self.subscribed(channel, reply, *since, bytes_left, ledger, setup)?;
            bytes_left = bytes_left.saturating_sub(publications * setup.publication_bytes_max());
        }
        Ok(())
    }

    fn subscribed(
        &mut self,
        channel: usize,
        reply: &Value,
        since: SentPosition,
        bytes_max: usize,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        let kind = CHANNELS[channel].kind;
        let Some(mut subscription) = self.subscriptions.remove(&channel) else {
            return Ok(());
        };
        subscription.has_deltas = reply["delta"].as_bool().unwrap_or(false);
        if !kind.has_history() {
            promise!(
                reply.get("epoch").is_none(),
                "unstored publications have no offset",
                "{reply}"
            );
            subscription.begin((0, 0), ledger);
            self.subscriptions.insert(channel, subscription);
            return Ok(());
        }
        let place = place_of(reply)?;
        ledger.check_position(channel, since.known, place, self.incarnation)?;
        ledger.note_position(channel, place, self.incarnation)?;
        let publications = reply["publications"].as_array();
        let publications = publications.map_or(&[][..], Vec::as_slice);
        let is_recovered = reply["recovered"].as_bool().unwrap_or(false);
        // Publications that were removed on purpose need not be recovered.
        let behind = match kind {
            Kind::Price => place.1.saturating_sub(1),
            _ => since.place.map_or(0, |(_, offset)| offset),
        };
        let is_kept = ledger.is_kept_behind(channel, (place.0, behind));
        let bytes_max = if is_kept { bytes_max } else { 0 };
        let first = check_recovery(
            kind,
            since.place,
            place,
            is_recovered,
            publications.len(),
            bytes_max,
            setup,
        )
        .map_err(|failure| failure.of(&format!("{} by {reply}", CHANNELS[channel].name)))?;
        for (publication, expected) in publications.iter().zip(first..) {
            let (of, number) = subscription.read(publication, ledger)?;
            let offset = offset_of(publication);
            promise!(
                offset == expected && of == channel,
                "recovered publications have no gap",
                "{offset} instead of {expected} in {reply}"
            );
            ledger.check_age(channel, number, since.at_ms)?;
            ledger.note_publication_position(
                channel,
                number,
                (place.0, offset),
                self.incarnation,
            )?;
            subscription.take(number, ledger)?;
        }
        let count = publications.len() as u64;
        ledger.seen.note(match (since.place, is_recovered, count) {
            (None, ..) => CoverageEvent::Heard,
            (_, false, _) => CoverageEvent::Lost,
            (_, true, 0) => CoverageEvent::Current,
            _ => CoverageEvent::Recovered,
        });
        ledger
            .trace
            .note(&[channel as u64, place.0, place.1, is_recovered.into(), count]);
        subscription.begin(place, ledger);
        self.positions.insert(channel, place);
        self.subscriptions.insert(channel, subscription);
        Ok(())
    }

    fn check_presence_reply(&self, reply: &Value, ledger: &mut Ledger) -> PromiseResult {
        let clients = reply["presence"].as_object();
        ledger.seen.note(CoverageEvent::Present);
        // The server lists the clients in no particular order, but the trace must not depend on it.
        let mut names: Vec<_> = clients
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
            .collect();
        names.sort();
        for name in &names {
            ledger.trace.note_text(name);
        }
        promise!(
            names.contains(&&self.name),
            "presence equals the subscriptions",
            "{} in {reply}",
            self.name
        );
        Ok(())
    }

    fn check_history_reply(
        &self,
        channel: usize,
        reply: &Value,
        known: Option<KnownState>,
        asked: PendingHistory,
        ledger: &mut Ledger,
        setup: &Setup,
    ) -> PromiseResult {
        let place = place_of(reply)?;
        ledger.check_position(channel, known, place, self.incarnation)?;
        ledger.note_position(channel, place, self.incarnation)?;
        let publications = reply["publications"].as_array();
        ledger.seen.note(CoverageEvent::History);
        let count = publications.map_or(0, Vec::len);
        let most = CHANNELS[channel].kind.size(setup) as usize;
        promise!(
            count <= most.min(asked.limit),
            "history respects its size",
            "{count} publications of {}, which keeps {most}",
            CHANNELS[channel].name
        );
        let mut expected = None;
        for publication in publications.into_iter().flatten() {
            let (of, number) = number_of(publication)?;
            let offset = offset_of(publication);
            promise!(
                of == channel,
                "publications arrive on their channel",
                "{reply}"
            );
            ledger.check_age(channel, number, asked.at_ms)?;
            promise!(
                expected.is_none_or(|expected| expected == offset) && offset <= place.1,
                "history has no gap",
                "{offset} in {reply}"
            );
            expected = Some(offset + 1);
            ledger.note_delivery(channel, number)?;
            ledger.note_publication_position(
                channel,
                number,
                (place.0, offset),
                self.incarnation,
            )?;
        }
        Ok(())
    }
}

/// Returns a subscription request extended by a recovery from the given position.
fn recovering((epoch, offset): RawPosition, mut request: Value) -> Value {
    request["recover"] = true.into();
    request["epoch"] = veche_hub::Epoch::from_bits(epoch).to_string().into();
    request["offset"] = offset.into();
    request
}

/// Checks a recovery that started from the position `since` and was limited to `bytes_max` bytes.
/// Returns the offset that the first publication must have.
fn check_recovery(
    kind: Kind,
    since: Option<RawPosition>,
    (epoch, offset): RawPosition,
    is_recovered: bool,
    count: usize,
    bytes_max: usize,
    setup: &Setup,
) -> Result<u64, Failure> {
    let Some((known_epoch, known)) = since else {
        promise!(
            !is_recovered && count == 0,
            "a new client recovers nothing",
            "{count} publications"
        );
        return Ok(0);
    };
    if kind == Kind::Price {
        let is_known = known_epoch == epoch && known == offset;
        promise!(
            !is_recovered || is_known || count == 1,
            "cache recovery returns the newest publication",
            "{count} publications for a client at offset {known}"
        );
        promise!(
            is_recovered || offset == 0 || bytes_max == 0 || !setup.is_lasting(kind),
            "cache recovery returns the newest publication",
            "no publication for a client at offset {known}"
        );
        return Ok(offset);
    }
    if is_recovered {
        promise!(
            known_epoch == epoch && known + count as u64 == offset,
            "recovery returns everything that was missed",
            "{count} publications for a client at {known_epoch:x}:{known}, while the channel is at {epoch:x}:{offset}"
        );
        return Ok(known + 1);
    }
    promise!(
        count == 0,
        "without recovery nothing is delivered",
        "{count} publications"
    );
    let missed = offset.saturating_sub(known) as usize;
    let is_there = known_epoch == epoch
        && setup.is_lasting(kind)
        && missed <= kind.size(setup) as usize
        && missed * setup.publication_bytes_max() <= bytes_max;
    promise!(
        !is_there,
        "available publications are recovered",
        "{missed} publications were not recovered for a client at offset {known}"
    );
    Ok(0)
}
