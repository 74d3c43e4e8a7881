//! A client of a push route: it sends nothing, and receives the channels in its path.
//!
//! Its route determines what it receives ([`DeliveryGuarantee`]): all publications, or else its connection is closed
//! (`All`); the same with positions, from which it recovers when it reconnects (`Places`); all but the oldest unread
//! publications (`Newest`); or at least the latest publication of each channel (`Latest`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::channels::{self, CHANNELS};
use crate::coverage::CoverageEvent;
use crate::data::number_in;
use crate::failure::{PromiseResult, promise};
use crate::frontend_config::{DeliveryGuarantee, ROUTES};
use crate::ledger::{Ledger, RawPosition, Source};
use crate::network::LinkId;
use crate::phase::Phase;
use crate::setup::Setup;
use crate::wire::{self, Reader, ServerFrame, WireEncoding};

/// Maximum number of bytes that a queued publication takes in addition to its payload.
const FRAMING_BYTES: usize = 120;

pub(crate) struct PushListener {
    pub(crate) number: usize,
    promised: DeliveryGuarantee,
    pub(crate) phase: Phase,
    pub(crate) link: Option<LinkId>,
    incarnation: u32,
    pub(crate) out: Vec<u8>,
    pub(crate) reads: bool,
    reader: Reader,
    /// The close code that the listener must get from a drain; `None` without a drain.
    pub(crate) drain_code: Option<u16>,
    views: BTreeMap<usize, ChannelView>,
    /// The listener's position in each channel, if its route sends positions.
    places: BTreeMap<usize, RawPosition>,
}

/// What the listener has received from a channel on its current connection.
struct ChannelView {
    /// Publications with this number or a later one were published after the listener had connected.
    from: u64,
    order: Vec<u64>,
    all: BTreeSet<u64>,
    latest_by_source: BTreeMap<Source, u64>,
    /// The position in the channel, if the listener gets positions.
    place: Option<RawPosition>,
}

impl PushListener {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            promised: ROUTES[number % ROUTES.len()].0,
            phase: Phase::Offline,
            link: None,
            incarnation: 0,
            out: Vec::new(),
            reads: true,
            reader: Reader::new(WireEncoding::Json),
            drain_code: None,
            views: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    /// Returns whether publications other than the latest may be dropped.
    pub(crate) fn is_lossy(&self) -> bool {
        matches!(
            self.promised,
            DeliveryGuarantee::Newest | DeliveryGuarantee::Latest
        )
    }

    /// Iterates over the channels that the listener gets, requested or not.
    pub(crate) fn channels(&self) -> impl Iterator<Item = usize> {
        let (_, _, names) = ROUTES[self.number % ROUTES.len()];
        let asked = names.iter().filter_map(|name| channels::find(name));
        asked.chain(self.own_channel())
    }

    /// Returns the personal channel, which the listener gets without a request.
    fn own_channel(&self) -> Option<usize> {
        (self.promised == DeliveryGuarantee::All).then(|| channels::own_channel(self.number))
    }

    pub(crate) fn connect(&mut self, link: LinkId, incarnation: u32) {
        (self.link, self.incarnation, self.phase) = (Some(link), incarnation, Phase::Handshaking);
        self.reader = Reader::new(WireEncoding::Json);
        let (_, path, names) = ROUTES[self.number % ROUTES.len()];
        let mut path = format!("{path}?");
        if let Some(own) = self.own_channel() {
            let _ = write!(path, "user={}&", CHANNELS[own].user.unwrap_or_default());
        }
        for name in names {
            let _ = write!(path, "channel={name}&");
        }
        for (epoch, offset) in self.places.values() {
            let epoch = veche_hub::Epoch::from_bits(*epoch);
            let _ = write!(path, "since={epoch}:{offset}&");
        }
        self.out = wire::handshake(path.trim_end_matches('&'), "");
    }

    pub(crate) fn dropped(&mut self) {
        self.phase = Phase::Offline;
        self.drain_code = None;
        self.link = None;
        self.out.clear();
        self.views.clear();
    }

    /// Handles the notification that the listener is connected.
    fn begin(&mut self, ledger: &mut Ledger) {
        self.phase = Phase::Online;
        for channel in self.channels().collect::<Vec<_>>() {
            let view = ChannelView {
                from: ledger.next_number(channel),
                order: Vec::new(),
                all: BTreeSet::new(),
                latest_by_source: BTreeMap::new(),
                place: None,
            };
            self.views.insert(channel, view);
        }
    }

    pub(crate) fn received(&mut self, bytes: Vec<u8>, ledger: &mut Ledger) -> PromiseResult {
        for frame in self.reader.read(bytes)? {
            match frame {
                ServerFrame::Status(101) => self.begin(ledger),
                // The client was too slow, or a back end disconnected it before it was connected.
                ServerFrame::Status(408 | 503) => self.phase = Phase::Closing,
                ServerFrame::Status(status) => promise!(false, "handshakes succeed", "{status}"),
                ServerFrame::Ping(data) => wire::pong(&mut self.out, &data),
                ServerFrame::Close(code, reason) => self.closed(code, &reason, ledger)?,
                ServerFrame::Line(line) => self.line(&line, ledger)?,
            }
        }
        Ok(())
    }

    fn closed(&mut self, code: Option<u16>, reason: &str, ledger: &mut Ledger) -> PromiseResult {
        let is_lossy = self.is_lossy();
        // The listener was slow (1013) or silent (1001), the back end disconnected it (3503), or the server was
        // replaced (1012).
        let is_fair = match code {
            Some(1013) => !is_lossy,
            Some(1012) => self.drain_code == code,
            _ => matches!(code, Some(1001 | 3503)) || self.phase == Phase::Closing,
        };
        promise!(is_fair, "sessions end for a reason", "{code:?} {reason}");
        if code == Some(1012) {
            ledger.seen.note(CoverageEvent::ClosedForReplacement);
        }
        if code == Some(1013) {
            ledger.seen.note(CoverageEvent::Slow);
        }
        if self.phase != Phase::Closing {
            wire::close(&mut self.out, code);
            self.phase = Phase::Closing;
        }
        Ok(())
    }

    fn line(&mut self, line: &Value, ledger: &mut Ledger) -> PromiseResult {
        if self.promised == DeliveryGuarantee::Places {
            return self.positioned(line, ledger);
        }
        let (channel, number) = number_in(line)?;
        ledger.seen.note(CoverageEvent::Pushed);
        self.note_received(channel, number, ledger).map(drop)
    }

    /// Handles a message with the position of a publication, or of the channel.
    fn positioned(&mut self, line: &Value, ledger: &mut Ledger) -> PromiseResult {
        let place = line["position"].as_str().and_then(place_of);
        let Some(place) = place else {
            promise!(false, "stored publications have a position", "{line}");
            return Ok(());
        };
        if let Some(name) = line["subscribed"].as_str() {
            return self.joined(name, place, line["recovered"].as_bool(), ledger);
        }
        let (channel, number) = number_in(&line["data"])?;
        promise!(
            line["channel"] == CHANNELS[channel].name,
            "publications arrive on their channel",
            "{line}"
        );
        let before = self.views.get(&channel).and_then(|view| view.place);
        promise!(
            before.is_some_and(|(epoch, offset)| (epoch, offset + 1) == place),
            "publications have no gap",
            "{line} behind {before:?}"
        );
        ledger.seen.note(CoverageEvent::PushedWithPlace);
        ledger.note_publication_position(channel, number, place, self.incarnation)?;
        if let Some(view) = self.note_received(channel, number, ledger)? {
            view.place = Some(place);
        }
        self.places.insert(channel, place);
        Ok(())
    }

    fn joined(
        &mut self,
        name: &str,
        place: RawPosition,
        is_recovered: Option<bool>,
        ledger: &mut Ledger,
    ) -> PromiseResult {
        let channel = channels::find(name);
        let view = channel.and_then(|channel| self.views.get_mut(&channel));
        let (Some(channel), Some(view)) = (channel, view) else {
            promise!(false, "only subscribers receive pushes", "{name}");
            return Ok(());
        };
        let known = self.places.get(&channel).copied();
        let is_known = is_recovered == Some(true);
        promise!(
            !is_known || known == Some(place),
            "recovery returns everything that was missed",
            "{name} continues at {place:x?} for a client that was at {known:x?}"
        );
        if is_known {
            ledger.seen.note(CoverageEvent::RecoveredByPlace);
        }
        ledger.note_position(channel, place, self.incarnation)?;
        view.place = Some(place);
        self.places.insert(channel, place);
        Ok(())
    }

    fn note_received(
        &mut self,
        channel: usize,
        number: u64,
        ledger: &mut Ledger,
    ) -> Result<Option<&mut ChannelView>, crate::Failure> {
        let name = CHANNELS[channel].name;
        let Some(view) = self.views.get_mut(&channel) else {
            promise!(
                false,
                "only subscribers receive pushes",
                "{number} of {name} to {}",
                self.number
            );
            return Ok(None);
        };
        let trace = &mut ledger.trace;
        trace.note(&[self.number as u64, channel as u64, number]);
        let source = ledger.note_delivery(channel, number)?;
        promise!(
            view.all.insert(number),
            "nothing is delivered twice",
            "{number} in {name}"
        );
        let before = view.latest_by_source.insert(source, number);
        promise!(
            before.is_none_or(|before| before < number),
            "publications of one publisher keep their order",
            "{number} behind {before:?} in {name}"
        );
        view.order.push(number);
        Ok(Some(view))
    }

    /// Checks, when no message is in flight, that the listener has received what it must.
    pub(crate) fn check(&self, ledger: &mut Ledger, setup: &Setup) -> PromiseResult {
        // A listener that does not read has not received all available data, so there is nothing to check.
        if !self.reads {
            return Ok(());
        }
        promise!(
            !matches!(self.phase, Phase::Handshaking | Phase::Connecting),
            "commands are answered",
            "the handshake of {self_number}",
            self_number = self.number
        );
        if self.phase != Phase::Online {
            return Ok(());
        }
        for (channel, view) in &self.views {
            let kind = CHANNELS[*channel].kind;
            let is_whole = match self.promised {
                DeliveryGuarantee::All | DeliveryGuarantee::Places => kind.is_whole(),
                DeliveryGuarantee::Newest | DeliveryGuarantee::Latest => false,
            };
            if is_whole {
                let mut taken = ledger.all_taken(*channel, view.from);
                let missing = taken.find(|number| !view.all.contains(number));
                promise!(
                    missing.is_none(),
                    "subscribers receive everything",
                    "{} of {:?} did not get {missing:?} of {}",
                    self.number,
                    self.promised,
                    CHANNELS[*channel].name
                );
            }
            if kind.has_history() {
                view.check_order(*channel, is_whole, ledger)?;
            }
            // The latest publication of each channel must have arrived if these publications together fit into the
            // outbox. Otherwise the oldest of them are lost.
            let needed = 8 * (setup.publication_bytes_max() + FRAMING_BYTES);
            let fits = self.promised == DeliveryGuarantee::Newest || needed <= setup.outbox_bytes;
            if kind.has_history() && !is_whole && fits {
                view.check_newest(*channel, ledger)?;
            }
        }
        Ok(())
    }
}

impl ChannelView {
    /// Checks that publications are in the order of the channel and, if `is_whole`, without gaps.
    fn check_order(&self, channel: usize, is_whole: bool, ledger: &mut Ledger) -> PromiseResult {
        let mut before: Option<RawPosition> = None;
        for number in &self.order {
            let place = ledger.place(channel, *number);
            let (Some((of, last)), Some((epoch, offset))) = (before, place) else {
                before = place;
                continue;
            };
            let fits = of != epoch
                || match is_whole {
                    true => last + 1 == offset,
                    false => last < offset,
                };
            promise!(
                fits,
                "pushes are in the order of their channel",
                "{number} of {} at {offset} behind {last}",
                CHANNELS[channel].name
            );
            if of == epoch && last + 1 < offset {
                ledger.seen.note(CoverageEvent::Skipped);
            }
            before = place;
        }
        Ok(())
    }

    /// Checks that the latest publication has arrived, whatever was dropped.
    fn check_newest(&self, channel: usize, ledger: &Ledger) -> PromiseResult {
        let known = ledger.known(channel);
        let top = known.and_then(|known| ledger.number_at(channel, (known.epoch, known.top)));
        let Some(newest) = top.filter(|number| *number >= self.from) else {
            return Ok(());
        };
        promise!(
            self.all.contains(&newest),
            "the newest publication arrives despite drops",
            "{newest} of {} is missing behind {:?}",
            CHANNELS[channel].name,
            self.order.last()
        );
        Ok(())
    }
}

fn place_of(position: &str) -> Option<RawPosition> {
    let (epoch, offset) = position.split_once(':')?;
    let epoch: veche_hub::Epoch = epoch.parse().ok()?;
    Some((epoch.bits(), offset.parse().ok()?))
}
