//! The connect command: user, server-side subscriptions, and its reply; and `refresh`, by which a client renews its
//! token.

use std::fmt::Write as _;
use std::sync::Arc;

use veche_centrifuge::{
    ConnectRequest, ConnectResult, DisconnectCode, ErrorCode, Outcome, RefreshRequest,
    RefreshResult, SubscribeResult,
};
use veche_hub::{ChannelName, ClientInfo, Joined, Payload, SubscribeOptions, Ticket};
use veche_types::codes::CloseCode;

use super::claims::{Connection, Granted};
use super::commands::refuse;
use super::deciding::Ask;
use super::frame::Frame;
use super::instructed::GIVEN;
use super::pushes::forms;
use super::subscribing::join;
use super::tokens::{Denied, counted};
use super::writing::{self, Welcome};
use super::{Centrifuge, Context, Done, State, Waiting, ping_times_ms};
use crate::context::hooks::{self, Grant, Kind};
use crate::context::identity::token::Anonymous;
use crate::context::identity::{Identity, Lease, Term, is_valid_user};
use crate::context::note::NoteLevel;
use crate::context::stats::TurnedAway;
use crate::outbox::Wish;

/// The server's version for clients.
pub(super) const VERSION: &str = concat!("Veche ", env!("CARGO_PKG_VERSION"));

/// A connect command that waits for the homes of its channels.
pub(super) struct Connecting {
    id: u32,
    channels: Vec<Given>,
    /// Data for the client.
    data: Option<Payload>,
    /// Ticket of the first channel.
    first: u32,
    /// Number of outstanding answers.
    open: usize,
}

/// The connection data that a token or a hook grants.
#[derive(Default)]
struct Admission {
    /// Public data of the connection.
    info: Option<Payload>,
    channels: Vec<Granted>,
    /// Data for the client.
    data: Option<Payload>,
    /// Data for the hooks of its later commands.
    meta: Option<Payload>,
}

impl From<Connection> for Admission {
    fn from(says: Connection) -> Self {
        Self {
            info: says.info,
            channels: says.channels,
            data: None,
            meta: says.meta,
        }
    }
}

/// A server-side subscription in progress.
struct Given {
    granted: Granted,
    is_recovering: bool,
    wants_joins: bool,
    joined: Option<Box<Joined>>,
}

/// Maximum length of the stored client name and version.
const KIND_BYTES_MAX: usize = 64;

impl Centrifuge {
    pub(super) fn connect(
        &mut self,
        id: u32,
        request: &ConnectRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let route = cx.route();
        self.note_endings(cx);
        let welcome = match &route.identity {
            Identity::Token(_) if !request.token.is_empty() => {
                let judge = self.judge(cx.id, route);
                let pass = match judge.connection(&request.token, cx.shared) {
                    Ok(pass) => pass,
                    Err(Denied::Later) => return self.wait_for_keys(),
                    Err(denied) => {
                        denied.note(cx.id, cx.shared);
                        return match denied.to_connect() {
                            Ok(code) => refuse(id, code, frame),
                            Err(code) => Done::Close(code),
                        };
                    }
                };
                if let Err(code) = self.name(pass.lease, cx) {
                    return Done::Close(code);
                }
                pass.says.into()
            }
            // The handshake's token contains everything.
            _ if self.claims.is_some() => match self.said_before(cx) {
                Ok(says) => says.into(),
                Err(denied) => {
                    denied.note(cx.id, cx.shared);
                    return Done::Close(DisconnectCode::InvalidToken);
                }
            },
            _ if cx.lease.as_deref().is_some_and(|lease| !lease.is_final) => Admission::default(),
            identity => match self.admitted(id, request, frame, cx) {
                Ok(Some(admission)) => admission,
                Ok(None) if needs_token(identity) => {
                    return refuse(id, ErrorCode::Unauthorized, frame);
                }
                Ok(None) => Admission::default(),
                Err(done) => return done,
            },
        };
        if let Some(end) = self.ended(cx) {
            return end;
        }
        self.introduce(welcome.info.clone(), cx);
        if let Some(meta) = &welcome.meta {
            self.change_asker(|asker| asker.meta = Some(meta.clone()));
        }
        self.kind = [&request.name, &request.version]
            .map(|text| text[..text.floor_char_boundary(KIND_BYTES_MAX)].into());
        self.state = State::Connected;
        let dialect = self.dialect();
        cx.shared
            .ports
            .outboxes
            .gather_pushes(cx.id, dialect.format());
        self.give(id, welcome, request, frame, cx)
    }

    /// Returns the hook's decision on a client without a token; `None` without a hook.
    fn admitted(
        &mut self,
        id: u32,
        request: &ConnectRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Result<Option<Admission>, Done> {
        if let Some(deciders) = cx.route().deciders.as_deref() {
            let own = self.deciding.headers;
            self.change_asker(|asker| {
                // Not those of a previous, refused command.
                asker.headers.truncate(own);
                asker.name = request.name.as_ref().into();
                asker.version = request.version.as_ref().into();
                asker.add_headers(&deciders.emulated, &request.headers);
            });
        }
        let ask = Ask {
            token: &request.token,
            data: request.data,
            channels: request
                .subs
                .iter()
                .map(|sub| (*sub.channel).into())
                .take(cx.shared.site.limits.channels_per_client)
                .collect(),
            ..Ask::default()
        };
        let Some(grant) = self.decided(id, Kind::Connect, ask, frame, cx)? else {
            return Ok(None);
        };
        let Grant {
            user,
            expires_at_s,
            info,
            data,
            channels,
            meta,
            ..
        } = *grant;
        let expires_ms = expires_at_s.map(|at_s| at_s.saturating_mul(1000));
        // A name may occur in both lists.
        if channels.len() > 2 * cx.shared.site.limits.channels_per_client {
            return Err(Done::Close(DisconnectCode::ChannelLimit));
        }
        if let Some(why) = self.objection(&user, &channels) {
            return Err(self.undecided(id, Kind::Connect, why, frame, cx));
        }
        if expires_ms.is_some_and(|expires_ms| expires_ms <= cx.shared.now.wall_ms) {
            return Err(refuse(id, ErrorCode::Expired, frame));
        }
        if self.info.user.is_empty() && !user.is_empty() {
            let_in(&user, cx).map_err(Done::Close)?;
            self.set_user(&user);
            cx.shared
                .ports
                .outboxes
                .journal
                .set_user(cx.id, Some(&user));
        }
        // The handshake's identity may expire earlier.
        let until_ms = cx.lease.as_deref().and_then(|lease| lease.term.until_ms);
        if expires_ms.is_some_and(|at_ms| until_ms.is_none_or(|until_ms| at_ms < until_ms)) {
            let user = self.info.user.clone().into_string();
            *cx.lease = Some(Box::new(Lease {
                user,
                term: Term::until_s(expires_at_s),
                is_final: cx.lease.as_deref().is_some_and(|lease| lease.is_final),
            }));
            self.is_hurried = true;
        }
        let granted = channels.into_iter().map(|given| Granted {
            channel: given.channel.into_string(),
            info: given.info,
            data: given.data,
            expires_ms: given.expires_at_s.map(|at_s| at_s.saturating_mul(1000)),
            ..Granted::default()
        });
        Ok(Some(Admission {
            info,
            channels: granted.collect(),
            data,
            meta,
        }))
    }

    /// Returns why this user and these channels are invalid, if they are.
    fn objection(&self, user: &str, channels: &[hooks::Given]) -> Option<&'static str> {
        let own = &*self.info.user;
        if !user.is_empty() && !is_valid_user(user) {
            return Some("invalid user");
        }
        if !user.is_empty() && !own.is_empty() && user != own {
            return Some("the user differs from that of the handshake");
        }
        let user = if own.is_empty() { user } else { own };
        let mut channels = channels.iter();
        channels.find_map(|given| given_to(user, &given.channel).err())
    }

    /// Returns the claims of the handshake's token.
    fn said_before(&mut self, cx: &Context<'_>) -> Result<Connection, Denied> {
        let claims = self.claims.take().unwrap_or_default();
        let namespaces = &cx.shared.site.namespaces;
        counted(Connection::read(&claims, namespaces), cx.shared)
    }

    /// Sets the user of the token, unless the handshake authenticated another one.
    fn name(&mut self, lease: Lease, cx: &mut Context<'_>) -> Result<(), DisconnectCode> {
        if cx.lease.is_some() && *self.info.user != *lease.user {
            return Err(DisconnectCode::InvalidToken);
        }
        let user = Some(&*lease.user).filter(|user| !user.is_empty());
        // A user of the handshake was checked there.
        if let Some(user) = user
            && cx.lease.is_none()
        {
            let_in(user, cx)?;
        }
        self.set_user(&lease.user);
        cx.shared.ports.outboxes.journal.set_user(cx.id, user);
        *cx.lease = Some(Box::new(lease));
        self.is_hurried = true;
        Ok(())
    }

    /// Records how often back ends have disconnected or unsubscribed users, so that calls during a wait for keys or a
    /// decision apply. A handshake with a user recorded it before.
    fn note_endings(&mut self, cx: &Context<'_>) {
        let is_first = !self.has_asked && !self.deciding.has_verdict();
        if is_first && (self.info.user.is_empty() || self.asked.is_none()) {
            self.asked = Some(cx.shared.process.endings());
        }
    }

    /// Returns whether the user was unsubscribed from a channel since then.
    fn is_unsubscribed(&self, channel: &str, cx: &Context<'_>) -> bool {
        let ClientInfo { user, client, .. } = &*self.info;
        let shared = &cx.shared;
        !user.is_empty() && shared.is_unsubscribed_since(user, channel, self.asked, client)
    }

    /// Ends the session if its user was disconnected during authentication, since that call did not find it yet.
    fn ended(&self, cx: &Context<'_>) -> Option<Done> {
        let ClientInfo { user, client, .. } = &*self.info;
        let (code, reason) = CloseCode::Disconnected.parts();
        let is_ended = !user.is_empty() && cx.shared.is_ended_since(user, self.asked, client);
        is_ended.then(|| Done::End(code, reason.into()))
    }

    /// Assigns the client's id and registers its data.
    fn introduce(&mut self, conn_info: Option<Payload>, cx: &mut Context<'_>) {
        self.ensure_client(cx);
        self.info = Arc::new(ClientInfo {
            user: self.info.user.clone(),
            client: self.info.client.clone(),
            conn_info,
            chan_info: None,
        });
    }

    /// Subscribes the client to its personal channel and its server-side subscriptions.
    fn give(
        &mut self,
        id: u32,
        welcome: Admission,
        request: &ConnectRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let mut all: Vec<Granted> = Vec::new();
        let mut channels = welcome.channels;
        if !self.info.user.is_empty() {
            let channel = format!("#{}", self.info.user);
            // Options of `subs` take precedence.
            let named = channels.iter().position(|one| one.channel == channel);
            all.push(match named {
                Some(place) => channels.remove(place),
                None => Granted {
                    channel,
                    ..Granted::default()
                },
            });
        }
        for one in channels {
            // Duplicates are subscribed once.
            if !all.iter().any(|other| other.channel == one.channel) {
                all.push(one);
            }
        }
        if self.is_one_way() {
            self.add_asked(&mut all, request, cx);
        }
        all.retain(|one| !self.is_unsubscribed(&one.channel, cx));
        if all.len() > cx.shared.site.limits.channels_per_client {
            return Done::Close(DisconnectCode::ChannelLimit);
        }
        let mut connecting = Connecting {
            id,
            channels: Vec::with_capacity(all.len()),
            data: welcome.data,
            first: (self.ticket + 1) % GIVEN,
            open: 0,
        };
        for granted in all {
            let channel = match given_to(&self.info.user, &granted.channel) {
                Ok(channel) => channel,
                Err(why) => {
                    let what = format!("token refused: {why}");
                    cx.shared.note(cx.id, NoteLevel::Warn, what);
                    return Done::Close(DisconnectCode::InvalidToken);
                }
            };
            let subs = request.subs.iter();
            let mut subs = subs.filter(|sub| sub.channel == granted.channel);
            let manner = granted.manner;
            let options = cx.shared.site.namespaces.of(&granted.channel);
            let wants_joins =
                manner.hears_joins(&options) || subs.clone().any(|sub| sub.join_leave);
            let known = subs.find(|sub| sub.recover).map(|sub| {
                let position = &sub.position;
                Arc::from([writing::since(&position.epoch, position.offset)])
            });
            // A reconnecting browser repeats its request, but its last event is newer.
            let since = self.since_event().or(known);
            let is_recovering = since.is_some();
            let joining = SubscribeOptions {
                since,
                client: (!manner.is_hidden).then(|| self.info_with(granted.info.as_ref())),
                ..SubscribeOptions::default()
            };
            let ticket = self.next_ticket();
            let joined = match join(channel, ticket, &joining, cx) {
                Ok(joined) => joined,
                Err(code) => {
                    cx.shared.note(cx.id, NoteLevel::Warn, code.words());
                    return Done::Close(DisconnectCode::Internal);
                }
            };
            let is_renewed = cx.route().decider(Kind::SubRefresh).is_some();
            self.subscriptions.give(&granted, is_renewed);
            self.is_hurried |= granted.expires_ms.is_some();
            connecting.open += usize::from(joined.is_none());
            connecting.channels.push(Given {
                is_recovering,
                wants_joins,
                joined: joined.flatten(),
                granted,
            });
        }
        match connecting.open {
            0 => self.connected(connecting, frame, cx),
            _ => Done::Waits(Waiting::Connect(Box::new(connecting))),
        }
    }

    /// Handles the answer of a home for one of these channels.
    pub(super) fn connect_answered(
        &mut self,
        mut connecting: Box<Connecting>,
        Ticket(ticket): Ticket,
        joined: Option<Box<Joined>>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let place = (ticket.wrapping_sub(connecting.first) % GIVEN) as usize;
        if let Some(given) = connecting.channels.get_mut(place) {
            given.joined = joined;
            connecting.open -= 1;
        }
        match connecting.open {
            0 => self.connected(*connecting, frame, cx),
            _ => Done::Waits(Waiting::Connect(connecting)),
        }
    }

    /// Completes the connect command: the reply is written, followed by what arrived in the meantime.
    fn connected(
        &mut self,
        mut connecting: Connecting,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        // The user may have been banned meanwhile; that call did not find this session yet.
        if cx.shared.is_blocked(&self.info.user) {
            return Done::Close(DisconnectCode::PermissionDenied);
        }
        if let Some(end) = self.ended(cx) {
            return end;
        }
        // Calls that end subscriptions apply too.
        connecting.channels.retain(|given| {
            let channel = &given.granted.channel;
            let is_over = self.is_unsubscribed(channel, cx);
            if is_over {
                self.leave(channel, cx);
            }
            !is_over
        });
        let outboxes = &cx.shared.ports.outboxes;
        let mut bytes_left = outboxes.outbox_bytes_max();
        let remembering = connecting
            .channels
            .iter()
            .filter(|one| one.joined.is_some());
        let each_bytes = outboxes.mark_bytes(cx.id, remembering.count());
        let mut welcomes = Vec::with_capacity(connecting.channels.len());
        for given in &connecting.channels {
            let joined = given.joined.as_deref();
            // A browser's last event has no position of channels without history.
            let is_asked = joined.is_some() || self.since_event().is_none();
            let is_recovering = given.is_recovering && is_asked;
            let bytes_max = (bytes_left, each_bytes);
            let welcome = Welcome::new(joined, is_recovering, self.encoding, bytes_max);
            bytes_left -= welcome.bytes();
            if is_recovering {
                cx.shared.stats.recovery(welcome.is_whole());
            }
            if given.wants_joins {
                let outboxes = &mut cx.shared.ports.outboxes;
                let wish = Wish {
                    joins: true,
                    ..Wish::default()
                };
                outboxes.wish(cx.id, &given.granted.channel, wish);
            }
            welcomes.push(welcome);
        }
        let publications: Vec<_> = welcomes.iter().map(Welcome::publications).collect();
        let names = connecting.channels.iter().map(|one| &*one.granted.channel);
        let missed = names.zip(&welcomes).zip(&publications);
        let missed: Vec<_> = missed.map(|((name, of), all)| (name, of, &**all)).collect();
        let subs = connecting.channels.iter().zip(&missed);
        let subs: Vec<(&str, SubscribeResult<'_>)> = subs
            .map(|(given, (channel, welcome, publications))| {
                let data = given.granted.data.as_ref();
                let result = match self.is_one_way() {
                    false => welcome.result(publications),
                    // Recovered publications follow as ordinary pushes; this is their starting position.
                    true => SubscribeResult {
                        offset: welcome.begin().map_or(0, |position| position.offset),
                        ..welcome.result(&[])
                    },
                };
                let data = data.map(|data| forms::data(data.borrow()));
                (*channel, SubscribeResult { data, ..result })
            })
            .collect();
        let (interval_ms, _) = ping_times_ms(cx.shared);
        let now = cx.shared.now;
        // The client is not told of an expiry that a hook handles.
        let is_renewed = cx.route().decider(Kind::Refresh).is_some();
        let lease = cx.lease.as_deref();
        let lease = lease.filter(|lease| !is_renewed && !lease.is_final);
        let ttl_s = lease.and_then(|lease| lease.term.ttl_s(now));
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
            data: data.map(|data| forms::data(data.borrow())),
            subs: &subs,
            ping_s: u32::try_from(interval_ms / 1000).unwrap_or(u32::MAX),
            pong: interval_ms > 0 && !self.is_one_way(),
            time_ms: i64::try_from(now.wall_ms).unwrap_or(0),
        };
        frame.reply(connecting.id, Outcome::Connect(result));
        if self.is_one_way() {
            self.tell_missed(&missed, frame, cx);
        }
        (self.pinged_ms, self.is_pinged) = (now.mono_ms, false);
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        cx.shared.ports.outboxes.begin_pushes(cx.id);
        Done::Yes
    }

    pub(super) fn refresh(
        &mut self,
        id: u32,
        request: &RefreshRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        if cx.lease.as_deref().is_none_or(|lease| lease.is_final) {
            return refuse(id, ErrorCode::NotAvailable, frame);
        }
        if request.token.is_empty() {
            return refuse(id, ErrorCode::BadRequest, frame);
        }
        let judge = self.judge(cx.id, cx.route());
        let pass = match judge.connection(&request.token, cx.shared) {
            Ok(pass) => pass,
            Err(Denied::Later) => return self.wait_for_keys(),
            Err(Denied::NoKeys) => return refuse(id, ErrorCode::Internal, frame),
            Err(denied) => {
                denied.note(cx.id, cx.shared);
                return Done::Close(match denied {
                    // A client that reconnects with it is asked for a new one.
                    Denied::Expired | Denied::Over => DisconnectCode::Expired,
                    _ => DisconnectCode::InvalidToken,
                });
            }
        };
        if *pass.lease.user != *self.info.user {
            Denied::NotFor("it belongs to another user").note(cx.id, cx.shared);
            return Done::Close(DisconnectCode::InvalidToken);
        }
        // The client reconnects with the new token and gets its subscriptions.
        if !self.subscriptions.are_those(&pass.says.channels) {
            return Done::Close(DisconnectCode::InsufficientState);
        }
        cx.shared.stats.tokens_renewed.add(1);
        if let Some(info) = pass.says.info {
            Arc::make_mut(&mut self.info).conn_info = Some(info);
        }
        if let Some(meta) = pass.says.meta {
            self.change_asker(|asker| asker.meta = Some(meta));
        }
        let ttl_s = pass.lease.term.ttl_s(cx.shared.now);
        let result = RefreshResult {
            client: &self.info.client,
            version: VERSION,
            expires: ttl_s.is_some(),
            ttl_s: ttl_s.unwrap_or(0),
        };
        *cx.lease = Some(Box::new(pass.lease));
        self.is_hurried = true;
        frame.reply(id, Outcome::Refresh(result));
        Done::Yes
    }
}

/// Returns whether a client that no hook has admitted needs a token in its connect command.
fn needs_token(identity: &Identity) -> bool {
    match identity {
        Identity::Token(tokens) => tokens.anonymous != Anonymous::All,
        _ => false,
    }
}

/// Counts the client for this user, unless the user is banned.
fn let_in(user: &str, cx: &mut Context<'_>) -> Result<(), DisconnectCode> {
    if cx.shared.is_blocked(user) {
        return Err(DisconnectCode::PermissionDenied);
    }
    if !cx.shared.count_user_in(cx.id, user) {
        cx.shared.stats.turn_away(TurnedAway::UserConnections);
        return Err(DisconnectCode::ConnectionLimit);
    }
    Ok(())
}

/// Validates a channel that a back end grants to a user. The users admitted by the name do not matter, since the back
/// end decides. But a personal channel identifies a user's connections and is never granted to others.
fn given_to<'c>(user: &str, channel: &'c str) -> Result<ChannelName<'c>, &'static str> {
    let name = ChannelName::new(channel).map_err(|_| "invalid channel")?;
    match name.user() {
        Some(owner) if owner != user => Err("another user's personal channel"),
        _ => Ok(name),
    }
}

/// Returns a unique client id: a random UUID (RFC 9562 section 5.4).
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
