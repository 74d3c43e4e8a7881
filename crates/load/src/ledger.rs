//! The ledger: which messages arrived at which receivers, and which were lost, duplicated, reordered or corrupted.
//!
//! A message contains its publisher, its number and a checksum. A receiver tracks for each publisher the next expected number
//! and the gaps before it. At the end, the publishers' logs determine which messages should have been received.
//!
//! With recovery, receivers are also expected to get the publications sent while they were
//! disconnected, unless the server reported that recovery was incomplete. The outcome of unacknowledged
//! publications is unknown, so they can count as duplicated or reordered, but never as lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::model;

/// Marks the start of a message's tag. The server may wrap messages in an envelope, so the tag is searched for.
const MARK: &[u8] = b"vb:";
/// The length in bytes of a message's tag: mark, run, publisher, number, time and checksum, each followed by a colon.
/// All except the mark are hexadecimal. A message is at least one byte longer, because padding follows the tag.
pub const NOTE_BYTES_MIN: usize = 3 + 9 + 9 + 9 + 17 + 9;

/// Identifies a message by its run, publisher and number, and gives its intended send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageTag {
    /// Identifies the run, because the channel may have messages of other programs or of an earlier run.
    pub(crate) run: u32,
    pub(crate) publisher: u32,
    pub(crate) number: u32,
    /// Intended send time on the monotonic clock.
    pub(crate) at_ns: u64,
}

impl MessageTag {
    /// Appends a message with this tag, padded to `bytes` bytes.
    pub(crate) fn write(self, out: &mut Vec<u8>, bytes: usize) {
        let start = out.len();
        out.extend_from_slice(MARK);
        hex(out, u64::from(self.run), 8);
        hex(out, u64::from(self.publisher), 8);
        hex(out, u64::from(self.number), 8);
        hex(out, self.at_ns, 16);
        let head = out.len();
        hex(out, 0, 8);
        // The padding consists of letters, which JSON does not escape, and ends with a full stop,
        // so that truncation is detected.
        let length = bytes.max(NOTE_BYTES_MIN + 1);
        let mut letter = self.number as u8;
        while out.len() - start < length - 1 {
            out.push(b'a' + letter % 26);
            letter = letter.wrapping_add(7);
        }
        out.push(b'.');
        let sum = checksum(&out[start..head], &out[head + 9..]);
        write_hex(&mut out[head..head + 8], u64::from(sum));
    }

    /// Finds the tag in data from a server.
    pub(crate) fn find(data: &[u8]) -> TagSearch {
        let Some(start) = data.windows(MARK.len()).position(|window| window == MARK) else {
            return if is_well_formed(data) {
                TagSearch::Corrupt
            } else {
                TagSearch::Nothing
            };
        };
        let rest = &data[start..];
        let note = || {
            let run = parse(rest.get(3..11)?)?;
            let publisher = parse(rest.get(12..20)?)?;
            let number = parse(rest.get(21..29)?)?;
            let at_ns = parse(rest.get(30..46)?)?;
            let sum = parse(rest.get(47..55)?)?;
            // The checksum does not cover the colon that follows it, so that colon is checked here.
            if rest.get(55)? != &b':' {
                return None;
            }
            let filler = rest.get(NOTE_BYTES_MIN..)?;
            let end = filler.iter().position(|byte| *byte == b'.')?;
            let is_right = u64::from(checksum(&rest[..47], &filler[..=end])) == sum;
            is_right.then_some(Self {
                run: run as u32,
                publisher: publisher as u32,
                number: number as u32,
                at_ns,
            })
        };
        note().map_or(TagSearch::Corrupt, TagSearch::Note)
    }
}

/// Returns whether the data contains a tag, even if its mark is damaged. A tag is recognised by its colons: at least
/// five of the six must have the right distances from each other.
fn is_well_formed(data: &[u8]) -> bool {
    const COLONS: [usize; 6] = [2, 11, 20, 29, 46, 55];
    let are_there = |window: &[u8]| COLONS.iter().filter(|at| window[**at] == b':').count();
    data.windows(NOTE_BYTES_MIN)
        .any(|window| are_there(window) >= COLONS.len() - 1)
}

/// The result of searching a message for a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagSearch {
    Nothing,
    Note(MessageTag),
    Corrupt,
}

fn hex(out: &mut Vec<u8>, value: u64, digits: usize) {
    let start = out.len();
    out.resize(start + digits, 0);
    write_hex(&mut out[start..], value);
    out.push(b':');
}

fn write_hex(out: &mut [u8], mut value: u64) {
    for byte in out.iter_mut().rev() {
        *byte = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// Parses at most 16 lower-case hexadecimal digits.
fn parse(digits: &[u8]) -> Option<u64> {
    let mut value = 0;
    for byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

fn checksum(head: &[u8], filler: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(filler);
    hasher.finalize()
}

/// The messages that one receiver has got from one publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryTracker {
    /// One more than the highest received message number.
    next: u32,
    /// Missing numbers below `next`, as half-open ranges.
    gaps: Vec<(u32, u32)>,
    duplicated: u64,
    reordered: u64,
}

impl DeliveryTracker {
    pub(crate) fn receive(&mut self, number: u32) {
        if number == self.next {
            self.next += 1;
        } else if number > self.next {
            self.gaps.push((self.next, number));
            self.next = number + 1;
        } else {
            let found = self
                .gaps
                .iter()
                .position(|gap| gap.0 <= number && number < gap.1);
            let Some(index) = found else {
                self.duplicated += 1;
                return;
            };
            self.reordered += 1;
            let (from, until) = self.gaps[index];
            let parts = [(from, number), (number + 1, until)];
            let left = parts.into_iter().filter(|part| part.0 < part.1);
            self.gaps.splice(index..=index, left);
        }
    }

    /// Returns the ranges of numbers below `published` that were not received.
    fn missing(&self, published: u32) -> Vec<(u32, u32)> {
        let below = |gap: &(u32, u32)| (gap.0, gap.1.min(published));
        let mut missing: Vec<_> = self
            .gaps
            .iter()
            .map(below)
            .filter(|gap| gap.0 < gap.1)
            .collect();
        if self.next < published {
            missing.push((self.next, published));
        }
        missing
    }
}

/// A period in which a receiver was disconnected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AbsencePeriod {
    /// For each publisher, the number of the first message that the receiver can have missed in this
    /// period. For a publisher without an entry, this number is 0.
    next: BTreeMap<u32, u32>,
    /// Messages sent from this time on are expected again; `None` if the receiver did not return.
    pub(crate) until_ns: Option<u64>,
}

/// The ledger of one receiver during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientLedger {
    pub(crate) receiver: u32,
    streams: BTreeMap<u32, DeliveryTracker>,
    corrupted: u64,
    foreign: u64,
    aways: Vec<AbsencePeriod>,
}

impl ClientLedger {
    pub(crate) fn new(receiver: u32) -> Self {
        Self {
            receiver,
            ..Self::default()
        }
    }

    pub(crate) fn receive(&mut self, note: MessageTag) {
        self.streams
            .entry(note.publisher)
            .or_default()
            .receive(note.number);
    }

    pub(crate) fn corrupted(&mut self) {
        self.corrupted += 1;
    }

    /// Counts a message that no publisher of the run has sent.
    pub(crate) fn foreign(&mut self) {
        self.foreign += 1;
    }

    /// Begins an absence. Has no effect if the receiver has not returned from the previous one.
    pub(crate) fn begin_absence(&mut self) {
        if self.is_away() {
            return;
        }
        let next = self
            .streams
            .iter()
            .map(|(client_index, stream)| (*client_index, stream.next));
        self.aways.push(AbsencePeriod {
            next: next.collect(),
            until_ns: None,
        });
    }

    pub(crate) fn end_absence(&mut self, at_ns: u64) {
        if let Some(away) = self.aways.last_mut()
            && away.until_ns.is_none()
        {
            away.until_ns = Some(at_ns);
        }
    }

    /// Ends an absence after a complete recovery. Missed messages remain expected, because the server must have sent them.
    pub(crate) fn recover(&mut self) {
        if self.is_away() {
            self.aways.pop();
        }
    }

    /// Ends an absence after which the server reported an incomplete recovery. Missed messages that were
    /// sent before `at_ns` count as away, not as lost.
    pub(crate) fn exclude_until(&mut self, at_ns: u64) {
        // The absence may have ended already, because another channel of the receiver was recovered.
        self.begin_absence();
        self.end_absence(at_ns);
    }

    fn is_away(&self) -> bool {
        self.aways
            .last()
            .is_some_and(|away| away.until_ns.is_none())
    }
}

/// The messages that a publisher sent to all receivers, or to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentMessage {
    /// The send time of each message, by the message's number.
    pub(crate) at_ns: Vec<u64>,
    /// Numbers of messages with an unknown outcome (unacknowledged or refused), in ascending order.
    pub(crate) unsure: Vec<u32>,
}

impl SentMessage {
    /// Returns how many messages in a range of numbers were certainly published.
    fn sure(&self, from: u32, until: u32) -> u64 {
        let below = |number: u32| self.unsure.partition_point(|unsure| *unsure < number);
        let unsure = below(until.max(from)) - below(from);
        u64::from(until.saturating_sub(from)) - unsure as u64
    }

    /// Returns the number of messages that were certainly published.
    pub(crate) fn published(&self) -> u64 {
        self.sure(0, self.at_ns.len() as u32)
    }
}

/// Sent messages by publisher and receiver. The receiver is `None` for messages to all receivers.
pub(crate) type SentLog = BTreeMap<(u32, Option<u32>), SentMessage>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecoveryCounts {
    pub(crate) returned: u64,
    pub(crate) refused: u64,
    pub(crate) ended: u64,
    pub(crate) retried: u64,
    pub(crate) example: Option<String>,
}

impl RecoveryCounts {
    fn add(&mut self, other: Self) {
        self.returned += other.returned;
        self.refused += other.refused;
        self.ended += other.ended;
        self.retried += other.retried;
        self.example = self.example.take().or(other.example);
    }
}

/// One thread's part of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryLedger {
    pub(crate) pages: Vec<ClientLedger>,
    #[serde(with = "entries")]
    pub(crate) log: SentLog,
    pub(crate) returns: Option<RecoveryCounts>,
}

impl DeliveryLedger {
    pub(crate) fn add(&mut self, other: Self) {
        self.pages.extend(other.pages);
        self.log.extend(other.log);
        if let Some(returns) = other.returns {
            self.returns.get_or_insert_default().add(returns);
        }
    }

    pub(crate) fn reconcile(&self) -> model::LedgerCounts {
        let mut ledger = model::LedgerCounts {
            receivers: self.pages.len() as u64,
            published: self.log.values().map(SentMessage::published).sum(),
            ..model::LedgerCounts::default()
        };
        let mut unsure_delivered = 0;
        let publishers: Vec<u32> = {
            let mut all: Vec<u32> = self.log.keys().map(|key| key.0).collect();
            all.dedup();
            all
        };
        for page in &self.pages {
            let mut line = LedgerLine::default();
            for publisher in &publishers {
                self.reconcile_stream(page, *publisher, &mut line);
            }
            // A corrupted message is missing as well, but counts only as corrupted, not as lost.
            let corrupted = page.corrupted.min(line.missing);
            let lost = line.missing - corrupted;
            ledger.expected += line.expected;
            ledger.delivered += line.delivered;
            ledger.away += line.away;
            ledger.lost += lost;
            ledger.corrupted += page.corrupted;
            ledger.foreign += page.foreign;
            ledger.duplicated += line.duplicated;
            ledger.reordered += line.reordered;
            unsure_delivered += line.unsure_delivered;
            if lost + page.corrupted + line.duplicated + line.reordered > 0 {
                ledger.worst.push(model::LedgerPage {
                    receiver: u64::from(page.receiver),
                    lost,
                    duplicated: line.duplicated,
                    reordered: line.reordered,
                    corrupted: page.corrupted,
                    first: line.first.unwrap_or_default(),
                });
            }
        }
        let faults = |page: &model::LedgerPage| {
            page.lost + page.corrupted + page.duplicated + page.reordered
        };
        ledger
            .worst
            .sort_by_key(|page| (u64::MAX - faults(page), page.receiver));
        ledger.worst.truncate(10);
        let unsure = self.log.values().map(|sent| sent.unsure.len() as u64).sum();
        ledger.recovery = self.returns.as_ref().map(|returns| model::Recovery {
            returned: returns.returned,
            refused: returns.refused,
            ended: returns.ended,
            retried: returns.retried,
            example: returns.example.clone(),
            unanswered: unsure,
            unanswered_delivered: unsure_delivered,
        });
        ledger
    }

    fn reconcile_stream(&self, page: &ClientLedger, publisher: u32, line: &mut LedgerLine) {
        let sent = self
            .log
            .get(&(publisher, None))
            .or_else(|| self.log.get(&(publisher, Some(page.receiver))));
        let Some(sent) = sent else {
            return;
        };
        // With recovery, a receiver that has not returned is also expected to get all messages.
        let owes_the_absent = self.returns.is_some();
        let nothing = DeliveryTracker::default();
        let stream = page.streams.get(&publisher).unwrap_or(&nothing);
        let published = sent.at_ns.len() as u32;
        let expected = sent.sure(0, published);
        line.expected += expected;
        line.duplicated += stream.duplicated;
        line.reordered += stream.reordered;
        let mut missing = 0;
        let mut away = 0;
        let mut unsure_delivered = sent.unsure.len() as u64;
        for (from, until) in stream.missing(published) {
            let sure = sent.sure(from, until);
            missing += sure;
            unsure_delivered -= u64::from(until - from) - sure;
            for gone in &page.aways {
                let first = gone.next.get(&publisher).copied().unwrap_or(0).max(from);
                let back = match gone.until_ns {
                    Some(until_ns) => sent.at_ns.partition_point(|at_ns| *at_ns < until_ns) as u32,
                    None if owes_the_absent => 0,
                    None => published,
                };
                away += sent.sure(first, back.min(until));
            }
            if line.first.is_none() && away < missing {
                let number = (from..until).find(|number| !sent.unsure.contains(number));
                let number = number.unwrap_or(from);
                line.first = Some(format!(
                    "message {number} of publisher {publisher} was never received"
                ));
            }
        }
        line.unsure_delivered += unsure_delivered;
        if line.first.is_none() && stream.duplicated + stream.reordered > 0 {
            line.first = Some(format!(
                "messages of publisher {publisher}: {} duplicated, {} out of order",
                stream.duplicated, stream.reordered
            ));
        }
        // Absences may overlap if connections fail repeatedly, so messages may be counted twice in `away`.
        let away = away.min(missing);
        line.delivered += expected - missing;
        line.away += away;
        line.missing += missing - away;
    }
}

#[derive(Default)]
struct LedgerLine {
    expected: u64,
    delivered: u64,
    missing: u64,
    away: u64,
    duplicated: u64,
    reordered: u64,
    unsure_delivered: u64,
    first: Option<String>,
}

/// Serialises maps as lists of entries, since JSON allows only strings as keys.
mod entries {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SentLog;

    pub(super) fn serialize<S: Serializer>(
        log: &SentLog,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        log.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SentLog, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: u32) -> MessageTag {
        MessageTag {
            run: 9,
            publisher: 3,
            number,
            at_ns: u64::from(number) * 10,
        }
    }

    #[test]
    fn notes_are_found_in_what_surrounds_them() {
        for bytes in [0, 64, 1000] {
            let mut message = b"{\"data\":\"".to_vec();
            let start = message.len();
            note(77).write(&mut message, bytes);
            assert_eq!(message.len() - start, bytes.max(NOTE_BYTES_MIN + 1));
            let end = message.len();
            message.extend_from_slice(b"\",\"x\":1.5}");
            assert_eq!(MessageTag::find(&message), TagSearch::Note(note(77)));
            // A change of any byte is detected.
            for at in start..end {
                let mut changed = message.clone();
                changed[at] ^= 1;
                assert_eq!(MessageTag::find(&changed), TagSearch::Corrupt, "{at}");
            }
            assert_eq!(MessageTag::find(&message[..end - 1]), TagSearch::Corrupt);
        }
        assert_eq!(MessageTag::find(b"welcome"), TagSearch::Nothing);
        let ping = b"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"and so on\":\"and so on\"}";
        assert_eq!(MessageTag::find(ping), TagSearch::Nothing);
    }

    /// Returns the ledger of a receiver that got the messages with these numbers, out of ten that were published at the times
    /// 0, 10, 20…
    fn settle(got: &[u32], change: impl FnOnce(&mut ClientLedger)) -> model::LedgerCounts {
        settle_with(got, &[], None, change)
    }

    /// Does the same as `settle`, with unacknowledged publications and recovery.
    fn settle_with(
        got: &[u32],
        unsure: &[u32],
        returns: Option<RecoveryCounts>,
        change: impl FnOnce(&mut ClientLedger),
    ) -> model::LedgerCounts {
        let mut page = ClientLedger::new(0);
        for number in got {
            page.receive(note(*number));
        }
        change(&mut page);
        let sent = SentMessage {
            at_ns: (0..10).map(|number| number * 10).collect(),
            unsure: unsure.to_vec(),
        };
        let delivery_ledger = DeliveryLedger {
            pages: vec![page],
            log: SentLog::from([((3, None), sent)]),
            returns,
        };
        let json = serde_json::to_string(&delivery_ledger).unwrap();
        assert_eq!(
            serde_json::from_str::<DeliveryLedger>(&json).unwrap(),
            delivery_ledger
        );
        delivery_ledger.reconcile()
    }

    #[test]
    fn exactly_the_injected_faults_are_found() {
        let all: Vec<u32> = (0..10).collect();
        let ledger = settle(&all, |_| ());
        assert_eq!((ledger.expected, ledger.delivered), (10, 10));
        assert_eq!(
            ledger.lost + ledger.duplicated + ledger.reordered + ledger.corrupted,
            0
        );
        assert!(ledger.worst.is_empty());

        let ledger = settle(&[0, 1, 1, 3, 2, 5, 7, 6, 6, 8], |_| ());
        assert_eq!((ledger.delivered, ledger.lost), (8, 2));
        assert_eq!((ledger.duplicated, ledger.reordered), (2, 2));
        let first = &ledger.worst[0].first;
        assert_eq!(first, "message 4 of publisher 3 was never received");

        let ledger = settle(&[0, 1, 2, 3, 5, 6, 7, 8, 9], ClientLedger::corrupted);
        assert_eq!((ledger.delivered, ledger.lost, ledger.corrupted), (9, 0, 1));

        let ledger = settle(&[0, 1, 2, 3, 5, 6, 7, 8, 9], ClientLedger::foreign);
        assert_eq!((ledger.delivered, ledger.lost, ledger.corrupted), (9, 1, 0));
        assert_eq!(ledger.foreign, 1);
    }

    #[test]
    fn unknown_numbers_are_counted_as_foreign() {
        let ledger = settle(&[0, 1, 5000], |_| ());
        assert_eq!((ledger.expected, ledger.delivered, ledger.lost), (10, 2, 8));
    }

    #[test]
    fn what_came_while_away_is_not_lost() {
        // The receiver is absent after message 2 and returns at 50, when message 5 is sent; message 6 is lost.
        let mut page = ClientLedger::new(0);
        for number in 0..=2 {
            page.receive(note(number));
        }
        page.begin_absence();
        page.end_absence(50);
        let ledger = settle(&[], |own| {
            *own = page.clone();
            for number in [5, 7, 8, 9] {
                own.receive(note(number));
            }
        });
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (7, 2, 1));
        // A server with history sends missed messages.
        let ledger = settle(&[], |own| {
            *own = page.clone();
            for number in 3..10 {
                own.receive(note(number));
            }
        });
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (10, 0, 0));
        // The receiver never returns.
        let ledger = settle(&[0, 1], ClientLedger::begin_absence);
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (2, 8, 0));
    }

    #[test]
    fn a_recovering_receiver_is_owed_missed_publications() {
        let returns = || Some(RecoveryCounts::default());
        let away = || {
            let mut page = ClientLedger::new(0);
            for number in 0..=2 {
                page.receive(note(number));
            }
            page.begin_absence();
            // A second disconnect before any message belongs to the same absence.
            page.begin_absence();
            page
        };
        // The recovery is reported as complete; messages 3 and 4, sent during the absence, are missing.
        let ledger = settle_with(&[], &[], returns(), |own| {
            *own = away();
            own.recover();
            (5..10).for_each(|number| own.receive(note(number)));
        });
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (8, 0, 2));
        // The server reports that recovery is incomplete, so the messages sent before 50 are
        // excused. Message 6 was sent later, so it counts as lost.
        let ledger = settle_with(&[], &[], returns(), |own| {
            *own = away();
            own.exclude_until(50);
            [5, 7, 8, 9]
                .into_iter()
                .for_each(|number| own.receive(note(number)));
        });
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (7, 2, 1));
        // The receiver recovers one channel completely, but not the other.
        let ledger = settle_with(&[], &[], returns(), |own| {
            *own = away();
            own.recover();
            own.exclude_until(50);
            (5..10).for_each(|number| own.receive(note(number)));
        });
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (8, 2, 0));
        // The receiver never returned, so the server reported no incomplete recovery and nothing is excused.
        let ledger = settle_with(&[], &[], returns(), |own| *own = away());
        assert_eq!((ledger.delivered, ledger.away, ledger.lost), (3, 0, 7));
    }

    #[test]
    fn unanswered_publications_may_arrive_once_or_not() {
        let returns = || Some(RecoveryCounts::default());
        let unsure = [3, 4, 7];
        let all: Vec<u32> = (0..10).collect();
        for (got, delivered, lost, duplicated, came) in [
            (&all[..], 7, 0, 0, 3),
            (&[0, 1, 2, 5, 6, 8, 9], 7, 0, 0, 0),
            (&[0, 1, 2, 4, 5, 6, 8, 9], 7, 0, 0, 1),
            // Missing acknowledged messages count as lost, and second copies of any message as
            // duplicated.
            (&[0, 1, 6, 8, 9], 5, 2, 0, 0),
            (&[0, 1, 2, 3, 3, 5, 6, 8, 9], 7, 0, 1, 1),
        ] {
            let ledger = settle_with(got, &unsure, returns(), |_| ());
            assert_eq!((ledger.published, ledger.expected), (7, 7), "{got:?}");
            assert_eq!(
                (ledger.delivered, ledger.lost),
                (delivered, lost),
                "{got:?}"
            );
            assert_eq!(ledger.duplicated, duplicated, "{got:?}");
            let recovery = ledger.recovery.unwrap();
            assert_eq!(
                (recovery.unanswered, recovery.unanswered_delivered),
                (3, came)
            );
        }
        let ledger = settle_with(&[0, 1, 6, 8, 9], &unsure, returns(), |_| ());
        let first = &ledger.worst[0].first;
        assert_eq!(first, "message 2 of publisher 3 was never received");
    }
}
