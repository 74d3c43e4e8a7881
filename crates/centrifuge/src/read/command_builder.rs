//! Assembly of commands from their fields.

use crate::data::{DEPTH_MAX, PublicationData};
use crate::depth;
use crate::malformed::MalformedMessage;
use crate::request::{ClientRequest, Command, ConnectRequest};

/// Maximum number of entries of a map in a command (`subs`, `headers`).
pub const ENTRIES_MAX: usize = 4096;

/// A command whose fields were decoded but not validated together.
#[derive(Default)]
pub(super) struct CommandBuilder<'a> {
    pub(super) id: u32,
    pub(super) request: Option<ClientRequest<'a>>,
    pub(super) has_many: bool,
}

impl<'a> CommandBuilder<'a> {
    pub(super) fn add(&mut self, request: ClientRequest<'a>) {
        self.has_many |= self.request.is_some();
        self.request = Some(request);
    }

    pub(super) fn finish(self) -> Result<Command<'a>, MalformedMessage> {
        let request = match self.request {
            Some(_) if self.has_many => return Err(MalformedMessage::ManyRequests),
            Some(request) => request,
            None if self.id == 0 => ClientRequest::Pong,
            None => return Err(MalformedMessage::NoRequest),
        };
        if self.id == 0 && request.is_answered() {
            return Err(MalformedMessage::NoId);
        }
        if let Some(PublicationData::Json(text)) = request.data()
            && depth::is_over(text, DEPTH_MAX)
        {
            return Err(MalformedMessage::TooDeep);
        }
        if let ClientRequest::Connect(connect) = &request {
            check(connect)?;
        }
        Ok(Command {
            id: self.id,
            request,
        })
    }
}

fn check(connect: &ConnectRequest<'_>) -> Result<(), MalformedMessage> {
    match connect.subs.len().max(connect.headers.len()) > ENTRIES_MAX {
        true => Err(MalformedMessage::TooManyEntries),
        false => Ok(()),
    }
}
