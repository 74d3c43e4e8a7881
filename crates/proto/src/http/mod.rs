//! HTTP/1.0 and 1.1 for servers (RFC 9110, RFC 9112).
//!
//! Requests: [`read_head`] parses a head from growing input (with [`HeadScan`] and [`parse_head`]), [`BodyDecoder`]
//! decodes the body. Responses are appended to a `Vec<u8>`: the head by [`ResponseHead`], a streamed body by
//! [`write_chunk`] and [`finish_chunks`]. Routes, handlers, timeouts and transports are outside, in `veche-frontends`
//! and `veche-net`.
//!
//! Parsing is strict, since everything that two parsers could interpret differently can smuggle a request past one of
//! them: bare CR or LF, folded lines, doubtful lengths and codings are refused, never repaired. Every refusal is an
//! [`HttpError`], with which the server answers the request before it closes the connection. Parsing allocates only for
//! paths that are not in [normal form](normal_path), and no input causes a panic.

mod body;
mod cookie;
mod error;
mod etag;
mod framing;
mod head;
mod method;
mod parse;
mod path;
mod query;
mod response;
mod scan;
mod status;
mod syntax;
mod target;

pub use body::{BodyDecoder, BodyPiece};
pub use error::{HeadLimits, HttpError};
pub use etag::{EtagComparison, etag_list_matches};
pub use framing::Framing;
pub use head::{HEAD_BYTES_MAX, HEADERS_MAX, Head, HttpVersion};
pub use method::Method;
pub use parse::{parse_head, read_head};
pub use path::{encoded_path, normal_path};
pub use query::Query;
pub use response::{
    CONTINUE, DateHeader, InvalidHeader, ResponseBody, ResponseHead, ResponseWriter, check_header,
    finish_chunks, write_chunk, write_error,
};
pub use scan::{HeadScan, LEADING_LINES_MAX};
pub use status::Status;
pub use syntax::list_members;
