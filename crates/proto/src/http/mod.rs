//! HTTP/1.0 and 1.1 as servers speak it (RFC 9110, RFC 9112).
//!
//! Requests come in: [`read_head`] takes a head off growing input (by [`HeadScan`] and [`parse_head`]), [`BodyDecoder`]
//! takes the body off the wire. Responses go out: [`ResponseHead`] begins one by appending to a `Vec<u8>`,
//! [`write_chunk`] and [`finish_chunks`] stream one. Nothing here knows routes, handlers, timeouts or how bytes
//! travel; those live in `veche-frontends` above and `veche-net` below.
//!
//! Reading is strict, as everything that two readers could understand differently is a way to smuggle a request past
//! one of them: bare CR or LF, folded lines, doubtful lengths and codings are refused, never repaired. Every refusal
//! is an [`HttpError`], after which the connection is answered and closed. Nothing here allocates while parsing but for
//! a path that is not in [normal form](normal_path), and no input makes it panic.

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
