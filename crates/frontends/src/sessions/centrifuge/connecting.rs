//! The connect command, which determines the user and the server-side subscriptions, and its reply. Also `refresh`,
//! with which a client renews its token.

use std::fmt::Write as _;
use std::sync::Arc;

use veche_centrifuge::{
    ConnectRequest, ConnectResult, DisconnectCode, ErrorCode, Outcome, RefreshRequest,
    RefreshResult, SubscribeResult,
};
use veche_hub::{ChannelName, ClientInfo, Payload, SubscribeOptions, SubscribeOutcome, Ticket};
use veche_types::codes::CloseCode;

use super::claims::{ChannelClaim, ConnectionClaims};
use super::commands::refuse;
use super::frame::ReplyFrame;
use super::hook_requests::HookQuery;
use super::subscribing::join;
use super::tokens::{TokenDenied, counted};
use super::user_commands::GIVEN;
use super::writing::{self, SubscribeReply};
use super::{Centrifuge, CommandStatus, PendingTicket, SessionContext, State, ping_times_ms};
use crate::context::hooks::{self, HookGrant, HookKind};
use crate::context::identity::token::Anonymous;
use crate::context::identity::{Identity, IdentityLease, Validity, is_valid_user};
use crate::context::log_note::NoteLevel;
use crate::context::stats::AcceptRejection;
use crate::outbox::SubscriptionOptions;

/// The server's version, as clients receive it.
pub(super) const VERSION: &str = concat!("Veche ", env!("CARGO_PKG_VERSION"));

/// A connect command that waits for the home workers of its channels.
pub(super) struct PendingConnect {
    id: u32,
    channels: Vec<PendingServerSubscription>,
    /// Data that the client receives with the reply.
    data: Option<Payload>,
    /// The ticket of the first channel; the tickets of the other channels follow it.
    first: u32,
    /// Number of home workers' answers that are still outstanding.
    open: usize,
}

/// What a token or a hook grants to a connection.
#[derive(Default)]
struct Admission {
    /// Public data of the connection.
    info: Option<Payload>,
    channels: Vec<ChannelClaim>,
    /// Data that the client receives with the reply.
    data: Option<Payload>,
    /// Data to be included in hook requests for the client's later commands.
    metadata: Option<Payload>,
}

impl From<ConnectionClaims> for Admission {
    fn from(says: ConnectionClaims) -> Self {
        Self {
            info: says.info,
            channels: says.channels,
            data: None,
            metadata: says.meta,
        }
    }
}

/// A server-side subscription whose home worker may not have answered yet.
struct PendingServerSubscription {
    granted: ChannelClaim,
    is_recovering: bool,
    wants_joins: bool,
    joined: Option<Box<SubscribeOutcome>>,
}

/// Maximum length in bytes of the client's name and of its version, as stored; longer ones are truncated.
const CLIENT_NAME_BYTES_MAX: usize = 64;

impl Centrifuge {
    pub(super) fn connect(
        &mut self,
        id: u32,
        request: &ConnectRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let route = cx.route();
        self.note_disconnect_count(cx);
        let welcome = match &route.identity {
            Identity::Token(_) if !request.token.is_empty() => {
                let verifier = self.token_verifier(cx.id, route);
                let pass = match verifier.connection(&request.token, cx.shared) {
                    Ok(pass) => pass,
                    Err(TokenDenied::Later) => return self.wait_for_keys(),
                    Err(denied) => {
                        denied.note(cx.id, cx.shared);
                        return match denied.connect_error() {
                            Ok(code) => refuse(id, code, frame),
                            Err(code) => CommandStatus::Close(code),
                        };
                    }
                };
                if let Err(code) = self.set_user_of_connection(pass.lease, cx) {
                    return CommandStatus::Close(code);
                }
                pass.claims.into()
            }
            // The handshake had a token, so the command needs none.
            _ if self.claims.is_some() => match self.handshake_admission(cx) {
                Ok(says) => says.into(),
                Err(denied) => {
                    denied.note(cx.id, cx.shared);
                    return CommandStatus::Close(DisconnectCode::InvalidToken);
                }
            },
            _ if cx.lease.as_deref().is_some_and(|lease| !lease.is_final) => Admission::default(),
            identity => match self.handle_admission(id, request, frame, cx) {
                Ok(Some(admission)) => admission,
                Ok(None) if needs_token(identity) => {
                    return refuse(id, ErrorCode::Unauthorized, frame);
                }
                Ok(None) => Admission::default(),
                Err(done) => return done,
            },
        };
        if let Some(end) = self.end_if_disconnected(cx) {
            return end;
        }
        self.register_client(welcome.info.clone(), cx);
        if let Some(meta) = &welcome.metadata {
            self.update_caller(|caller| caller.meta = Some(meta.clone()));
        }
        self.kind = [&request.name, &request.version]
            .map(|text| text[..text.floor_char_boundary(CLIENT_NAME_BYTES_MAX)].into());
        self.state = State::Connected;
        let push_encoding = self.push_encoding();
        cx.shared
            .requests
            .outboxes
            .gather_pushes(cx.id, push_encoding.format());
        self.add_server_subscriptions(id, welcome, request, frame, cx)
    }

    /// Returns the admission that the route's hook grants to a client without a token; `None` if no
    /// hook decides on the connection.
    fn handle_admission(
        &mut self,
        id: u32,
        request: &ConnectRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Result<Option<Admission>, CommandStatus> {
        if let Some(targets) = cx.route().hook_targets.as_deref() {
            let own = self.hooks.headers;
            self.update_caller(|caller| {
                // Headers from an earlier connect command that was refused are removed.
                caller.headers.truncate(own);
                caller.name = request.name.as_ref().into();
                caller.version = request.version.as_ref().into();
                caller.add_headers(&targets.emulated, &request.headers);
            });
        }
        let ask = HookQuery {
            token: &request.token,
            data: request.data,
            channels: request
                .subs
                .iter()
                .map(|sub| (*sub.channel).into())
                .take(cx.shared.config.limits.channels_per_client)
                .collect(),
            ..HookQuery::default()
        };
        let Some(grant) = self.next_decision(id, HookKind::Connect, ask, frame, cx)? else {
            return Ok(None);
        };
        let HookGrant {
            user,
            expires_at_s,
            info,
            data,
            channels,
            meta,
            ..
        } = *grant;
        let expires_ms = expires_at_s.map(|at_s| at_s.saturating_mul(1000));
        // The hook's answer has two lists of channels, and a channel may be in both, hence the factor of 2.
        if channels.len() > 2 * cx.shared.config.limits.channels_per_client {
            return Err(CommandStatus::Close(DisconnectCode::ChannelLimit));
        }
        if let Some(why) = self.check_admission(&user, &channels) {
            return Err(self.hook_failed(id, HookKind::Connect, why, frame, cx));
        }
        if expires_ms.is_some_and(|expires_ms| expires_ms <= cx.shared.now.wall_ms) {
            return Err(refuse(id, ErrorCode::Expired, frame));
        }
        if self.info.user.is_empty() && !user.is_empty() {
            admit(&user, cx).map_err(CommandStatus::Close)?;
            self.set_user(&user);
            cx.shared
                .requests
                .outboxes
                .access_log
                .set_user(cx.id, Some(&user));
        }
        // The expiry that the hook grants counts only if the handshake's identity does not expire earlier.
        let until_ms = cx
            .lease
            .as_deref()
            .and_then(|lease| lease.validity.until_ms);
        if expires_ms.is_some_and(|at_ms| until_ms.is_none_or(|until_ms| at_ms < until_ms)) {
            let user = self.info.user.clone().into_string();
            *cx.lease = Some(Box::new(IdentityLease {
                user,
                validity: Validity::until_s(expires_at_s),
                is_final: cx.lease.as_deref().is_some_and(|lease| lease.is_final),
            }));
            self.deadline_changed = true;
        }
        let granted = channels.into_iter().map(|given| ChannelClaim {
            channel: given.channel.into_string(),
            info: given.info,
            data: given.data,
            expires_ms: given.expires_at_s.map(|at_s| at_s.saturating_mul(1000)),
            ..ChannelClaim::default()
        });
        Ok(Some(Admission {
            info,
            channels: granted.collect(),
            data,
            metadata: meta,
        }))
    }

    /// Returns the error text if this user or one of these channels is invalid; otherwise `None`.
    fn check_admission(
        &self,
        user: &str,
        channels: &[hooks::HookSubscription],
    ) -> Option<&'static str> {
        let own = &*self.info.user;
        if !user.is_empty() && !is_valid_user(user) {
            return Some("the user name is invalid");
        }
        if !user.is_empty() && !own.is_empty() && user != own {
            return Some("the user differs from the user of the handshake");
        }
        let user = if own.is_empty() { user } else { own };
        let mut channels = channels.iter();
        channels.find_map(|given| server_subscriptions_for(user, &given.channel).err())
    }

    /// Returns what the token of the handshake grants.
    fn handshake_admission(
        &mut self,
        cx: &SessionContext<'_>,
    ) -> Result<ConnectionClaims, TokenDenied> {
        let claims = self.claims.take().unwrap_or_default();
        let namespaces = &cx.shared.config.namespaces;
        counted(ConnectionClaims::read(&claims, namespaces), cx.shared)
    }

    /// Sets the user that the connect command's token names. Refuses the token if the handshake has
    /// authenticated a different user.
    fn set_user_of_connection(
        &mut self,
        lease: IdentityLease,
        cx: &mut SessionContext<'_>,
    ) -> Result<(), DisconnectCode> {
        if cx.lease.is_some() && *self.info.user != *lease.user {
            return Err(DisconnectCode::InvalidToken);
        }
        let user = Some(&*lease.user).filter(|user| !user.is_empty());
        // If the handshake determined the user, the user was checked during the handshake.
        if let Some(user) = user
            && cx.lease.is_none()
        {
            admit(user, cx)?;
        }
        self.set_user(&lease.user);
        cx.shared.requests.outboxes.access_log.set_user(cx.id, user);
        *cx.lease = Some(Box::new(lease));
        self.deadline_changed = true;
        Ok(())
    }

    /// Records the current [`disconnect_count`](crate::ProcessServices::disconnect_count). A back end
    /// may disconnect or unsubscribe the user while the command waits for keys or a decision; with
    /// the recorded count, the session can apply these calls afterwards. If the handshake determined
    /// the user, the count was recorded during the handshake.
    fn note_disconnect_count(&mut self, cx: &SessionContext<'_>) {
        let is_first = !self.has_requested_keys && !self.hooks.has_decision();
        if is_first && (self.info.user.is_empty() || self.disconnects_seen.is_none()) {
            self.disconnects_seen = Some(cx.shared.process.disconnect_count());
        }
    }

    /// Returns whether the user was unsubscribed from a channel since authentication began.
    fn is_unsubscribed(&self, channel: &str, cx: &SessionContext<'_>) -> bool {
        let ClientInfo { user, client, .. } = &*self.info;
        let shared = &cx.shared;
        !user.is_empty()
            && shared.is_unsubscribed_since(user, channel, self.disconnects_seen, client)
    }

    /// Returns the status that ends the session if a back end disconnected its user during
    /// authentication; otherwise `None`. At that time, the back end's call could not find the session
    /// yet.
    fn end_if_disconnected(&self, cx: &SessionContext<'_>) -> Option<CommandStatus> {
        let ClientInfo { user, client, .. } = &*self.info;
        let (code, reason) = CloseCode::Disconnected.parts();
        let is_ended = !user.is_empty()
            && cx
                .shared
                .is_disconnected_since(user, self.disconnects_seen, client);
        is_ended.then(|| CommandStatus::End(code, reason.into()))
    }

    /// Assigns a client id and stores the client's public data.
    fn register_client(&mut self, conn_info: Option<Payload>, cx: &mut SessionContext<'_>) {
        self.ensure_client(cx);
        self.info = Arc::new(ClientInfo {
            user: self.info.user.clone(),
            client: self.info.client.clone(),
            conn_info,
            chan_info: None,
        });
    }

    /// Adds the client's server-side subscriptions. If the client has a user, its personal channel is one of them.
    fn add_server_subscriptions(
        &mut self,
        id: u32,
        welcome: Admission,
        request: &ConnectRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let mut all: Vec<ChannelClaim> = Vec::new();
        let mut channels = welcome.channels;
        if !self.info.user.is_empty() {
            let channel = format!("#{}", self.info.user);
            // If the token or hook names the personal channel, the options given there take
            // precedence.
            let named = channels.iter().position(|one| one.channel == channel);
            all.push(match named {
                Some(place) => channels.remove(place),
                None => ChannelClaim {
                    channel,
                    ..ChannelClaim::default()
                },
            });
        }
        for one in channels {
            // A channel that is named twice leads to only one subscription.
            if !all.iter().any(|other| other.channel == one.channel) {
                all.push(one);
            }
        }
        if self.is_one_way() {
            self.add_asked(&mut all, request, cx);
        }
        all.retain(|one| !self.is_unsubscribed(&one.channel, cx));
        if all.len() > cx.shared.config.limits.channels_per_client {
            return CommandStatus::Close(DisconnectCode::ChannelLimit);
        }
        let mut connecting = PendingConnect {
            id,
            channels: Vec::with_capacity(all.len()),
            data: welcome.data,
            first: (self.ticket + 1) % GIVEN,
            open: 0,
        };
        for granted in all {
            let channel = match server_subscriptions_for(&self.info.user, &granted.channel) {
                Ok(channel) => channel,
                Err(why) => {
                    let what = format!("the token is refused: {why}");
                    cx.shared.log(cx.id, NoteLevel::Warn, what);
                    return CommandStatus::Close(DisconnectCode::InvalidToken);
                }
            };
            let subs = request.subs.iter();
            let mut subs = subs.filter(|sub| sub.channel == granted.channel);
            let presence_overrides = granted.overrides;
            let options = cx.shared.config.namespaces.of(&granted.channel);
            let wants_joins = presence_overrides.receives_join_leave(&options)
                || subs.clone().any(|sub| sub.join_leave);
            let known = subs.find(|sub| sub.recover).map(|sub| {
                let position = &sub.position;
                Arc::from([writing::since(&position.epoch, position.offset)])
            });
            // A browser that reconnects repeats its first request with the old position. The position in the id of its
            // last event is newer, so it takes precedence.
            let since = self.since_event().or(known);
            let is_recovering = since.is_some();
            let subscribe_options = SubscribeOptions {
                since,
                client: (!presence_overrides.is_hidden)
                    .then(|| self.info_with(granted.info.as_ref())),
                ..SubscribeOptions::default()
            };
            let ticket = self.next_ticket();
            let joined = match join(channel, ticket, &subscribe_options, cx) {
                Ok(joined) => joined,
                Err(code) => {
                    cx.shared.log(cx.id, NoteLevel::Warn, code.text());
                    return CommandStatus::Close(DisconnectCode::Internal);
                }
            };
            let is_renewed = cx.route().hook_target(HookKind::SubRefresh).is_some();
            self.subscriptions.add_by_server(&granted, is_renewed);
            self.deadline_changed |= granted.expires_ms.is_some();
            connecting.open += usize::from(joined.is_none());
            connecting.channels.push(PendingServerSubscription {
                is_recovering,
                wants_joins,
                joined: joined.flatten(),
                granted,
            });
        }
        match connecting.open {
            0 => self.connected(connecting, frame, cx),
            _ => CommandStatus::Waits(PendingTicket::Connect(Box::new(connecting))),
        }
    }

    /// Handles a home worker's answer for one of the command's channels.
    pub(super) fn connect_answered(
        &mut self,
        mut connecting: Box<PendingConnect>,
        Ticket(ticket): Ticket,
        joined: Option<Box<SubscribeOutcome>>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let place = (ticket.wrapping_sub(connecting.first) % GIVEN) as usize;
        if let Some(given) = connecting.channels.get_mut(place) {
            given.joined = joined;
            connecting.open -= 1;
        }
        match connecting.open {
            0 => self.connected(*connecting, frame, cx),
            _ => CommandStatus::Waits(PendingTicket::Connect(connecting)),
        }
    }

    /// Completes the connect command: writes its reply, and then the pushes that arrived in the meantime.
    fn connected(
        &mut self,
        mut connecting: PendingConnect,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        // The user may have been banned while the command waited. The ban could not find this
        // session, so it is checked again here.
        if cx.shared.is_banned(&self.info.user) {
            return CommandStatus::Close(DisconnectCode::PermissionDenied);
        }
        if let Some(end) = self.end_if_disconnected(cx) {
            return end;
        }
        // Unsubscriptions that back ends requested while the connect command waited are applied.
        connecting.channels.retain(|given| {
            let channel = &given.granted.channel;
            let is_over = self.is_unsubscribed(channel, cx);
            if is_over {
                self.leave(channel, cx);
            }
            !is_over
        });
        let outboxes = &cx.shared.requests.outboxes;
        let mut bytes_left = outboxes.outbox_bytes_max();
        let remembering = connecting
            .channels
            .iter()
            .filter(|one| one.joined.is_some());
        let each_bytes = outboxes.cursor_bytes(cx.id, remembering.count());
        let mut welcomes = Vec::with_capacity(connecting.channels.len());
        for given in &connecting.channels {
            let joined = given.joined.as_deref();
            // A browser's last event id has no positions in channels without history, so the browser requests no
            // recovery of these channels.
            let is_asked = joined.is_some() || self.since_event().is_none();
            let is_recovering = given.is_recovering && is_asked;
            let bytes_max = (bytes_left, each_bytes);
            let welcome = SubscribeReply::new(joined, is_recovering, self.encoding, bytes_max);
            bytes_left -= welcome.bytes();
            if is_recovering {
                cx.shared.stats.recovery(welcome.is_whole());
            }
            if given.wants_joins {
                let outboxes = &mut cx.shared.requests.outboxes;
                let subscription_options = SubscriptionOptions {
                    joins: true,
                    ..SubscriptionOptions::default()
                };
                outboxes.set_subscription_options(
                    cx.id,
                    &given.granted.channel,
                    subscription_options,
                );
            }
            welcomes.push(welcome);
        }
        let publications: Vec<_> = welcomes.iter().map(SubscribeReply::publications).collect();
        let names = connecting.channels.iter().map(|one| &*one.granted.channel);
        let missed = names.zip(&welcomes).zip(&publications);
        let missed: Vec<_> = missed.map(|((name, of), all)| (name, of, &**all)).collect();
        let subs = connecting.channels.iter().zip(&missed);
        let subs: Vec<(&str, SubscribeResult<'_>)> = subs
            .map(|(given, (channel, welcome, publications))| {
                let data = given.granted.data.as_ref();
                let result = match self.is_one_way() {
                    false => welcome.result(publications),
                    // The result has the position from which recovery starts, because a one-way client receives the
                    // recovered publications as ordinary pushes.
                    true => SubscribeResult {
                        offset: welcome.begin().map_or(0, |position| position.offset),
                        ..welcome.result(&[])
                    },
                };
                let data = data.map(|data| writing::data(data.borrow()));
                (*channel, SubscribeResult { data, ..result })
            })
            .collect();
        let (interval_ms, _) = ping_times_ms(cx.shared);
        let now = cx.shared.now;
        // A hook extends the connection, so the client is not told that it expires.
        let is_renewed = cx.route().hook_target(HookKind::Refresh).is_some();
        let lease = cx.lease.as_deref();
        let lease = lease.filter(|lease| !is_renewed && !lease.is_final);
        let ttl_s = lease.and_then(|lease| lease.validity.ttl_s(now));
        let session = self.address.as_ref().map(|address| address.text());
        let data = connecting.data.as_ref();
        let node = session.as_ref().map(|_| cx.shared.process.node());
        let result = ConnectResult {
            session: session.as_deref().unwrap_or_default(),
            node: node.as_deref().unwrap_or_default(),
            client: &self.info.client,
            version: VERSION,
            expires: ttl_s.is_some(),
            ttl_s: ttl_s.unwrap_or(0),
            data: data.map(|data| writing::data(data.borrow())),
            subs: &subs,
            ping_s: u32::try_from(interval_ms / 1000).unwrap_or(u32::MAX),
            pong: interval_ms > 0 && !self.is_one_way(),
            time_ms: i64::try_from(now.wall_ms).unwrap_or(0),
        };
        frame.reply(connecting.id, Outcome::Connect(result));
        if self.is_one_way() {
            self.push_missed(&missed, frame, cx);
        }
        (self.pinged_ms, self.is_pinged) = (now.mono_ms, false);
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.begin_pushes(cx.id);
        CommandStatus::Yes
    }

    pub(super) fn refresh(
        &mut self,
        id: u32,
        request: &RefreshRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        if cx.lease.as_deref().is_none_or(|lease| lease.is_final) {
            return refuse(id, ErrorCode::NotAvailable, frame);
        }
        if request.token.is_empty() {
            return refuse(id, ErrorCode::BadRequest, frame);
        }
        let verifier = self.token_verifier(cx.id, cx.route());
        let pass = match verifier.connection(&request.token, cx.shared) {
            Ok(pass) => pass,
            Err(TokenDenied::Later) => return self.wait_for_keys(),
            Err(TokenDenied::NoKeys) => return refuse(id, ErrorCode::Internal, frame),
            Err(denied) => {
                denied.note(cx.id, cx.shared);
                return CommandStatus::Close(match denied {
                    // The client reconnects with its token, and is then told to get a new one.
                    TokenDenied::Expired | TokenDenied::Revoked => DisconnectCode::Expired,
                    _ => DisconnectCode::InvalidToken,
                });
            }
        };
        if *pass.lease.user != *self.info.user {
            TokenDenied::NotFor("it belongs to another user").note(cx.id, cx.shared);
            return CommandStatus::Close(DisconnectCode::InvalidToken);
        }
        // The new token grants other subscriptions, so the client has to reconnect with the token to get them.
        if !self.subscriptions.are_exactly(&pass.claims.channels) {
            return CommandStatus::Close(DisconnectCode::InsufficientState);
        }
        cx.shared.stats.tokens_renewed.add(1);
        if let Some(info) = pass.claims.info {
            Arc::make_mut(&mut self.info).conn_info = Some(info);
        }
        if let Some(meta) = pass.claims.meta {
            self.update_caller(|caller| caller.meta = Some(meta));
        }
        let ttl_s = pass.lease.validity.ttl_s(cx.shared.now);
        let result = RefreshResult {
            client: &self.info.client,
            version: VERSION,
            expires: ttl_s.is_some(),
            ttl_s: ttl_s.unwrap_or(0),
        };
        *cx.lease = Some(Box::new(pass.lease));
        self.deadline_changed = true;
        frame.reply(id, Outcome::Refresh(result));
        CommandStatus::Yes
    }
}

/// Returns whether a client needs a token in its connect command if no hook has admitted it.
fn needs_token(identity: &Identity) -> bool {
    match identity {
        Identity::Token(tokens) => tokens.anonymous != Anonymous::All,
        _ => false,
    }
}

/// Counts the connection against the user's limit. Returns a close code if the user is banned or has reached the limit.
fn admit(user: &str, cx: &mut SessionContext<'_>) -> Result<(), DisconnectCode> {
    if cx.shared.is_banned(user) {
        return Err(DisconnectCode::PermissionDenied);
    }
    if !cx.shared.add_user_session(cx.id, user) {
        cx.shared
            .stats
            .reject_accept(AcceptRejection::UserConnections);
        return Err(DisconnectCode::ConnectionLimit);
    }
    Ok(())
}

/// Validates a channel that a back end grants to a user. The channel's name need not admit the user, since the back
/// end decides. But the personal channel of another user is never granted, since it identifies that user's
/// connections.
fn server_subscriptions_for<'c>(
    user: &str,
    channel: &'c str,
) -> Result<ChannelName<'c>, &'static str> {
    let name = ChannelName::new(channel).map_err(|_| "a channel name is invalid")?;
    match name.user() {
        Some(owner) if owner != user => Err("a channel is the personal channel of another user"),
        _ => Ok(name),
    }
}

/// Returns a unique client id: a random UUID (version 4, RFC 9562 section 5.4) from these random bytes.
pub(super) fn unique(mut bits: [u8; 16]) -> Box<str> {
    bits[6] = bits[6] & 0x0f | 0x40;
    bits[8] = bits[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (place, byte) in bits.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_names_of_the_usual_form() {
        assert_eq!(&*unique([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(&*unique([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
