//! Parses the chunks of a response body, and the messages of an endless response, one per line or event.

use serde_json::Value;

use crate::Failure;
use crate::failure::promise;
use crate::protobuf;

/// The framing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    Lines,
    /// Server-sent events of one line each.
    Events,
    /// Server-sent events that may have several lines.
    EventsOfLines,
    /// Protobuf messages, each after its length.
    Bytes,
}

/// A parsed part of a response.
#[derive(Debug)]
pub(crate) enum ResponsePart {
    Status(u16),
    /// A message with the id of its event.
    Message(Value, Option<String>),
    /// The last chunk of the body.
    End,
}

/// Received data that is not parsed yet.
#[derive(Default)]
pub(crate) struct ReceivedResponse {
    bytes: Vec<u8>,
    status: Option<u16>,
    /// The concatenated content of chunks.
    text: Vec<u8>,
}

impl ReceivedResponse {
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        form: ResponseFormat,
    ) -> Result<Vec<ResponsePart>, Failure> {
        let mut parts = Vec::new();
        self.bytes.extend_from_slice(bytes);
        if self.status.is_none() {
            let Some(end) = find(&self.bytes, b"\r\n\r\n") else {
                return Ok(parts);
            };
            let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
            let status = head
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3)?.parse().ok());
            promise!(status.is_some(), "responses are HTTP", "{head:?}");
            self.status = status;
            parts.extend(status.map(ResponsePart::Status));
            self.bytes.drain(..end + 4);
        }
        if self.status != Some(200) {
            return Ok(parts);
        }
        while let Some(chunk) = take_chunk(&mut self.bytes)? {
            self.text.extend_from_slice(&chunk);
            self.take_messages(form, &mut parts)?;
            if chunk.is_empty() {
                parts.push(ResponsePart::End);
            }
        }
        Ok(parts)
    }

    fn take_messages(
        &mut self,
        form: ResponseFormat,
        parts: &mut Vec<ResponsePart>,
    ) -> Result<(), Failure> {
        if form == ResponseFormat::Bytes {
            let replies = protobuf::whole_replies(&mut self.text)?;
            parts.extend(
                replies
                    .into_iter()
                    .map(|reply| ResponsePart::Message(reply, None)),
            );
            return Ok(());
        }
        let is_events = form != ResponseFormat::Lines;
        let end_of_one: &[u8] = if is_events { b"\n\n" } else { b"\n" };
        while let Some(end) = find(&self.text, end_of_one) {
            let one = String::from_utf8_lossy(&self.text[..end]).into_owned();
            self.text.drain(..end + end_of_one.len());
            // Extra empty lines have no meaning.
            if is_events && one.trim().is_empty() {
                continue;
            }
            let (mut data, mut id) = (String::new(), None);
            match is_events {
                false => data = one,
                true => {
                    for line in one.lines().filter(|line| !line.is_empty()) {
                        let field = line.split_once(": ");
                        match field {
                            Some(("data", text)) => {
                                if form == ResponseFormat::EventsOfLines && !data.is_empty() {
                                    data.push('\n');
                                }
                                data.push_str(text);
                            }
                            Some(("id", text)) => id = Some(text.to_owned()),
                            _ => promise!(false, "events have fields", "{line:?}"),
                        }
                    }
                }
            }
            for line in data.split('\n') {
                let value = serde_json::from_str(line);
                promise!(value.is_ok(), "lines are JSON", "{data:?}");
                parts.push(ResponsePart::Message(value.unwrap_or_default(), id.clone()));
            }
        }
        Ok(())
    }
}

/// Removes the first chunk of a response body and returns its content, which is empty for the last chunk. Returns `None`
/// if the chunk is incomplete.
pub(crate) fn take_chunk(bytes: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(head_end) = find(bytes, b"\r\n") else {
        return Ok(None);
    };
    let length = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let count = u32::from_str_radix(&length, 16).ok();
    let count = count.filter(|_| !length.starts_with('+'));
    promise!(count.is_some(), "chunks have a length", "{length:?}");
    let count = count.unwrap_or_default() as usize;
    let end = head_end + 2 + count;
    if bytes.len() < end + 2 {
        return Ok(None);
    }
    promise!(
        bytes[end..end + 2] == *b"\r\n",
        "chunks end",
        "one of {count} bytes"
    );
    let chunk = bytes[head_end + 2..end].to_vec();
    bytes.drain(..end + 2);
    Ok(Some(chunk))
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_a_length() {
        for text in ["+1\r\na\r\n", "\r\n\r\n", "100000000\r\n", "1\r\nab\r\n"] {
            let taken = take_chunk(&mut text.as_bytes().to_vec());
            assert!(taken.is_err(), "{text:?}: {taken:?}");
        }
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n12\r\nid: x\ndata: {\"a\":1\r\n3\r\n}\n\n\r\n0\r\n\r\n";
        for step in 1..text.len() {
            let mut response = ReceivedResponse::default();
            let parts = text.chunks(step).flat_map(|bytes| {
                let read = response.read(bytes, ResponseFormat::Events);
                read.expect("good")
            });
            let parts: Vec<_> = parts.collect();
            let expected = r#"[Status(200), Message(Object {"a": Number(1)}, Some("x")), End]"#;
            assert_eq!(format!("{parts:?}"), expected, "in steps of {step}");
        }
    }
}
