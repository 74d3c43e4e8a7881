//! Positions of clients that use server-sent events, for recovery by event ids.
//!
//! A browser stores only the last event id that it received, and sends it when it reconnects (`Last-Event-ID`; WHATWG
//! HTML section 9.2.4). Each id therefore contains the position in every channel with history that the client
//! subscribed to when it connected. Channel names are not needed, since no two channels have the same epoch. The
//! format is internal: the base64 of five bytes for each epoch and one to ten bytes for its offset.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use veche_hub::{ConnectionId, Epoch, Position, Since};

use super::CHANNELS_PER_CLIENT_MAX;
use super::Outboxes;

const EPOCH_BYTES: usize = 5;
const OFFSET_BYTES_MAX: usize = 10;

/// Maximum length of an event id in bytes.
const ID_BYTES_MAX: usize =
    (CHANNELS_PER_CLIENT_MAX * (EPOCH_BYTES + OFFSET_BYTES_MAX)).div_ceil(3) * 4;

/// The positions of one client.
#[derive(Default)]
struct SseCursors {
    /// The channels with their positions.
    all: Vec<(Box<str>, Position)>,
    /// Whether a position has changed, so that the next event has to contain an id.
    has_moved: bool,
}

/// The positions of each session by session index, only for sessions whose transport has event ids.
#[derive(Default)]
pub(super) struct WorkerCursors(HashMap<u32, SseCursors>);

impl WorkerCursors {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn begin(&mut self, index: u32) {
        self.0.insert(index, SseCursors::default());
    }

    pub(super) fn forget(&mut self, index: u32) {
        // The map is usually empty, so its lookup is avoided.
        if !self.0.is_empty() {
            self.0.remove(&index);
        }
    }

    /// Advances the position in a channel before a publication is written. Channels to which the
    /// client subscribed after it connected have no position, so they are not recovered.
    pub(super) fn advance(&mut self, index: u32, channel: &str, position: Option<Position>) {
        if self.0.is_empty() {
            return;
        }
        let (Some(marks), Some(position)) = (self.0.get_mut(&index), position) else {
            return;
        };
        let mut all = marks.all.iter_mut();
        if let Some((_, mark)) = all.find(|(one, _)| **one == *channel) {
            *mark = position;
            marks.has_moved = true;
        }
    }

    /// Returns the `id` line of the next event; `None` if no position has changed since the
    /// previous event.
    pub(super) fn take_id_line(&mut self, index: u32) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let marks = self.0.get_mut(&index)?;
        if !std::mem::take(&mut marks.has_moved) || marks.all.is_empty() {
            return None;
        }
        let mut line = String::from("id: ");
        URL_SAFE_NO_PAD.encode_string(bytes(&marks.all), &mut line);
        line.push('\n');
        Some(line)
    }
}

impl Outboxes {
    /// Sets the position in a channel, to be sent with the next event, if the transport has event ids.
    pub(crate) fn set_cursor(&mut self, id: ConnectionId, channel: &str, position: Position) {
        let Some(marks) = self.push_state.cursors.0.get_mut(&id.index) else {
            return;
        };
        marks.has_moved = true;
        match marks.all.iter_mut().find(|(one, _)| **one == *channel) {
            Some((_, mark)) => *mark = position,
            None => marks.all.push((channel.into(), position)),
        }
    }

    /// Returns the approximate size in bytes of an event id for this number of channels; 0 if the transport has no
    /// event ids.
    pub(crate) fn cursor_bytes(&self, id: ConnectionId, channels: usize) -> usize {
        match self.push_state.cursors.0.contains_key(&id.index) {
            true => "id: \n".len() + channels * (EPOCH_BYTES + 4) * 4 / 3,
            false => 0,
        }
    }

    /// Removes the position in a channel from which the client unsubscribed.
    pub(crate) fn clear_cursor(&mut self, id: ConnectionId, channel: &str) {
        if let Some(marks) = self.push_state.cursors.0.get_mut(&id.index) {
            marks.all.retain(|(one, _)| **one != *channel);
        }
    }
}

fn bytes(all: &[(Box<str>, Position)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(all.len() * (EPOCH_BYTES + 2));
    for (_, Position { epoch, offset }) in all {
        bytes.extend_from_slice(&epoch.bits().to_be_bytes()[8 - EPOCH_BYTES..]);
        let mut rest = *offset;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// Decodes an event id. An id that can't be decoded yields a position that no channel has, so that recovery is
/// reported as incomplete.
pub(crate) fn since(id: &str) -> Arc<[Since]> {
    let nowhere = Since {
        epoch: Some(Epoch::UNKNOWN),
        offset: 0,
    };
    read(id).unwrap_or_else(|| Arc::from([nowhere]))
}

fn read(id: &str) -> Option<Arc<[Since]>> {
    if id.len() > ID_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(id).ok()?;
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (epoch, behind) = rest.split_first_chunk::<EPOCH_BYTES>()?;
        let end = behind.iter().position(|byte| *byte < 0x80)?;
        if end >= OFFSET_BYTES_MAX || all.len() >= CHANNELS_PER_CLIENT_MAX {
            return None;
        }
        let mut offset = 0_u64;
        for byte in behind[..=end].iter().rev() {
            offset = offset.checked_mul(0x80)? | u64::from(byte & 0x7f);
        }
        rest = &behind[end + 1..];
        let mut bits = [0; 8];
        bits[8 - EPOCH_BYTES..].copy_from_slice(epoch);
        let epoch = Epoch::from_bits(u64::from_be_bytes(bits));
        all.push(Position { epoch, offset }.into());
    }
    (!all.is_empty()).then(|| all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(bits: u64, offset: u64) -> Position {
        Position {
            epoch: Epoch::from_bits(bits),
            offset,
        }
    }

    fn line(all: &[Position]) -> Option<String> {
        let mut marks = WorkerCursors::default();
        marks.begin(7);
        let named = all.iter().enumerate();
        let all = named.map(|(number, one)| (number.to_string().into(), *one));
        marks.0.get_mut(&7)?.all = all.collect();
        marks.0.get_mut(&7)?.has_moved = true;
        assert_eq!(marks.take_id_line(8), None);
        let line = marks.take_id_line(7);
        assert_eq!(marks.take_id_line(7), None, "nothing has moved since");
        line
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let whole: Vec<Position> = (0..CHANNELS_PER_CLIENT_MAX as u64)
            .map(|number| position(u64::MAX - number, u64::MAX - number))
            .collect();
        for all in [
            &[position(1, 0)][..],
            &[position(0x12_3456_789a, 127), position(2, 128)],
            &[position(u64::MAX, u64::MAX)],
            &whole,
        ] {
            let line = line(all).expect("a line");
            let id = line
                .strip_prefix("id: ")
                .and_then(|id| id.strip_suffix('\n'));
            let id = id.expect("a line");
            assert!(id.len() <= ID_BYTES_MAX, "{}", id.len());
            let expected: Vec<Since> = all.iter().map(|one| (*one).into()).collect();
            assert_eq!(*since(id), *expected);
        }
        assert_eq!(line(&[]), None);
        // An event id with the position in one channel has ten characters.
        let line = line(&[position(u64::MAX, 1_000)]).expect("a line");
        assert_eq!(line.len(), "id: \n".len() + 10);
    }

    #[test]
    fn foreign_event_ids_yield_an_unknown_position() {
        let good = line(&[position(7, 300)]).expect("a line");
        let good = good.trim_start_matches("id: ").trim_end();
        let many = line(&vec![position(7, 0); CHANNELS_PER_CLIENT_MAX + 1]).expect("a line");
        let long = "A".repeat(ID_BYTES_MAX + 4);
        let endless = URL_SAFE_NO_PAD.encode([&[1; 5][..], &[0xff; 12], &[0]].concat());
        let too_large = URL_SAFE_NO_PAD.encode([&[1; 5][..], &[0xff; 9], &[2]].concat());
        for bad in [
            "",
            "42",
            "urn:uuid:1",
            "\u{e4}",
            "AAAA",
            &good[1..],
            &good[..good.len() - 2],
            &long,
            many[4..].trim_end(),
            &endless,
            &too_large,
        ] {
            let since = since(bad);
            assert_eq!(since.len(), 1, "{bad}");
            assert_eq!(since[0].epoch, Some(Epoch::UNKNOWN), "{bad}");
        }
    }
}
