//! Commands of connected clients, except those for subscriptions and tokens.

use std::sync::Arc;

use veche_centrifuge::{
    CommandError, DisconnectCode, ErrorCode, HistoryRequest, Outcome, PresenceStatsResult,
    PublishRequest, Request, RpcRequest, RpcResult, SendRequest,
};
use veche_hub::{
    self as hub, Answer, HistoryError, Info, Namespaces, PresenceError, PublishOptions, Query,
    Question, Reading,
};

use super::answering::{Answering, Content};
use super::channels::{Leave, may_publish, may_read, named};
use super::deciding::Ask;
use super::frame::Frame;
use super::pushes::forms;
use super::{Centrifuge, Context, Done, Waiting, writing};
use crate::context::hooks::Kind;
use crate::context::step::Block;
use crate::context::work;

impl Centrifuge {
    pub(super) fn request(
        &mut self,
        id: u32,
        request: &Request<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        match request {
            Request::Connect(_) => Done::Close(DisconnectCode::BadRequest),
            Request::Subscribe(request) => self.subscribe(id, request, frame, cx),
            Request::Unsubscribe(request) => self.unsubscribe(id, &request.channel, frame, cx),
            Request::Publish(request) => self.publish(id, request, frame, cx),
            Request::Presence(request) => {
                self.inquire(id, &request.channel, Question::Presence, frame, cx)
            }
            Request::PresenceStats(request) => {
                self.inquire(id, &request.channel, Question::PresenceStats, frame, cx)
            }
            Request::History(request) => self.history(id, request, frame, cx),
            Request::Ping => {
                frame.reply(id, Outcome::Ping);
                Done::Yes
            }
            Request::Send(request) => self.send(id, request, frame, cx),
            Request::Rpc(request) => self.rpc(id, request, frame, cx),
            Request::Refresh(request) => self.refresh(id, request, frame, cx),
            Request::SubRefresh(request) => self.sub_refresh(id, request, frame, cx),
            // Any message proves that the client is alive.
            Request::Pong => Done::Yes,
        }
    }

    fn publish(
        &mut self,
        id: u32,
        request: &PublishRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let channel = match named(&request.channel, &cx.shared.site.namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        let is_subscribed = self.subscriptions.has(channel.as_str());
        let namespaces = &cx.shared.site.namespaces;
        let Some(leave) = may_publish(channel, &self.info.user, is_subscribed, namespaces) else {
            return refuse(id, ErrorCode::PermissionDenied, frame);
        };
        let Some(data) = request.data else {
            return refuse(id, ErrorCode::BadRequest, frame);
        };
        if request.kind != 0 {
            return refuse(id, ErrorCode::NotAvailable, frame);
        }
        if cx.shared.is_short_of_memory {
            return refuse(id, ErrorCode::Internal, frame);
        }
        let mut grant = None;
        if leave == Leave::WithVerdict {
            let ask = Ask {
                channel: channel.as_str(),
                data: Some(data),
                ..Ask::default()
            };
            match self.decided(id, Kind::Publish, ask, frame, cx) {
                Ok(Some(granted)) => grant = Some(granted),
                Ok(None) => return refuse(id, ErrorCode::PermissionDenied, frame),
                Err(done) => return done,
            }
        }
        let replaced = grant.as_ref().and_then(|grant| grant.data.as_ref());
        let payload = match replaced {
            Some(replaced) => replaced.borrow(),
            None => writing::payload(data),
        };
        // The publication may be sent to this client too, after earlier replies.
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        let client = Some(self.info_in(channel.as_str()));
        let terms = Arc::new(PublishOptions {
            info: Some(Arc::new(Info {
                client,
                ..Info::default()
            })),
            is_passing: grant.as_ref().is_some_and(|grant| grant.skips_history),
            ..PublishOptions::default()
        });
        let ticket = self.next_ticket();
        let published = cx.shared.hub.publish(
            Some((cx.id, ticket)),
            channel,
            payload,
            Some(&terms),
            &mut cx.shared.ports,
        );
        match published {
            Err(_) => {
                cx.shared.stats.credits_refused.add(1);
                if let Some(grant) = grant {
                    self.deciding.put_back(grant);
                }
                Done::Not(Block::Credit)
            }
            Ok(hub::Outcome::Pending) => Done::Waits(Waiting::Publish { id }),
            Ok(hub::Outcome::Done(_)) => self::published(id, frame),
        }
    }

    fn rpc(
        &mut self,
        id: u32,
        request: &RpcRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let ask = Ask {
            method: &request.method,
            data: request.data,
            ..Ask::default()
        };
        match self.decided(id, Kind::Rpc, ask, frame, cx) {
            Ok(Some(grant)) => {
                let data = grant.data.as_ref();
                let data = data.map(|data| forms::data(data.borrow()));
                frame.reply(id, Outcome::Rpc(RpcResult { data }));
                Done::Yes
            }
            // No target for the request.
            Ok(None) => refuse(id, ErrorCode::NotAvailable, frame),
            Err(done) => done,
        }
    }

    /// Handles a message without a reply. It waits all the same, since a client's messages are processed in order.
    fn send(
        &mut self,
        id: u32,
        request: &SendRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let ask = Ask {
            data: request.data,
            ..Ask::default()
        };
        match self.decided(id, Kind::Message, ask, frame, cx) {
            Ok(Some(_)) => Done::Yes,
            // No target for the request.
            Ok(None) => Done::Close(DisconnectCode::NotAvailable),
            Err(done) => done,
        }
    }

    /// Checks that the client may query a channel. What the channel does not store is not available to any client.
    fn may_ask_about<'c>(
        &self,
        channel: &'c str,
        question: &Question,
        namespaces: &Namespaces,
    ) -> Result<hub::ChannelName<'c>, ErrorCode> {
        let channel = named(channel, namespaces)?;
        let options = namespaces.of(channel.as_str());
        let (is_kept, reading) = match question {
            Question::History(_) => (options.history.is_some(), options.access.history),
            Question::Presence | Question::PresenceStats => {
                (options.presence, options.access.presence)
            }
            _ => (true, Reading::Subscriber),
        };
        let is_subscribed = self.subscriptions.has(channel.as_str());
        match may_read(channel, &self.info.user, is_subscribed, namespaces, reading) {
            _ if !is_kept => Err(ErrorCode::NotAvailable),
            true => Ok(channel),
            false => Err(ErrorCode::PermissionDenied),
        }
    }

    /// Queries the channel's home.
    fn inquire(
        &mut self,
        id: u32,
        channel: &str,
        question: Question,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let namespaces = &cx.shared.site.namespaces;
        let channel = match self.may_ask_about(channel, &question, namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        if let Question::History(_) | Question::Presence = question
            && cx.shared.is_short_of_memory
        {
            return refuse(id, ErrorCode::Internal, frame);
        }
        let ticket = self.next_ticket();
        let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.ports);
        match hub.ask((cx.id, ticket), channel, question, ports) {
            hub::Outcome::Pending => Done::Waits(Waiting::Asked { id }),
            hub::Outcome::Done(answer) => answered(id, answer, frame, cx),
        }
    }

    fn history(
        &mut self,
        id: u32,
        request: &HistoryRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let since = request.since.as_ref();
        let query = Query {
            since: since.map(|since| writing::since(&since.epoch, since.offset)),
            limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
            is_reverse: request.reverse,
            // It is written as the client reads.
            bytes_max: usize::MAX,
        };
        self.inquire(id, &request.channel, Question::History(query), frame, cx)
    }
}

/// Replies to an accepted publication.
pub(super) fn published(id: u32, frame: &mut Frame) -> Done {
    frame.reply(id, Outcome::Publish);
    Done::Yes
}

/// Replies with the answer of a channel's home.
pub(super) fn answered(id: u32, answer: Answer, frame: &mut Frame, cx: &mut Context<'_>) -> Done {
    let is_short_of_memory = cx.shared.is_short_of_memory;
    let answer = match is_short_of_memory {
        true => answer,
        false => match Content::of(answer) {
            Ok(content) => return Done::Answers(Box::new(Answering::new(id, content))),
            Err(answer) => answer,
        },
    };
    let before = frame.len();
    let done = write_answer(id, &answer, frame, is_short_of_memory);
    let bytes = frame.len() - before;
    cx.shared.work.charge(work::ANSWER_BYTE * bytes as u64);
    done
}

fn write_answer(id: u32, answer: &Answer, frame: &mut Frame, is_short_of_memory: bool) -> Done {
    match answer {
        // The request was made while there was memory for the answer.
        Answer::History(Ok(_)) | Answer::Presence(Ok(_)) if is_short_of_memory => {
            refuse(id, ErrorCode::Internal, frame)
        }
        Answer::History(Ok(page)) => {
            writing::history(frame, id, page);
            Done::Yes
        }
        Answer::History(Err(HistoryError::Off)) => refuse(id, ErrorCode::NotAvailable, frame),
        Answer::History(Err(HistoryError::Unrecoverable)) => {
            refuse(id, ErrorCode::UnrecoverablePosition, frame)
        }
        Answer::History(Err(error @ HistoryError::TooMany(_))) => {
            let error = CommandError {
                code: ErrorCode::LimitExceeded.code(),
                message: &error.to_string(),
                is_temporary: false,
            };
            frame.reply(id, Outcome::Error(error));
            Done::Yes
        }
        Answer::History(Err(HistoryError::Busy | HistoryError::Unavailable)) => {
            refuse(id, ErrorCode::Internal, frame)
        }
        Answer::Presence(Ok(clients)) => {
            writing::presence(frame, id, clients);
            Done::Yes
        }
        Answer::PresenceStats(Ok(stats)) => {
            let result = PresenceStatsResult {
                num_clients: stats.clients,
                num_users: stats.users,
            };
            frame.reply(id, Outcome::PresenceStats(result));
            Done::Yes
        }
        Answer::Presence(Err(error)) | Answer::PresenceStats(Err(error)) => {
            let code = match error {
                PresenceError::Off => ErrorCode::NotAvailable,
                PresenceError::TooMany => ErrorCode::LimitExceeded,
                PresenceError::Unavailable => ErrorCode::Internal,
            };
            refuse(id, code, frame)
        }
        // Not an answer to a client's query.
        _ => refuse(id, ErrorCode::Internal, frame),
    }
}

pub(super) fn refuse(id: u32, code: ErrorCode, frame: &mut Frame) -> Done {
    frame.error(id, code);
    Done::Yes
}
