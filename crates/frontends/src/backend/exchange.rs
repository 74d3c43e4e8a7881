//! A question of the back end and its answer: how it adds up, and how it is written.

use std::fmt::Write as _;

/// Error code for a request that can't be understood or carried out as written.
pub const BAD_REQUEST: u32 = 107;
/// Error code for a caller without a key.
pub const UNAUTHORIZED: u32 = 101;
/// Error code for a method that does not exist.
pub const METHOD_NOT_FOUND: u32 = 104;

/// How an answer adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"handed":N}`, all targets together.
    Sum,
    /// `{"responses":[…]}`, one for each target.
    Each,
    /// `{"disconnected":N}`.
    Disconnected,
}

/// One command that is to be answered.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: Option<Box<str>>,
    pub(super) shape: Shape,
    pub(super) handed: Vec<u32>,
    /// Answers of homes on other workers that are still to come, and one more while a job is unfinished.
    pub(super) open: u32,
    /// Its code, and what it says.
    pub(super) error: Option<(u32, String)>,
}

impl Exchange {
    /// Writes the answer as one JSON object.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut text = String::with_capacity(64);
        text.push('{');
        if let Some(id) = &self.id {
            let _ = write!(text, "\"id\":{id},");
        }
        match (&self.error, self.shape) {
            (Some((code, error)), _) => write_error(&mut text, *code, error),
            (None, Shape::Sum) => {
                let handed: u64 = self.handed.iter().map(|&handed| u64::from(handed)).sum();
                let _ = write!(text, "\"result\":{{\"handed\":{handed}}}");
            }
            (None, Shape::Disconnected) => {
                let _ = write!(text, "\"result\":{{\"disconnected\":{}}}", self.handed[0]);
            }
            (None, Shape::Each) => {
                text.push_str("\"result\":{\"responses\":[");
                for (index, handed) in self.handed.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    let _ = write!(text, "{comma}{{\"result\":{{\"handed\":{handed}}}}}");
                }
                text.push_str("]}");
            }
        }
        text.push('}');
        out.extend_from_slice(text.as_bytes());
    }
}

/// `"error":{…}`, without the braces around.
pub fn write_error(text: &mut String, code: u32, message: &str) {
    let message = serde_json::Value::from(message);
    let _ = write!(text, "\"error\":{{\"code\":{code},\"message\":{message}}}");
}
