//! One-way clients, which need no SDK: their first message is a connect request, and afterwards
//! they only receive pushes.
//!
//! The rules for channels are the same as for the connect command of other clients. Since one-way
//! clients can't send commands later, there are two additions. When the client connects, it is
//! subscribed to those requested channels that require no token or hook decision. With server-sent
//! events, an event that changes the client's positions has an id with all its positions
//! ([`crate::outbox`]). The browser sends the last id when it reconnects, so all channels with
//! history are recovered.

use std::sync::Arc;

use veche_centrifuge::{
    ClientRequest, ConnectRequest, DecodeLimits, DisconnectCode, Publication, Push, PushBody,
};
use veche_hub::{ChannelName, Position, Since};

use super::channels::{Permission, subscribe_permission};
use super::claims::ChannelClaim;
use super::frame::ReplyFrame;
use super::pushes::PushEncoding;
use super::writing::SubscribeReply;
use super::{Centrifuge, CommandStatus, Flow, SessionContext, State};
use crate::context::log_note::NoteLevel;
use crate::context::step::WaitReason;

/// What is stored for a one-way client.
#[derive(Default)]
pub(super) struct OneWayState {
    /// The client's position in each channel with history, decoded from the id of the last event that it received.
    since: Option<Arc<[Since]>>,
}

impl Centrifuge {
    /// Makes the session one-way. Its connect request will be the first message.
    pub(crate) fn begin_one_way(&mut self) {
        self.one_way = Some(OneWayState::default());
    }

    /// Makes the session one-way. Its connect request was part of its HTTP request.
    pub(crate) fn begin_listening(&mut self, connect: &[u8], since: Option<Arc<[Since]>>) {
        self.one_way = Some(OneWayState { since });
        self.message = connect.to_vec();
        // A non-zero capacity marks that a connect request was received, even an empty one.
        self.message.reserve(1);
    }

    /// Returns whether the client only receives pushes.
    pub(crate) fn is_one_way(&self) -> bool {
        self.one_way.is_some()
    }

    pub(super) fn push_encoding(&self) -> PushEncoding {
        PushEncoding {
            encoding: self.encoding,
            is_one_way: self.is_one_way(),
        }
    }

    /// Handles the connect request. All later input is ignored.
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
            // An empty request is valid: the handshake may contain everything that is needed.
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
        self.log_outcome(&ClientRequest::Connect(request), &done, frame, cx);
        if let CommandStatus::Not(block) = done {
            return Flow::Wait(block);
        }
        self.taken = message.len();
        self.has_requested_keys = false;
        self.hooks.forget();
        match done {
            // A connect request has no long reply, and `Not` was handled above.
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

    /// Returns the positions in the id of the last event that the client received, or `None` if the client sent no
    /// such id. Each position identifies its channel by the epoch.
    pub(super) fn since_event(&self) -> Option<Arc<[Since]>> {
        self.one_way.as_ref()?.since.clone()
    }

    /// Adds those channels of the request to which the client may subscribe without a token or a hook
    /// decision. Other channels are ignored without an error: the reply lists the channels to which
    /// the client is subscribed.
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
            let may = subscribe_permission(channel, &self.info.user, namespaces)
                == Ok(Permission::Granted);
            if may && !all.iter().any(|one| *one.channel == *channel.as_str()) {
                all.push(ChannelClaim {
                    channel: sub.channel.clone().into_owned(),
                    ..ChannelClaim::default()
                });
            }
            if all.len() > cx.shared.config.limits.channels_per_client {
                // One channel above the limit is sufficient for the request to be refused.
                return;
            }
        }
    }

    /// Sends the connect push in `frame`, and then the missed publications of each channel with their positions.
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
