//! A client's subscriptions: those that it requests itself, and server-side ones.

use std::sync::Arc;

use veche_centrifuge::{
    DisconnectCode, ErrorCode, FilterError, Outcome, Push, PushBody, SubRefreshRequest,
    SubRefreshResult, SubscribeRequest, SubscribeResult, TagsFilter, UnsubscribeCode,
};
use veche_hub::{
    ChannelName, ClientInfo, DeltaMode, NamespaceOptions, Payload, RecoveryMode, SubscribeError,
    SubscribeOptions, SubscribeOutcome, Ticket,
};
use veche_types::Now;

use super::channels::{Permission, named, subscribe_permission};
use super::claims::ChannelClaim;
use super::commands::refuse;
use super::frame::ReplyFrame;
use super::hook_requests::HookQuery;
use super::tokens::{SubscriptionToken, TokenDenied, TokenSubject};
use super::writing::{self, RecoveryFilter, SubscribeReply};
use super::{Centrifuge, CommandStatus, Flow, PendingTicket, SessionContext};
use crate::context::hooks::{self, HookKind, HookRequestId};
use crate::context::identity::{Identity, Validity};
use crate::context::overrides::PresenceOverrides;
use crate::outbox::{DeltaState, PublicationFilter, SubscriptionOptions};
use crate::websocket::GRACE_MS;

/// Maximum time in milliseconds after which expiries are checked again, since the wall clock may be changed.
const EXPIRY_CHECK_MS: u64 = 60 * 60 * 1000;

/// The only supported kind of deltas.
const DELTA: &str = "fossil";

/// The flag in a subscribe command that requests an error instead of an incomplete recovery.
const FLAG_RECOVER_OR_FAIL: i64 = 2;

/// A client's subscriptions, including pending ones.
#[derive(Default)]
pub(super) struct ClientSubscriptions {
    all: Vec<ClientSubscription>,
    /// The earliest time at which an expiry has to be checked, in milliseconds since 1970; `None` if nothing expires.
    due_ms: Option<u64>,
}

struct ClientSubscription {
    channel: Box<str>,
    /// Whether it is a server-side subscription, which the client can't end.
    is_by_server: bool,
    /// Whether the connection's token granted the subscription.
    is_by_token: bool,
    /// When the subscription's token or grant expires, in milliseconds since 1970; `None`: never.
    expires_ms: Option<u64>,
    /// Whether a hook, and not the client, renews the subscription when it expires.
    is_renewed: bool,
    /// The pending hook request for the renewal of the subscription, if there is one.
    renewal: Option<HookRequestId>,
    /// The client's public data in this channel. Boxed, since most subscriptions have none.
    info: Option<Box<Payload>>,
}

// Limits the memory of a client that has the maximum number of subscriptions.
const _: () = assert!(size_of::<ClientSubscription>() <= 56);

/// A subscribe command that waits for its channel's home.
pub(super) struct RequestedSubscription {
    id: u32,
    channel: Box<str>,
    /// Number of seconds until the subscription's token expires; `None`: never.
    ttl_s: Option<u32>,
    is_recovering: bool,
    /// Whether the client recovers only the latest publication that matches its tags filter.
    recovery_filter: bool,
    or_fail: bool,
    options: SubscriptionOptions,
    /// Data that the client receives with the reply.
    data: Option<Payload>,
}

/// What a token or a hook grants to a subscription.
#[derive(Default)]
struct SubscriptionGrant {
    info: Option<Payload>,
    data: Option<Payload>,
    validity: Validity,
    overrides: PresenceOverrides,
}

impl From<hooks::HookGrant> for SubscriptionGrant {
    fn from(grant: hooks::HookGrant) -> Self {
        Self {
            info: grant.info,
            data: grant.data,
            validity: Validity::until_s(grant.expires_at_s),
            overrides: PresenceOverrides::default(),
        }
    }
}

impl RequestedSubscription {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }
}

impl ClientSubscriptions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, channel: &str) -> bool {
        self.find(channel).is_some()
    }

    fn find(&self, channel: &str) -> Option<&ClientSubscription> {
        self.all.iter().find(|one| *one.channel == *channel)
    }

    fn add(&mut self, subscription: ClientSubscription) {
        self.all.push(subscription);
        self.settle();
    }

    /// Adds a server-side subscription.
    pub(super) fn add_by_server(&mut self, granted: &ChannelClaim, is_renewed: bool) {
        self.add(ClientSubscription {
            channel: granted.channel.as_str().into(),
            is_by_server: true,
            is_by_token: granted.is_by_token,
            expires_ms: granted.expires_ms,
            is_renewed,
            renewal: None,
            info: granted.info.clone().map(Box::new),
        });
    }

    /// Returns whether a new token that grants the subscriptions `named` changes nothing: the client already has all
    /// of them, and the previous token granted no others.
    pub(super) fn are_exactly(&self, named: &[ChannelClaim]) -> bool {
        let is_named = |channel: &str| named.iter().any(|one| one.channel == channel);
        let mut by_token = self.all.iter().filter(|one| one.is_by_token);
        named.iter().all(|one| self.has(&one.channel)) && by_token.all(|one| is_named(&one.channel))
    }

    /// Returns whether the client has a server-side subscription to the channel.
    pub(super) fn is_by_server(&self, channel: &str) -> bool {
        self.find(channel).is_some_and(|one| one.is_by_server)
    }

    /// Returns the channels of expired subscriptions whose renewal a hook has to decide on. The channel `awaited`,
    /// that of a pending subscribe command, is left out.
    pub(super) fn to_renew(&self, now_ms: u64, awaited: Option<&str>) -> Vec<Box<str>> {
        if self.due_ms.is_none_or(|due_ms| now_ms < due_ms) {
            return Vec::new();
        }
        let is_over = |one: &&ClientSubscription| {
            // A subscription whose home has not answered yet can't be ended.
            let is_awaited = Some(&*one.channel) == awaited;
            one.defers_renewal()
                && !is_awaited
                && one.expires_ms.is_some_and(|at_ms| now_ms >= at_ms)
        };
        let over = self.all.iter().filter(is_over);
        over.map(|one| one.channel.clone()).collect()
    }

    /// Records the pending hook request for the renewal of a subscription.
    pub(super) fn begin_renewal(&mut self, channel: &str, request_id: HookRequestId) {
        if let Some(one) = self.all.iter_mut().find(|one| *one.channel == *channel) {
            one.renewal = Some(request_id);
        }
        self.settle();
    }

    /// Records that a hook request for a renewal is no longer pending. Returns the channel of its subscription; `None`
    /// if the subscription has ended.
    pub(super) fn end_renewal(&mut self, request_id: HookRequestId) -> Option<Box<str>> {
        let mut all = self.all.iter_mut();
        let one = all.find(|one| one.renewal == Some(request_id))?;
        one.renewal = None;
        let channel = one.channel.clone();
        self.settle();
        Some(channel)
    }

    /// Returns when a subscription expires, in milliseconds since 1970; `None`: never.
    pub(super) fn expires_ms(&self, channel: &str) -> Option<u64> {
        self.find(channel).and_then(|one| one.expires_ms)
    }

    /// Sets when a subscription expires (`None`: never) and, unless `info` is `None`, the client's public data in the
    /// channel.
    pub(super) fn renew(&mut self, channel: &str, expires_ms: Option<u64>, info: Option<Payload>) {
        if let Some(one) = self.all.iter_mut().find(|one| *one.channel == *channel) {
            one.expires_ms = expires_ms;
            one.info = info.map(Box::new).or(one.info.take());
        }
        self.settle();
    }

    fn remove(&mut self, channel: &str) {
        self.all.retain(|one| *one.channel != *channel);
        self.settle();
    }

    fn settle(&mut self) {
        self.due_ms = self.all.iter().filter_map(ClientSubscription::due_ms).min();
    }

    /// Returns the monotonic time in milliseconds at which the first subscription expires or has to be renewed, or at
    /// which the expiries have to be checked again; `u64::MAX` if no subscription expires. The channel `awaited`,
    /// that of a pending subscribe command, is left out.
    pub(super) fn deadline_ms(&self, now: Now, awaited: Option<&str>) -> u64 {
        let left_ms = |due_ms: u64| due_ms.saturating_sub(now.wall_ms).min(EXPIRY_CHECK_MS);
        let mut first_ms = self.due_ms;
        if first_ms.is_some() && awaited.is_some() {
            let others = self.all.iter().filter(|one| Some(&*one.channel) != awaited);
            first_ms = others.filter_map(ClientSubscription::due_ms).min();
        }
        first_ms
            .map(left_ms)
            .map_or(u64::MAX, |left_ms| now.mono_ms.saturating_add(left_ms))
    }
}

impl ClientSubscription {
    /// Returns whether a hook decision has to be requested at the expiry; false while such a request is pending.
    fn defers_renewal(&self) -> bool {
        self.is_renewed && self.renewal.is_none()
    }

    /// Returns when the expiry has to be checked, in milliseconds since 1970; `None` if the subscription does not
    /// expire.
    fn due_ms(&self) -> Option<u64> {
        let expires_ms = self.expires_ms?;
        match self.defers_renewal() {
            true => Some(expires_ms),
            false => Some(expires_ms.saturating_add(GRACE_MS)),
        }
    }
}

/// Returns the options that the command requests. Deltas that the namespace does not permit are left out; a filter
/// that it does not permit is an error.
fn subscription_options(
    request: &SubscribeRequest<'_>,
    options: NamespaceOptions,
) -> Result<SubscriptionOptions, FilterError> {
    // A request for an unknown kind of deltas is ignored.
    let wants_deltas = request.delta == DELTA;
    let filter = match request.filter {
        None => None,
        // A filter and deltas can't be combined, since the filter may have excluded the previous
        // publication.
        Some(_) if !options.tags_filter || wants_deltas => return Err(FilterError),
        Some(filter) => Some(Arc::new(TagsFilter::read(filter)?) as Arc<dyn PublicationFilter>),
    };
    Ok(SubscriptionOptions {
        joins: request.join_leave,
        deltas: match wants_deltas && options.delta_mode != DeltaMode::Off {
            true => DeltaState::Begun,
            false => DeltaState::Off,
        },
        filter,
    })
}

/// Returns whether a client that recovers receives only the latest publication that matches its filter.
fn recovery_filter(subscription_options: &SubscriptionOptions, options: NamespaceOptions) -> bool {
    let gets_latest = options
        .history
        .is_some_and(|history| history.recovery == RecoveryMode::Latest);
    subscription_options.filter.is_some() && gets_latest
}

impl Centrifuge {
    /// Returns the client's public data in a channel.
    pub(super) fn info_in(&self, channel: &str) -> Arc<ClientInfo> {
        let subscription = self.subscriptions.find(channel);
        self.info_with(subscription.and_then(|one| one.info.as_deref()))
    }

    pub(super) fn info_with(&self, chan_info: Option<&Payload>) -> Arc<ClientInfo> {
        match chan_info {
            // Channels without data of their own share the connection's data.
            None => Arc::clone(&self.info),
            Some(_) => Arc::new(ClientInfo {
                chan_info: chan_info.cloned(),
                ..ClientInfo::clone(&self.info)
            }),
        }
    }

    /// Returns the channel, user and connection that a token for this channel has to match.
    fn place<'a>(&'a self, channel: &'a str) -> TokenSubject<'a> {
        TokenSubject {
            channel,
            user: &self.info.user,
            client: &self.info.client,
        }
    }

    pub(super) fn subscribe(
        &mut self,
        id: u32,
        request: &SubscribeRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let channel = match named(&request.channel, &cx.shared.config.namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        let name = channel.as_str();
        if name.len() > cx.shared.config.limits.channel_name_bytes_max {
            return refuse(id, ErrorCode::BadRequest, frame);
        }
        if self.subscriptions.has(name) {
            return refuse(id, ErrorCode::AlreadySubscribed, frame);
        }
        if self.hooks.is_withdrawn() {
            return refuse(id, ErrorCode::PermissionDenied, frame);
        }
        let namespaces = &cx.shared.config.namespaces;
        let options = namespaces.of(name);
        let leave = match subscribe_permission(channel, &self.info.user, namespaces) {
            Ok(leave) => leave,
            Err(code) => return refuse(id, code, frame),
        };
        // Other kinds are map subscriptions, which are not supported.
        if request.kind != 0 {
            return refuse(id, ErrorCode::NotAvailable, frame);
        }
        if (request.filter.is_some() || request.recover) && cx.shared.is_short_of_memory {
            return refuse(id, ErrorCode::Internal, frame);
        }
        let Ok(mut subscription_options) = subscription_options(request, options) else {
            return refuse(id, ErrorCode::BadRequest, frame);
        };
        if self.subscriptions.len() >= cx.shared.config.limits.channels_per_client {
            return refuse(id, ErrorCode::LimitExceeded, frame);
        }
        let has_tokens = matches!(cx.route().identity, Identity::Token(_));
        let mut terms = SubscriptionGrant::default();
        let mut is_renewed = false;
        if !request.token.is_empty() && (has_tokens || leave != Permission::WithHook) {
            let verifier = self.token_verifier(cx.id, cx.route());
            match verifier.subscription(&request.token, self.place(name), cx.shared) {
                Ok(granted) => {
                    terms = SubscriptionGrant {
                        info: granted.claims.info,
                        data: granted.claims.data,
                        validity: granted.validity,
                        overrides: granted.claims.presence_overrides,
                    };
                }
                Err(TokenDenied::Later) => {
                    self.hooks.begin_subscribing(name);
                    return self.wait_for_keys();
                }
                Err(denied) => {
                    denied.note(cx.id, cx.shared);
                    return refuse(id, denied.subscribe_error(), frame);
                }
            }
        } else if leave == Permission::WithToken {
            return refuse(id, ErrorCode::PermissionDenied, frame);
        } else if leave == Permission::WithHook {
            let ask = HookQuery {
                channel: name,
                token: &request.token,
                data: request.data,
                ..HookQuery::default()
            };
            match self.next_decision(id, HookKind::Subscribe, ask, frame, cx) {
                Ok(Some(grant)) => {
                    terms = (*grant).into();
                    if terms.validity.is_over(cx.shared.now) {
                        return refuse(id, ErrorCode::Expired, frame);
                    }
                    is_renewed = cx.route().hook_target(HookKind::SubRefresh).is_some();
                }
                Ok(None) => return refuse(id, ErrorCode::PermissionDenied, frame),
                Err(done) => {
                    if matches!(done, CommandStatus::Not(_)) {
                        self.hooks.begin_subscribing(name);
                    }
                    return done;
                }
            }
        }
        let SubscriptionGrant {
            info,
            data,
            validity: term,
            overrides: presence_overrides,
        } = terms;
        subscription_options.joins |= presence_overrides.receives_join_leave(&options);
        let asked = RequestedSubscription {
            id,
            channel: name.into(),
            ttl_s: term.ttl_s(cx.shared.now).filter(|_| !is_renewed),
            is_recovering: request.recover,
            recovery_filter: recovery_filter(&subscription_options, options),
            or_fail: request.flag & FLAG_RECOVER_OR_FAIL != 0,
            options: subscription_options,
            data,
        };
        let since = request
            .recover
            .then(|| Arc::from([writing::since(&request.epoch, request.offset)]));
        let subscribe_options = SubscribeOptions {
            since,
            client: (!presence_overrides.is_hidden).then(|| self.info_with(info.as_ref())),
            recover_all: asked.recovery_filter,
        };
        let ticket = self.next_ticket();
        let answer = match join(channel, ticket, &subscribe_options, cx) {
            Ok(answer) => answer,
            Err(code) => return refuse(id, code, frame),
        };
        self.deadline_changed |= term.until_ms.is_some();
        self.subscriptions.add(ClientSubscription {
            channel: name.into(),
            is_by_server: false,
            is_by_token: false,
            expires_ms: term.until_ms,
            is_renewed,
            renewal: None,
            info: info.map(Box::new),
        });
        match answer {
            None => CommandStatus::Waits(PendingTicket::Subscribe(Box::new(asked))),
            Some(joined) => self.subscribed(&asked, joined.as_deref(), frame, cx),
        }
    }

    /// Handles the answer of the channel's home worker.
    pub(super) fn subscribed(
        &mut self,
        asked: &RequestedSubscription,
        joined: Option<&SubscribeOutcome>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let outboxes = &mut cx.shared.requests.outboxes;
        let bytes_max = outboxes.outbox_bytes_max();
        let recovery_filter = RecoveryFilter {
            filter: asked.options.filter.as_deref(),
            only_latest: asked.recovery_filter,
        };
        let is_recovering = asked.is_recovering;
        let bytes_max = (bytes_max, 0);
        let mut welcome = SubscribeReply::filtered(
            joined,
            is_recovering,
            self.encoding,
            bytes_max,
            recovery_filter,
        );
        if asked.is_recovering {
            cx.shared.stats.recovery(welcome.is_whole());
            if asked.or_fail && !welcome.is_whole() {
                self.leave(&asked.channel, cx);
                return refuse(asked.id, ErrorCode::UnrecoverablePosition, frame);
            }
        }
        let mut subscription_options = asked.options.clone();
        if joined.is_none() {
            // A channel without history does not store the previous publication, so it has no deltas.
            subscription_options.deltas = DeltaState::Off;
        } else if subscription_options.deltas != DeltaState::Off {
            welcome = welcome.with_deltas(frame.encoding());
            if welcome.has_publications() {
                self.has_compared = true;
                subscription_options.deltas = DeltaState::Going;
            }
        }
        outboxes.set_subscription_options(cx.id, &asked.channel, subscription_options);
        let publications = welcome.publications();
        let data = asked.data.as_ref();
        let result = SubscribeResult {
            expires: asked.ttl_s.is_some(),
            ttl_s: asked.ttl_s.unwrap_or(0),
            data: data.map(|data| writing::data(data.borrow())),
            ..welcome.result(&publications)
        };
        frame.reply(asked.id, Outcome::Subscribe(result));
        CommandStatus::Yes
    }

    pub(super) fn unsubscribe(
        &mut self,
        id: u32,
        channel: &str,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        if let Err(code) = named(channel, &cx.shared.config.namespaces) {
            return refuse(id, code, frame);
        }
        match self.subscriptions.find(channel) {
            Some(one) if one.is_by_server => return refuse(id, ErrorCode::PermissionDenied, frame),
            Some(_) => self.leave(channel, cx),
            // The client is not subscribed, so there is nothing to do.
            None => {}
        }
        frame.reply(id, Outcome::Unsubscribe);
        CommandStatus::Yes
    }

    pub(super) fn leave(&mut self, channel: &str, cx: &mut SessionContext<'_>) {
        self.subscriptions.remove(channel);
        cx.shared
            .requests
            .outboxes
            .clear_subscription_options(cx.id, channel);
        cx.shared.requests.outboxes.clear_cursor(cx.id, channel);
        if let Ok(channel) = ChannelName::new(channel) {
            let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.requests);
            hub.unsubscribe(cx.id, channel, ports);
        }
    }

    pub(super) fn sub_refresh(
        &mut self,
        id: u32,
        request: &SubRefreshRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let channel: &str = &request.channel;
        let code = match (
            named(channel, &cx.shared.config.namespaces),
            self.subscriptions.find(channel),
        ) {
            (Err(code), _) => Some(code),
            (_, None) => Some(ErrorCode::PermissionDenied),
            (_, Some(_)) if request.kind != 0 => Some(ErrorCode::NotAvailable),
            // The subscription does not expire, so there is nothing to extend.
            (_, Some(one)) if one.expires_ms.is_none() => Some(ErrorCode::BadRequest),
            (_, Some(_)) if request.token.is_empty() => Some(ErrorCode::BadRequest),
            (_, Some(_)) => None,
        };
        if let Some(code) = code {
            return refuse(id, code, frame);
        }
        let verifier = self.token_verifier(cx.id, cx.route());
        let grant = match verifier.subscription(&request.token, self.place(channel), cx.shared) {
            Ok(grant) => grant,
            Err(TokenDenied::Later) => return self.wait_for_keys(),
            Err(denied) => {
                denied.note(cx.id, cx.shared);
                let code = match denied {
                    // `TokenExpired` would make SDKs give up; with `Expired` they subscribe again when the
                    // subscription has ended.
                    TokenDenied::Expired => ErrorCode::Expired,
                    denied => denied.subscribe_error(),
                };
                return refuse(id, code, frame);
            }
        };
        let SubscriptionToken {
            validity: term,
            claims: says,
        } = grant;
        self.subscriptions.renew(channel, term.until_ms, says.info);
        self.deadline_changed = true;
        let ttl_s = term.ttl_s(cx.shared.now);
        let result = SubRefreshResult {
            expires: ttl_s.is_some(),
            ttl_s: ttl_s.unwrap_or(0),
        };
        frame.reply(id, Outcome::SubRefresh(result));
        CommandStatus::Yes
    }

    /// Ends the subscriptions whose token has expired; clients get new tokens and subscribe again.
    /// If a server-side subscription has expired, the session ends, since the client can't renew
    /// such a subscription.
    pub(super) fn end_expired(
        &mut self,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let now_ms = cx.shared.now.wall_ms;
        let is_due = |due_ms: u64| now_ms >= due_ms;
        if !self.subscriptions.due_ms.is_some_and(is_due) {
            return Flow::Continue;
        }
        let is_over = |expires_ms: u64| now_ms >= expires_ms.saturating_add(GRACE_MS);
        let awaited = self.channel_awaited();
        let all = self.subscriptions.all.iter();
        let expired =
            all.filter(|one| one.expires_ms.is_some_and(is_over) && Some(&*one.channel) != awaited);
        if expired.clone().any(|one| one.is_by_server) {
            return DisconnectCode::SubscriptionExpired.into();
        }
        let expired: Vec<Box<str>> = expired.map(|one| one.channel.clone()).collect();
        for channel in expired {
            self.leave(&channel, cx);
            let push = Push {
                channel: &channel,
                body: PushBody::Unsubscribe(UnsubscribeCode::Expired.into()),
            };
            frame.push(&push);
        }
        Flow::Continue
    }
}

/// Subscribes a session to a channel. Returns the result if the channel's home is on this worker.
/// Otherwise returns `None`: the result arrives later, in a reply with this ticket.
pub(super) fn join(
    channel: ChannelName<'_>,
    ticket: Ticket,
    subscribe_options: &SubscribeOptions,
    cx: &mut SessionContext<'_>,
) -> Result<Option<Option<Box<SubscribeOutcome>>>, ErrorCode> {
    let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.requests);
    match hub.subscribe(cx.id, channel, ticket, subscribe_options, ports) {
        Ok(veche_hub::RequestOutcome::Done(joined)) => Ok(Some(joined)),
        Ok(veche_hub::RequestOutcome::Pending) => Ok(None),
        Err(SubscribeError::AlreadySubscribed) => Err(ErrorCode::AlreadySubscribed),
        Err(SubscribeError::Stale) => Err(ErrorCode::Internal),
        Err(SubscribeError::Full) => Err(ErrorCode::LimitExceeded),
    }
}
