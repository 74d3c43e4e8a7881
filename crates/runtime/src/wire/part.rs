//! The parts of a payload, numbered from 0, and the declared format of a part.

use veche_types::PayloadKind;

/// The payload of a frame, split into the parts that its head declares.
#[derive(Clone, Debug)]
pub(super) struct PayloadParts<'a> {
    payload: &'a [u8],
    /// The offset of the end of each part; empty if the payload is a single part.
    ends: Vec<usize>,
}

impl<'a> PayloadParts<'a> {
    /// Splits a payload into parts of the given lengths; without lengths it is one part.
    pub(super) fn new(payload: &'a [u8], lengths: &[u32]) -> Result<Self, String> {
        let mut end = 0;
        let mut ends = Vec::with_capacity(lengths.len());
        for length in lengths {
            end += *length as usize;
            ends.push(end);
        }
        match ends.last() {
            Some(end) if *end != payload.len() => Err(format!(
                "the parts have {end} bytes together, but the payload has {}",
                payload.len()
            )),
            _ => Ok(Self { payload, ends }),
        }
    }

    /// Returns a part by its number.
    pub(super) fn get(&self, number: u32) -> Result<&'a [u8], String> {
        let place = number as usize;
        if self.ends.is_empty() && place == 0 {
            return Ok(self.payload);
        }
        let end = self.ends.get(place);
        let end = end.ok_or_else(|| format!("the payload has no part {number}"))?;
        let from = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Ok(&self.payload[from..*end])
    }

    /// Returns a part, validated as UTF-8 or JSON if it is declared as such.
    pub(super) fn get_as(&self, number: u32, kind: PayloadKind) -> Result<&'a [u8], String> {
        let part = self.get(number)?;
        match kind {
            PayloadKind::Binary => {}
            PayloadKind::Text => {
                std::str::from_utf8(part).map_err(|_| "text must be UTF-8")?;
            }
            PayloadKind::Json => {
                let has_lines = part.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
                let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok();
                if has_lines || !is_json {
                    return Err("data must be a single JSON value on one line".to_owned());
                }
            }
        }
        Ok(part)
    }
}

/// Returns the payload kind of a name.
pub(super) fn data_kind(name: &str) -> Result<PayloadKind, String> {
    match name {
        "text" => Ok(PayloadKind::Text),
        "binary" => Ok(PayloadKind::Binary),
        "json" => Ok(PayloadKind::Json),
        other => Err(format!("unknown kind of data {other:?}")),
    }
}
