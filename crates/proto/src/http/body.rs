//! Decoding of a request's body: sized, or strictly chunked as in RFC 9112 section 7.1.

use std::ops::Range;

use super::syntax::{is_token_byte, is_value_byte};
use super::{Framing, HeadLimits, HttpError, Status};

/// Maximum length of the extensions of one chunk. They are ignored.
const EXTENSION_BYTES_MAX: u32 = 256;

/// Maximum length of all trailers. They are validated and ignored: nothing after the body may change the meaning of the
/// head (RFC 9110 section 6.5.1).
const TRAILER_BYTES_MAX: u32 = 8 * 1024;

/// Maximum number of hexadecimal digits of a chunk size, enough for a `u64`.
const SIZE_DIGITS_MAX: u32 = 16;

/// Decodes one body incrementally. It buffers nothing, and its result does not depend on how the input is split.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Number of bytes read so far of the element whose length the current state limits: the digits of a chunk size, a
    /// chunk extension, or the trailers.
    count: u32,
    /// Bytes left of the body or chunk.
    remaining: u64,
    /// Number of payload bytes that later chunks may still announce before the body exceeds its limit.
    budget: u64,
}

const _: () = assert!(size_of::<BodyDecoder>() <= 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    End,
    Sized,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

/// The result of [`BodyDecoder::decode`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyPiece {
    /// Number of bytes consumed; the next call gets the bytes after them.
    pub consumed: usize,
    /// Range of the payload in the input; may be empty.
    pub data: Range<usize>,
    /// Whether the body is complete: the next request begins after `consumed`.
    pub is_end: bool,
}

impl BodyDecoder {
    /// Creates a decoder for the body announced by a head, limited to `limits.body_bytes_max`.
    #[must_use]
    pub const fn new(framing: Framing, limits: &HeadLimits) -> Self {
        let (state, remaining) = match framing {
            Framing::None | Framing::Sized(0) => (State::End, 0),
            Framing::Sized(length) => (State::Sized, length),
            Framing::Chunked => (State::Size, 0),
        };
        Self {
            state,
            count: 0,
            remaining,
            budget: limits.body_bytes_max,
        }
    }

    /// Returns whether the body is complete.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Consumes `input` until a contiguous run of payload ends, the body is complete, or `input` is exhausted. So all
    /// of `input` is consumed, unless payload was found or the body is complete.
    ///
    /// # Errors
    /// 400 for invalid chunked coding, 413 for too much payload, 431 for too many trailers. The decoder must not be
    /// used afterwards.
    pub fn decode(&mut self, input: &[u8]) -> Result<BodyPiece, HttpError> {
        let mut at = 0;
        while at < input.len() && self.state != State::End {
            if matches!(self.state, State::Sized | State::Data) {
                return Ok(self.take_data(input, at));
            }
            self.step(input[at])?;
            at += 1;
        }
        Ok(BodyPiece {
            consumed: at,
            data: at..at,
            is_end: self.is_end(),
        })
    }

    fn take_data(&mut self, input: &[u8], at: usize) -> BodyPiece {
        let left = input.len() - at;
        let taken = usize::try_from(self.remaining).map_or(left, |remaining| remaining.min(left));
        self.remaining -= taken as u64;
        if self.remaining == 0 {
            self.state = if self.state == State::Sized {
                State::End
            } else {
                State::DataCr
            };
        }
        let end = at + taken;
        BodyPiece {
            consumed: end,
            data: at..end,
            is_end: self.is_end(),
        }
    }

    /// Handles one byte of the body's framing.
    fn step(&mut self, byte: u8) -> Result<(), HttpError> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.limit(SIZE_DIGITS_MAX, HttpError::bad("a chunk size is too large"))?;
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.remaining = self.remaining << 4 | u64::from(digit);
                State::Size
            }
            (State::Size, b'\r') if self.count > 0 => State::SizeLf,
            (State::Size, b';') if self.count > 0 => {
                self.count = 0;
                State::Extension
            }
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, _) if is_value_byte(byte) => {
                self.limit(
                    EXTENSION_BYTES_MAX,
                    HttpError::bad("a chunk extension is too long"),
                )?;
                State::Extension
            }
            (State::SizeLf, b'\n') => {
                self.count = 0;
                self.begin_chunk()?
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                self.trailer(State::TrailerName)?
            }
            (State::TrailerName, b':') => self.trailer(State::TrailerValue)?,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if is_value_byte(byte) => self.trailer(State::TrailerValue)?,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::End,
            (State::Size | State::Extension | State::SizeLf, _) => {
                return Err(HttpError::bad("a chunk size is malformed"));
            }
            (State::DataCr | State::DataLf, _) => {
                return Err(HttpError::bad("a chunk is longer than its size"));
            }
            _ => return Err(HttpError::bad("a trailer is malformed")),
        };
        Ok(())
    }

    fn begin_chunk(&mut self) -> Result<State, HttpError> {
        if self.remaining == 0 {
            return Ok(State::TrailerStart);
        }
        self.budget = self
            .budget
            .checked_sub(self.remaining)
            .ok_or(HttpError::new(
                Status::CONTENT_TOO_LARGE,
                "the body is too large",
            ))?;
        Ok(State::Data)
    }

    fn trailer(&mut self, next: State) -> Result<State, HttpError> {
        self.limit(
            TRAILER_BYTES_MAX,
            HttpError::new(Status::HEADERS_TOO_LARGE, "the trailers are too large"),
        )?;
        Ok(next)
    }

    fn limit(&mut self, max: u32, error: HttpError) -> Result<(), HttpError> {
        self.count += 1;
        if self.count > max { Err(error) } else { Ok(()) }
    }
}
