//! Commands of connected clients, except for those about subscriptions and tokens.

use std::sync::Arc;

use veche_centrifuge::{
    CommandError, DisconnectCode, ErrorCode, HistoryRequest, Outcome, PresenceStatsResult,
    PublishRequest, RpcRequest, RpcResult, SendRequest,
};
use veche_hub::{
    self as hub, ChannelQuery, HistoryError, HistoryQuery, HubReply, Namespaces, PresenceError,
    PublicationInfo, PublishOptions, ReadAccess,
};

use super::channels::{Permission, may_read, named, publish_permission};
use super::frame::ReplyFrame;
use super::hook_requests::HookQuery;
use super::long_replies::{LongResult, UnfinishedReply};
use super::{Centrifuge, CommandStatus, PendingTicket, SessionContext, writing};
use crate::context::hooks::HookKind;
use crate::context::step::WaitReason;
use crate::context::work_budget;

impl Centrifuge {
    pub(super) fn publish(
        &mut self,
        id: u32,
        request: &PublishRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let channel = match named(&request.channel, &cx.shared.config.namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        let is_subscribed = self.subscriptions.has(channel.as_str());
        let namespaces = &cx.shared.config.namespaces;
        let Some(leave) = publish_permission(channel, &self.info.user, is_subscribed, namespaces)
        else {
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
        if leave == Permission::WithHook {
            let ask = HookQuery {
                channel: channel.as_str(),
                data: Some(data),
                ..HookQuery::default()
            };
            match self.next_decision(id, HookKind::Publish, ask, frame, cx) {
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
        // Earlier replies are sent first, since the publication may be delivered to this client too.
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        let client = Some(self.info_in(channel.as_str()));
        let terms = Arc::new(PublishOptions {
            info: Some(Arc::new(PublicationInfo {
                client,
                ..PublicationInfo::default()
            })),
            skip_history: grant.as_ref().is_some_and(|grant| grant.skips_history),
            ..PublishOptions::default()
        });
        let ticket = self.next_ticket();
        let published = cx.shared.hub.publish(
            Some((cx.id, ticket)),
            channel,
            payload,
            Some(&terms),
            &mut cx.shared.requests,
        );
        match published {
            Err(_) => {
                cx.shared.stats.credits_refused.add(1);
                if let Some(grant) = grant {
                    self.hooks.put_back(grant);
                }
                CommandStatus::Not(WaitReason::Credit)
            }
            Ok(hub::RequestOutcome::Pending) => CommandStatus::Waits(PendingTicket::Publish { id }),
            Ok(hub::RequestOutcome::Done(_)) => self::published(id, frame),
        }
    }

    pub(super) fn rpc(
        &mut self,
        id: u32,
        request: &RpcRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let ask = HookQuery {
            method: &request.method,
            data: request.data,
            ..HookQuery::default()
        };
        match self.next_decision(id, HookKind::Rpc, ask, frame, cx) {
            Ok(Some(grant)) => {
                let data = grant.data.as_ref();
                let data = data.map(|data| writing::data(data.borrow()));
                frame.reply(id, Outcome::Rpc(RpcResult { data }));
                CommandStatus::Yes
            }
            // Neither a back end nor an application handles RPC calls of this route.
            Ok(None) => refuse(id, ErrorCode::NotAvailable, frame),
            Err(done) => done,
        }
    }

    /// Handles a `send` command, which has no reply. Later commands still wait for the hook decision
    /// on it, since a client's commands are processed in order.
    pub(super) fn send(
        &mut self,
        id: u32,
        request: &SendRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let ask = HookQuery {
            data: request.data,
            ..HookQuery::default()
        };
        match self.next_decision(id, HookKind::Message, ask, frame, cx) {
            Ok(Some(_)) => CommandStatus::Yes,
            // Neither a back end nor an application handles messages of this route.
            Ok(None) => CommandStatus::Close(DisconnectCode::NotAvailable),
            Err(done) => done,
        }
    }

    /// Checks whether the client may query a channel. If the namespace does not store the requested data, no client
    /// may.
    fn check_query<'c>(
        &self,
        channel: &'c str,
        query: &ChannelQuery,
        namespaces: &Namespaces,
    ) -> Result<hub::ChannelName<'c>, ErrorCode> {
        let channel = named(channel, namespaces)?;
        let options = namespaces.of(channel.as_str());
        let (is_kept, reading) = match query {
            ChannelQuery::History(_) => (options.history.is_some(), options.access.history),
            ChannelQuery::Presence | ChannelQuery::PresenceStats => {
                (options.presence, options.access.presence)
            }
            _ => (true, ReadAccess::Subscriber),
        };
        let is_subscribed = self.subscriptions.has(channel.as_str());
        match may_read(channel, &self.info.user, is_subscribed, namespaces, reading) {
            _ if !is_kept => Err(ErrorCode::NotAvailable),
            true => Ok(channel),
            false => Err(ErrorCode::PermissionDenied),
        }
    }

    /// Sends a query to the channel's home worker.
    pub(super) fn query_channel(
        &mut self,
        id: u32,
        channel: &str,
        query: ChannelQuery,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let namespaces = &cx.shared.config.namespaces;
        let channel = match self.check_query(channel, &query, namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        if let ChannelQuery::History(_) | ChannelQuery::Presence = query
            && cx.shared.is_short_of_memory
        {
            return refuse(id, ErrorCode::Internal, frame);
        }
        let ticket = self.next_ticket();
        let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.requests);
        match hub.query((cx.id, ticket), channel, query, ports) {
            hub::RequestOutcome::Pending => CommandStatus::Waits(PendingTicket::Asked { id }),
            hub::RequestOutcome::Done(answer) => answered(id, answer, frame, cx),
        }
    }

    pub(super) fn history(
        &mut self,
        id: u32,
        request: &HistoryRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let since = request.since.as_ref();
        let query = HistoryQuery {
            since: since.map(|since| writing::since(&since.epoch, since.offset)),
            limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
            is_reverse: request.reverse,
            // No limit in bytes: the reply is encoded in slices as the client reads.
            bytes_max: usize::MAX,
        };
        self.query_channel(
            id,
            &request.channel,
            ChannelQuery::History(query),
            frame,
            cx,
        )
    }
}

/// Writes the reply to a publication that was accepted.
pub(super) fn published(id: u32, frame: &mut ReplyFrame) -> CommandStatus {
    frame.reply(id, Outcome::Publish);
    CommandStatus::Yes
}

/// Writes the reply with the answer of a channel's home worker.
pub(super) fn answered(
    id: u32,
    answer: HubReply,
    frame: &mut ReplyFrame,
    cx: &mut SessionContext<'_>,
) -> CommandStatus {
    let is_short_of_memory = cx.shared.is_short_of_memory;
    let answer = match is_short_of_memory {
        true => answer,
        false => match LongResult::of(answer) {
            Ok(content) => {
                return CommandStatus::Answers(Box::new(UnfinishedReply::new(id, content)));
            }
            Err(answer) => answer,
        },
    };
    let before = frame.len();
    let done = write_answer(id, &answer, frame, is_short_of_memory);
    let bytes = frame.len() - before;
    cx.shared
        .work
        .charge(work_budget::ANSWER_BYTE * bytes as u64);
    done
}

fn write_answer(
    id: u32,
    answer: &HubReply,
    frame: &mut ReplyFrame,
    is_short_of_memory: bool,
) -> CommandStatus {
    match answer {
        // Memory has become short since the query was sent, and the answer may be large.
        HubReply::History(Ok(_)) | HubReply::Presence(Ok(_)) if is_short_of_memory => {
            refuse(id, ErrorCode::Internal, frame)
        }
        HubReply::History(Ok(page)) => {
            writing::history(frame, id, page);
            CommandStatus::Yes
        }
        HubReply::History(Err(HistoryError::Off)) => refuse(id, ErrorCode::NotAvailable, frame),
        HubReply::History(Err(HistoryError::Unrecoverable)) => {
            refuse(id, ErrorCode::UnrecoverablePosition, frame)
        }
        HubReply::History(Err(error @ HistoryError::TooMany(_))) => {
            let error = CommandError {
                code: ErrorCode::LimitExceeded.code(),
                message: &error.to_string(),
                is_temporary: false,
            };
            frame.reply(id, Outcome::Error(error));
            CommandStatus::Yes
        }
        HubReply::History(Err(HistoryError::Busy | HistoryError::Unavailable)) => {
            refuse(id, ErrorCode::Internal, frame)
        }
        HubReply::Presence(Ok(clients)) => {
            writing::presence(frame, id, clients);
            CommandStatus::Yes
        }
        HubReply::PresenceStats(Ok(stats)) => {
            let result = PresenceStatsResult {
                num_clients: stats.clients,
                num_users: stats.users,
            };
            frame.reply(id, Outcome::PresenceStats(result));
            CommandStatus::Yes
        }
        HubReply::Presence(Err(error)) | HubReply::PresenceStats(Err(error)) => {
            let code = match error {
                PresenceError::Off => ErrorCode::NotAvailable,
                PresenceError::TooMany => ErrorCode::LimitExceeded,
                PresenceError::Unavailable => ErrorCode::Internal,
            };
            refuse(id, code, frame)
        }
        // Other replies do not answer a client's query.
        _ => refuse(id, ErrorCode::Internal, frame),
    }
}

pub(super) fn refuse(id: u32, code: ErrorCode, frame: &mut ReplyFrame) -> CommandStatus {
    frame.error(id, code);
    CommandStatus::Yes
}
