//! Reports decisions on a client's commands to the decision log.

use std::borrow::Cow;

use veche_centrifuge::Request;

use super::frame::Frame;
use super::{Centrifuge, Context, Done, Waiting};
use crate::context::note::Decision;

/// Returns the kind and channel of a command that needs a decision.
fn asked<'r>(request: &'r Request<'_>) -> Option<(&'static str, &'r str)> {
    Some(match request {
        Request::Connect(_) => ("connect", ""),
        Request::Subscribe(request) => ("subscribe", &request.channel),
        Request::Unsubscribe(request) => ("unsubscribe", &request.channel),
        Request::Publish(request) => ("publish", &request.channel),
        Request::Refresh(_) => ("refresh", ""),
        Request::SubRefresh(request) => ("sub_refresh", &request.channel),
        _ => return None,
    })
}

impl Centrifuge {
    /// Returns the client's user and id.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.info.user, &self.info.client)
    }

    /// Reports the outcome of a command, if it is known.
    pub(super) fn tell_outcome(
        &self,
        request: &Request<'_>,
        done: &Done,
        frame: &mut Frame,
        cx: &Context<'_>,
    ) {
        let refusal = frame.take_refusal();
        if let Some((what, channel)) = asked(request) {
            self.tell_done(what, channel, done, refusal, cx);
        }
    }

    /// Reports the outcome of a command whose answer was deferred.
    pub(super) fn tell_late_outcome(
        &self,
        waiting: &Asking,
        done: &Done,
        frame: &mut Frame,
        cx: &Context<'_>,
    ) {
        let (what, channel) = match waiting {
            Asking::Connect => ("connect", ""),
            Asking::Subscribe(channel) => ("subscribe", &**channel),
            Asking::Other => return,
        };
        self.tell_done(what, channel, done, frame.take_refusal(), cx);
    }

    fn tell_done(
        &self,
        what: &'static str,
        channel: &str,
        done: &Done,
        refusal: Option<(u32, Box<str>)>,
        cx: &Context<'_>,
    ) {
        let (code, reason): (u32, Cow<'_, str>) = match (done, refusal) {
            (Done::Close(code), _) => (code.code().into(), code.words().into()),
            (Done::End(code, reason), _) => ((*code).into(), reason.clone()),
            (_, Some((code, words))) => (code, words.into_string().into()),
            (Done::Yes | Done::Waits(Waiting::Publish { .. }), None) => (0, "".into()),
            // It is still pending.
            _ => return,
        };
        let (user, client) = self.names();
        cx.shared.decided(&Decision {
            what,
            user,
            client,
            channel,
            code,
            reason: &reason,
        });
    }
}

/// The request of a waiting command.
pub(super) enum Asking {
    Connect,
    Subscribe(Box<str>),
    Other,
}

impl Asking {
    pub(super) fn of(waiting: &Waiting) -> Self {
        match waiting {
            Waiting::Connect(_) => Self::Connect,
            Waiting::Subscribe(asked) => Self::Subscribe(asked.channel().into()),
            _ => Self::Other,
        }
    }
}
