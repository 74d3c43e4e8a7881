//! Assembly of commands from their fields.

use crate::data::{DEPTH_MAX, Data};
use crate::depth;
use crate::malformed::Malformed;
use crate::request::{Command, ConnectRequest, Request};

/// Maximum number of entries of a map in a command (`subs`, `headers`).
pub const ENTRIES_MAX: usize = 4096;

/// A command whose fields were decoded but not validated together.
#[derive(Default)]
pub(super) struct Draft<'a> {
    pub(super) id: u32,
    pub(super) request: Option<Request<'a>>,
    pub(super) has_many: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn add(&mut self, request: Request<'a>) {
        self.has_many |= self.request.is_some();
        self.request = Some(request);
    }

    pub(super) fn finish(self) -> Result<Command<'a>, Malformed> {
        let request = match self.request {
            Some(_) if self.has_many => return Err(Malformed::ManyRequests),
            Some(request) => request,
            None if self.id == 0 => Request::Pong,
            None => return Err(Malformed::NoRequest),
        };
        if self.id == 0 && request.is_answered() {
            return Err(Malformed::NoId);
        }
        if let Some(Data::Json(text)) = request.data()
            && depth::is_over(text, DEPTH_MAX)
        {
            return Err(Malformed::TooDeep);
        }
        if let Request::Connect(connect) = &request {
            check(connect)?;
        }
        Ok(Command {
            id: self.id,
            request,
        })
    }
}

fn check(connect: &ConnectRequest<'_>) -> Result<(), Malformed> {
    match connect.subs.len().max(connect.headers.len()) > ENTRIES_MAX {
        true => Err(Malformed::TooManyEntries),
        false => Ok(()),
    }
}
