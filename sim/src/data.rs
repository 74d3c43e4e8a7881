//! The data of publications: a channel, a number, and bytes derived from both, so that any corruption is noticed.

use serde_json::{Value, json};

use crate::Failure;
use crate::failure::promise;

/// The number of padding characters that differ between publications. It is small, so that deltas are small.
const CHANGED: usize = 3;

/// Returns the data of a publication.
pub(crate) fn data(channel: usize, number: u64, pad: u16) -> Value {
    json!({ "c": channel, "n": number, "p": padding(number, pad.into()) })
}

/// Returns the channel and the number in a publication's data, and checks that the data is unchanged.
pub(crate) fn number_in(data: &Value) -> Result<(usize, u64), Failure> {
    let (channel, number) = (data["c"].as_u64(), data["n"].as_u64());
    let text = data["p"].as_str();
    let is_whole = match (number, text) {
        (Some(number), Some(text)) => text == padding(number, text.len()),
        _ => false,
    };
    promise!(
        is_whole && channel.is_some(),
        "data arrive unchanged",
        "{data}"
    );
    Ok((channel.unwrap_or(0) as usize, number.unwrap_or(0)))
}

/// Like [`number_in`], for data that was received as text.
pub(crate) fn number_in_text(text: &str) -> Result<(usize, u64), Failure> {
    let value = serde_json::from_str(text);
    promise!(value.is_ok(), "data arrive unchanged", "{text:?}");
    number_in(&value.unwrap_or_default())
}

fn padding(number: u64, length: usize) -> String {
    let mut letters = vec![b'x'; length];
    for step in 0..CHANGED {
        if length > 0 {
            let place = (number as usize * 31 + step * 97) % length;
            letters[place] = b'a' + (number % 20) as u8;
        }
    }
    letters.into_iter().map(char::from).collect()
}

/// Returns the offset of a publication; 0 for none.
pub(crate) fn offset_of(publication: &Value) -> u64 {
    publication["offset"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupted_data_is_noticed() {
        let sent = data(3, 41, 50);
        assert_eq!(number_in(&sent), Ok((3, 41)));
        assert_eq!(number_in_text(&sent.to_string()), Ok((3, 41)));
        let text = sent.to_string();
        for wrong in [text.replace("41", "42"), text.replacen("xx", "x", 1)] {
            assert!(number_in_text(&wrong).is_err(), "{wrong}");
        }
    }
}
