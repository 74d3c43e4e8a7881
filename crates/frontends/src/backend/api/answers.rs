//! Response bodies of API calls. They may be long, so they are encoded in parts, from the hub's results, as the
//! caller reads.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use crate::backend::Exchange;
use crate::http::call::AnswerBody;

/// The part of a response body that is not written yet.
pub(crate) struct ApiAnswerBody {
    begin: Vec<u8>,
    /// Exchanges whose answers are not written yet, each with the JSON key of its result.
    exchanges: VecDeque<(Exchange, &'static str)>,
    /// Number of written list elements of the first exchange; `None` if none of its answer is written yet.
    next: Option<usize>,
    /// The separator between two exchanges.
    separator: u8,
    end: &'static [u8],
}

impl ApiAnswerBody {
    /// Creates a body that is already encoded.
    pub(super) fn whole(body: Vec<u8>) -> Self {
        Self {
            begin: body,
            exchanges: VecDeque::new(),
            next: None,
            separator: b',',
            end: b"",
        }
    }

    /// Creates the body for a single command.
    pub(super) fn one(exchanges: VecDeque<Exchange>) -> Self {
        debug_assert_eq!(
            exchanges.len(),
            1,
            "a single command must have exactly one reply"
        );
        Self {
            exchanges: exchanges.into_iter().map(|one| (one, "result")).collect(),
            ..Self::whole(Vec::new())
        }
    }

    /// Creates the body of a batch in Centrifugo's format: each reply has its method as the key in place of `result`.
    pub(super) fn batch(exchanges: VecDeque<(Exchange, &'static str)>) -> Self {
        Self {
            exchanges,
            end: b"]}",
            ..Self::whole(b"{\"replies\":[".to_vec())
        }
    }

    /// Creates the body for legacy commands, with one answer per line.
    pub(super) fn lines(exchanges: VecDeque<Exchange>) -> Self {
        Self {
            exchanges: exchanges.into_iter().map(|one| (one, "result")).collect(),
            separator: b'\n',
            ..Self::whole(Vec::new())
        }
    }

    /// Returns the code and the JSON object of the error if the whole body is an error, otherwise `None`.
    pub(super) fn error(&self) -> Option<(u32, String)> {
        #[derive(serde::Deserialize)]
        struct Error<'a> {
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        #[derive(serde::Deserialize)]
        struct Code {
            code: u32,
        }
        let mut body = self.begin.clone();
        match self.exchanges.front() {
            Some((exchange, _)) if exchange.is_list() => return None,
            Some((exchange, key)) => exchange.write(&mut body, key),
            None => {}
        }
        let error = serde_json::from_slice::<Error<'_>>(&body).ok()?.error?;
        let Code { code } = serde_json::from_str(error.get()).ok()?;
        Some((code, error.get().to_owned()))
    }
}

impl AnswerBody for ApiAnswerBody {
    fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        out.append(&mut self.begin);
        while let Some((exchange, key)) = self.exchanges.front() {
            if !exchange.write_part(out, key, &mut self.next, bytes_max) {
                return false;
            }
            self.next = None;
            self.exchanges.pop_front();
            if !self.exchanges.is_empty() {
                out.push(self.separator);
            }
        }
        out.extend_from_slice(self.end);
        true
    }
}
