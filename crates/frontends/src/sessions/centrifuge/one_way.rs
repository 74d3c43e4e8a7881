//! Clients that only listen, and need no SDK: the first thing that they say is a connect request, and all that they get
//! are pushes.
//!
//! Whoever connects with a command and whoever does so here gets the same channels by the same rules. There are two more
//! things for those who can't ask later: channels of a request that everybody may hear are subscribed with the
//! connection, and where the transport has a place for it (server-sent events) each event says where the client is then
//! ([`crate::outbox`]), and what it says when it comes back counts for all channels.

use std::sync::Arc;

use veche_centrifuge::{
    ConnectRequest, DecodeLimits, DisconnectCode, Publication, Push, PushBody, Request,
};
use veche_hub::{ChannelName, Position, Since};

use super::channels::{Permission, may_subscribe};
use super::claims::ChannelClaim;
use super::frame::ReplyFrame;
use super::pushes::PushEncoding;
use super::writing::SubscribeReply;
use super::{Centrifuge, CommandStatus, Flow, SessionContext, State};
use crate::context::log_note::NoteLevel;
use crate::context::step::WaitReason;

/// What is known of such a client before it is connected.
#[derive(Default)]
pub(super) struct OneWayState {
    /// Where it has been by the last event that it got: of all channels of which that says anything.
    since: Option<Arc<[Since]>>,
}

impl Centrifuge {
    /// The client only listens, and begins with a request that is yet to come.
    pub(crate) fn may_connect_one_way(&mut self) {
        self.one_way = Some(OneWayState::default());
    }

    /// The client only listens, and has sent its connect request with its HTTP request.
    pub(crate) fn begin_listening(&mut self, connect: &[u8], since: Option<Arc<[Since]>>) {
        self.one_way = Some(OneWayState { since });
        self.message = connect.to_vec();
        // Also of nothing.
        self.message.reserve(1);
    }

    /// Whether it gets nothing but pushes.
    pub(crate) fn is_one_way(&self) -> bool {
        self.one_way.is_some()
    }

    pub(super) fn dialect(&self) -> PushEncoding {
        PushEncoding {
            encoding: self.encoding,
            is_one_way: self.is_one_way(),
        }
    }

    /// The connect request; what comes behind it nobody hears.
    pub(super) fn listen(
        &mut self,
        message: &[u8],
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        if self.state != State::Fresh {
            return Flow::Continue;
        }
        let limits = DecodeLimits {
            message_bytes_max: usize::MAX,
            ..DecodeLimits::default()
        };
        let request = match message.is_empty() {
            // The handshake may have said all that there is to say.
            true => Ok(ConnectRequest::default()),
            false => self.encoding.connect_request(message, limits),
        };
        let request = match request {
            Ok(request) => request,
            Err(malformed) => {
                let what = format!("closed with 3501: {malformed}");
                cx.shared.log(cx.id, NoteLevel::Info, what);
                cx.shared.stats.protocol_errors.add(1);
                return DisconnectCode::BadRequest.into();
            }
        };
        let done = self.connect(0, &request, frame, cx);
        self.log_outcome(&Request::Connect(request), &done, frame, cx);
        if let CommandStatus::Not(block) = done {
            return Flow::Wait(block);
        }
        self.taken = message.len();
        self.has_requested_keys = false;
        self.hooks.forget();
        match done {
            // It asks for no long answers.
            CommandStatus::Yes | CommandStatus::Not(_) | CommandStatus::Answers(_) => {
                Flow::Continue
            }
            CommandStatus::Waits(waiting) => {
                self.waiting = Some(waiting);
                Flow::Wait(WaitReason::Answer)
            }
            CommandStatus::Close(code) => code.into(),
            CommandStatus::End(code, reason) => Flow::Close(code, reason),
        }
    }

    /// Up to where it says to know its channels; epochs say of which one a place is.
    pub(super) fn since_event(&self) -> Option<Arc<[Since]>> {
        self.one_way.as_ref()?.since.clone()
    }

    /// Adds the channels that the request names and everybody may hear. The others are passed over: the answer says
    /// which ones it got.
    pub(super) fn add_asked(
        &self,
        all: &mut Vec<ChannelClaim>,
        request: &ConnectRequest<'_>,
        cx: &SessionContext<'_>,
    ) {
        for sub in &request.subs {
            let Ok(channel) = ChannelName::new(&sub.channel) else {
                continue;
            };
            let namespaces = &cx.shared.config.namespaces;
            let may =
                may_subscribe(channel, &self.info.user, namespaces) == Ok(Permission::Granted);
            if may && !all.iter().any(|one| *one.channel == *channel.as_str()) {
                all.push(ChannelClaim {
                    channel: sub.channel.clone().into_owned(),
                    ..ChannelClaim::default()
                });
            }
            if all.len() > cx.shared.config.limits.channels_per_client {
                // One too many is enough to be refused.
                return;
            }
        }
    }

    /// Sends the connect push, which is in `frame`, and behind it what the client has missed, channel by channel. Each
    /// says where the client is with it.
    pub(super) fn push_missed(
        &self,
        channels: &[(&str, &SubscribeReply<'_>, &[Publication<'_>])],
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) {
        let outboxes = &mut cx.shared.requests.outboxes;
        for (channel, welcome, _) in channels {
            if let Some(position) = welcome.begin() {
                outboxes.set_cursor(cx.id, channel, position);
            }
        }
        frame.send(cx.id, outboxes);
        for (channel, welcome, publications) in channels {
            let Some(Position { epoch, .. }) = welcome.begin() else {
                continue;
            };
            for publication in *publications {
                let offset = publication.offset;
                let body = PushBody::Publication(*publication);
                frame.push(&Push { channel, body });
                outboxes.set_cursor(cx.id, channel, Position { epoch, offset });
                frame.send(cx.id, outboxes);
            }
        }
    }
}
