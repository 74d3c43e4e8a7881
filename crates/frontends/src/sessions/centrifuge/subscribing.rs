//! The channels of a client: those that it asked for, and those that it was given.

use std::sync::Arc;

use veche_centrifuge::{
    BadFilter, DisconnectCode, ErrorCode, Filter, Outcome, Push, PushBody, SubRefreshRequest,
    SubRefreshResult, SubscribeRequest, SubscribeResult, UnsubscribeCode,
};
use veche_hub::{
    ChannelName, ClientInfo, Differences, Joined, Namespace, Payload, Recovery, SubscribeError,
    SubscribeOptions, Ticket,
};
use veche_types::Now;

use super::channels::{Leave, may_subscribe, named};
use super::claims::Granted;
use super::commands::refuse;
use super::deciding::Ask;
use super::frame::Frame;
use super::manner::Manner;
use super::pushes::forms;
use super::tokens::{Denied, Grant, Place};
use super::writing::{self, Sieve, Welcome};
use super::{Centrifuge, Context, Done, Flow, Waiting};
use crate::context::hooks::{self, Kind, QuestionId};
use crate::context::identity::{Identity, Term};
use crate::outbox::{Deltas, Selector, Wish};
use crate::websocket::GRACE_MS;

/// A subscription that holds for longer is looked at again then: the wall clock may have been set.
const LOOK_MS: u64 = 60 * 60 * 1000;

/// The one kind of deltas.
const DELTA: &str = "fossil";

/// The flag by which a client would rather be refused than not recover.
const FLAG_RECOVER_OR_FAIL: i64 = 2;

/// What a client is subscribed to, or about to be.
#[derive(Default)]
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    /// When the first has to be looked at; milliseconds since 1970.
    due_ms: Option<u64>,
}

struct Subscription {
    channel: Box<str>,
    /// By the server's will: the client can't end it.
    is_given: bool,
    /// The connection's token has named it.
    is_by_token: bool,
    /// The token for it holds until then, or what was granted; `None`: for ever.
    expires_ms: Option<u64>,
    /// Somebody else says whether it goes on then, of which the client knows nothing.
    is_renewed: bool,
    /// He is being asked.
    renewal: Option<QuestionId>,
    /// What is known of the client in this channel; boxed, since few have it.
    info: Option<Box<Payload>>,
}

// A client may have as many as there are channels for it.
const _: () = assert!(size_of::<Subscription>() <= 56);

/// A subscribe command whose channel's home has yet to answer.
pub(super) struct Asked {
    id: u32,
    channel: Box<str>,
    /// In how many seconds its token ends.
    ttl_s: Option<u32>,
    is_recovering: bool,
    /// Of what is kept it gets the latest that passes its filter.
    picks: bool,
    or_fail: bool,
    wish: Wish,
    /// What the client is told.
    data: Option<Payload>,
}

/// On what terms a client may subscribe.
#[derive(Default)]
struct Terms {
    info: Option<Payload>,
    data: Option<Payload>,
    term: Term,
    manner: Manner,
}

impl From<hooks::Grant> for Terms {
    fn from(grant: hooks::Grant) -> Self {
        Self {
            info: grant.info,
            data: grant.data,
            term: Term::until_s(grant.expires_at_s),
            manner: Manner::default(),
        }
    }
}

impl Asked {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, channel: &str) -> bool {
        self.find(channel).is_some()
    }

    fn find(&self, channel: &str) -> Option<&Subscription> {
        self.all.iter().find(|one| *one.channel == *channel)
    }

    fn add(&mut self, subscription: Subscription) {
        self.all.push(subscription);
        self.settle();
    }

    /// One that the server wants.
    pub(super) fn give(&mut self, granted: &Granted, is_renewed: bool) {
        self.add(Subscription {
            channel: granted.channel.as_str().into(),
            is_given: true,
            is_by_token: granted.is_by_token,
            expires_ms: granted.expires_ms,
            is_renewed,
            renewal: None,
            info: granted.info.clone().map(Box::new),
        });
    }

    /// Whether a token that names these names those that the one before has named.
    pub(super) fn are_those(&self, named: &[Granted]) -> bool {
        let is_named = |channel: &str| named.iter().any(|one| one.channel == channel);
        let mut by_token = self.all.iter().filter(|one| one.is_by_token);
        named.iter().all(|one| self.has(&one.channel)) && by_token.all(|one| is_named(&one.channel))
    }

    /// Whether the server wants it.
    pub(super) fn is_given(&self, channel: &str) -> bool {
        self.find(channel).is_some_and(|one| one.is_given)
    }

    /// Those whose time is over, and about which somebody is to be asked.
    pub(super) fn to_renew(&self, now_ms: u64, awaited: Option<&str>) -> Vec<Box<str>> {
        if self.due_ms.is_none_or(|due_ms| now_ms < due_ms) {
            return Vec::new();
        }
        let is_over = |one: &&Subscription| {
            // One of which an answer comes can't be ended before.
            let is_awaited = Some(&*one.channel) == awaited;
            one.asks_later() && !is_awaited && one.expires_ms.is_some_and(|at_ms| now_ms >= at_ms)
        };
        let over = self.all.iter().filter(is_over);
        over.map(|one| one.channel.clone()).collect()
    }

    /// Somebody is being asked about that.
    pub(super) fn begin_renewal(&mut self, channel: &str, question: QuestionId) {
        if let Some(one) = self.all.iter_mut().find(|one| *one.channel == *channel) {
            one.renewal = Some(question);
        }
        self.settle();
    }

    /// About which channel that question was; `None` if there is no such subscription any more.
    pub(super) fn end_renewal(&mut self, question: QuestionId) -> Option<Box<str>> {
        let mut all = self.all.iter_mut();
        let one = all.find(|one| one.renewal == Some(question))?;
        one.renewal = None;
        let channel = one.channel.clone();
        self.settle();
        Some(channel)
    }

    /// Until when it holds, if that has an end.
    pub(super) fn expires_ms(&self, channel: &str) -> Option<u64> {
        self.find(channel).and_then(|one| one.expires_ms)
    }

    /// It holds until then; with what is known of the client from now on, if that is said.
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
        self.due_ms = self.all.iter().filter_map(Subscription::due_ms).min();
    }

    /// When the first has expired for good, or somebody is to be asked about it, by the monotonic clock, or when to look
    /// again; but for one, of which an answer comes.
    pub(super) fn deadline_ms(&self, now: Now, awaited: Option<&str>) -> u64 {
        let left_ms = |due_ms: u64| due_ms.saturating_sub(now.wall_ms).min(LOOK_MS);
        let mut first_ms = self.due_ms;
        if first_ms.is_some() && awaited.is_some() {
            let others = self.all.iter().filter(|one| Some(&*one.channel) != awaited);
            first_ms = others.filter_map(Subscription::due_ms).min();
        }
        first_ms
            .map(left_ms)
            .map_or(u64::MAX, |left_ms| now.mono_ms.saturating_add(left_ms))
    }
}

impl Subscription {
    /// Somebody will be asked when its time is over.
    fn asks_later(&self) -> bool {
        self.is_renewed && self.renewal.is_none()
    }

    /// When to look at it.
    fn due_ms(&self) -> Option<u64> {
        let expires_ms = self.expires_ms?;
        match self.asks_later() {
            true => Some(expires_ms),
            false => Some(expires_ms.saturating_add(GRACE_MS)),
        }
    }
}

/// How a client wants to be told, as far as it may.
fn wish(request: &SubscribeRequest<'_>, options: Namespace) -> Result<Wish, BadFilter> {
    // Of a kind that is not known none are granted.
    let wants_deltas = request.delta == DELTA;
    let filter = match request.filter {
        None => None,
        // What was before is not what passed before.
        Some(_) if !options.tags_filter || wants_deltas => return Err(BadFilter),
        Some(filter) => Some(Arc::new(Filter::read(filter)?) as Arc<dyn Selector>),
    };
    Ok(Wish {
        joins: request.join_leave,
        deltas: match wants_deltas && options.differences != Differences::Off {
            true => Deltas::Begun,
            false => Deltas::Off,
        },
        filter,
    })
}

/// Whether a client gets the latest publication that passes its filter when it comes back.
fn picks(wish: &Wish, options: Namespace) -> bool {
    let gets_latest = options
        .history
        .is_some_and(|history| history.recovery == Recovery::Latest);
    wish.filter.is_some() && gets_latest
}

impl Centrifuge {
    /// As whom others see the client in a channel.
    pub(super) fn info_in(&self, channel: &str) -> Arc<ClientInfo> {
        let subscription = self.subscriptions.find(channel);
        self.info_with(subscription.and_then(|one| one.info.as_deref()))
    }

    pub(super) fn info_with(&self, chan_info: Option<&Payload>) -> Arc<ClientInfo> {
        match chan_info {
            // One for all channels of which nothing more is known.
            None => Arc::clone(&self.info),
            Some(_) => Arc::new(ClientInfo {
                chan_info: chan_info.cloned(),
                ..ClientInfo::clone(&self.info)
            }),
        }
    }

    /// What a token for a channel has to be for.
    fn place<'a>(&'a self, channel: &'a str) -> Place<'a> {
        Place {
            channel,
            user: &self.info.user,
            client: &self.info.client,
        }
    }

    pub(super) fn subscribe(
        &mut self,
        id: u32,
        request: &SubscribeRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let channel = match named(&request.channel, &cx.shared.site.namespaces) {
            Ok(channel) => channel,
            Err(code) => return refuse(id, code, frame),
        };
        let name = channel.as_str();
        if name.len() > cx.shared.site.limits.channel_name_bytes_max {
            return refuse(id, ErrorCode::BadRequest, frame);
        }
        if self.subscriptions.has(name) {
            return refuse(id, ErrorCode::AlreadySubscribed, frame);
        }
        if self.deciding.is_withdrawn() {
            return refuse(id, ErrorCode::PermissionDenied, frame);
        }
        let namespaces = &cx.shared.site.namespaces;
        let options = namespaces.of(name);
        let leave = match may_subscribe(channel, &self.info.user, namespaces) {
            Ok(leave) => leave,
            Err(code) => return refuse(id, code, frame),
        };
        // Maps.
        if request.kind != 0 {
            return refuse(id, ErrorCode::NotAvailable, frame);
        }
        if (request.filter.is_some() || request.recover) && cx.shared.is_short_of_memory {
            return refuse(id, ErrorCode::Internal, frame);
        }
        let Ok(mut wish) = wish(request, options) else {
            return refuse(id, ErrorCode::BadRequest, frame);
        };
        if self.subscriptions.len() >= cx.shared.site.limits.channels_per_client {
            return refuse(id, ErrorCode::LimitExceeded, frame);
        }
        let has_tokens = matches!(cx.route().identity, Identity::Token(_));
        let mut terms = Terms::default();
        let mut is_renewed = false;
        if !request.token.is_empty() && (has_tokens || leave != Leave::WithVerdict) {
            let judge = self.judge(cx.id, cx.route());
            match judge.subscription(&request.token, self.place(name), cx.shared) {
                Ok(granted) => {
                    terms = Terms {
                        info: granted.says.info,
                        data: granted.says.data,
                        term: granted.term,
                        manner: granted.says.manner,
                    };
                }
                Err(Denied::Later) => {
                    self.deciding.begin_subscribing(name);
                    return self.wait_for_keys();
                }
                Err(denied) => {
                    denied.note(cx.id, cx.shared);
                    return refuse(id, denied.to_channel(), frame);
                }
            }
        } else if leave == Leave::WithToken {
            return refuse(id, ErrorCode::PermissionDenied, frame);
        } else if leave == Leave::WithVerdict {
            let ask = Ask {
                channel: name,
                token: &request.token,
                data: request.data,
                ..Ask::default()
            };
            match self.decided(id, Kind::Subscribe, ask, frame, cx) {
                Ok(Some(grant)) => {
                    terms = (*grant).into();
                    if terms.term.is_over(cx.shared.now) {
                        return refuse(id, ErrorCode::Expired, frame);
                    }
                    is_renewed = cx.route().decider(Kind::SubRefresh).is_some();
                }
                Ok(None) => return refuse(id, ErrorCode::PermissionDenied, frame),
                Err(done) => {
                    if matches!(done, Done::Not(_)) {
                        self.deciding.begin_subscribing(name);
                    }
                    return done;
                }
            }
        }
        let Terms {
            info,
            data,
            term,
            manner,
        } = terms;
        wish.joins |= manner.hears_joins(&options);
        let asked = Asked {
            id,
            channel: name.into(),
            ttl_s: term.ttl_s(cx.shared.now).filter(|_| !is_renewed),
            is_recovering: request.recover,
            picks: picks(&wish, options),
            or_fail: request.flag & FLAG_RECOVER_OR_FAIL != 0,
            wish,
            data,
        };
        let since = request
            .recover
            .then(|| Arc::from([writing::since(&request.epoch, request.offset)]));
        let joining = SubscribeOptions {
            since,
            client: (!manner.is_hidden).then(|| self.info_with(info.as_ref())),
            picks: asked.picks,
        };
        let ticket = self.next_ticket();
        let answer = match join(channel, ticket, &joining, cx) {
            Ok(answer) => answer,
            Err(code) => return refuse(id, code, frame),
        };
        self.is_hurried |= term.until_ms.is_some();
        self.subscriptions.add(Subscription {
            channel: name.into(),
            is_given: false,
            is_by_token: false,
            expires_ms: term.until_ms,
            is_renewed,
            renewal: None,
            info: info.map(Box::new),
        });
        match answer {
            None => Done::Waits(Waiting::Subscribe(Box::new(asked))),
            Some(joined) => self.subscribed(&asked, joined.as_deref(), frame, cx),
        }
    }

    /// The channel's home has counted the client.
    pub(super) fn subscribed(
        &mut self,
        asked: &Asked,
        joined: Option<&Joined>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let outboxes = &mut cx.shared.ports.outboxes;
        let bytes_max = outboxes.outbox_bytes_max();
        let sieve = Sieve {
            filter: asked.wish.filter.as_deref(),
            only_latest: asked.picks,
        };
        let is_recovering = asked.is_recovering;
        let bytes_max = (bytes_max, 0);
        let mut welcome = Welcome::sifted(joined, is_recovering, self.encoding, bytes_max, sieve);
        if asked.is_recovering {
            cx.shared.stats.recovery(welcome.is_whole());
            if asked.or_fail && !welcome.is_whole() {
                self.leave(&asked.channel, cx);
                return refuse(asked.id, ErrorCode::UnrecoverablePosition, frame);
            }
        }
        let mut wish = asked.wish.clone();
        if joined.is_none() {
            // Nobody knows what was before.
            wish.deltas = Deltas::Off;
        } else if wish.deltas != Deltas::Off {
            welcome = welcome.with_deltas(frame.encoding());
            if welcome.has_publications() {
                self.has_compared = true;
                wish.deltas = Deltas::Going;
            }
        }
        outboxes.wish(cx.id, &asked.channel, wish);
        let publications = welcome.publications();
        let data = asked.data.as_ref();
        let result = SubscribeResult {
            expires: asked.ttl_s.is_some(),
            ttl_s: asked.ttl_s.unwrap_or(0),
            data: data.map(|data| forms::data(data.borrow())),
            ..welcome.result(&publications)
        };
        frame.reply(asked.id, Outcome::Subscribe(result));
        Done::Yes
    }

    pub(super) fn unsubscribe(
        &mut self,
        id: u32,
        channel: &str,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        if let Err(code) = named(channel, &cx.shared.site.namespaces) {
            return refuse(id, code, frame);
        }
        match self.subscriptions.find(channel) {
            Some(one) if one.is_given => return refuse(id, ErrorCode::PermissionDenied, frame),
            Some(_) => self.leave(channel, cx),
            // It hears nothing of it, as it wants.
            None => {}
        }
        frame.reply(id, Outcome::Unsubscribe);
        Done::Yes
    }

    /// Ends a subscription.
    pub(super) fn leave(&mut self, channel: &str, cx: &mut Context<'_>) {
        self.subscriptions.remove(channel);
        cx.shared.ports.outboxes.forget_wish(cx.id, channel);
        cx.shared.ports.outboxes.clear_mark(cx.id, channel);
        if let Ok(channel) = ChannelName::new(channel) {
            let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.ports);
            hub.unsubscribe(cx.id, channel, ports);
        }
    }

    pub(super) fn sub_refresh(
        &mut self,
        id: u32,
        request: &SubRefreshRequest<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let channel: &str = &request.channel;
        let code = match (
            named(channel, &cx.shared.site.namespaces),
            self.subscriptions.find(channel),
        ) {
            (Err(code), _) => Some(code),
            (_, None) => Some(ErrorCode::PermissionDenied),
            (_, Some(_)) if request.kind != 0 => Some(ErrorCode::NotAvailable),
            // There is nothing to be refreshed.
            (_, Some(one)) if one.expires_ms.is_none() => Some(ErrorCode::BadRequest),
            (_, Some(_)) if request.token.is_empty() => Some(ErrorCode::BadRequest),
            (_, Some(_)) => None,
        };
        if let Some(code) = code {
            return refuse(id, code, frame);
        }
        let judge = self.judge(cx.id, cx.route());
        let grant = match judge.subscription(&request.token, self.place(channel), cx.shared) {
            Ok(grant) => grant,
            Err(Denied::Later) => return self.wait_for_keys(),
            Err(denied) => {
                denied.note(cx.id, cx.shared);
                let code = match denied {
                    // Not TokenExpired: an SDK that is told so here gives up, and one whose time is over subscribes again.
                    Denied::Expired => ErrorCode::Expired,
                    denied => denied.to_channel(),
                };
                return refuse(id, code, frame);
            }
        };
        let Grant { term, says } = grant;
        self.subscriptions.renew(channel, term.until_ms, says.info);
        self.is_hurried = true;
        let ttl_s = term.ttl_s(cx.shared.now);
        let result = SubRefreshResult {
            expires: ttl_s.is_some(),
            ttl_s: ttl_s.unwrap_or(0),
        };
        frame.reply(id, Outcome::SubRefresh(result));
        Done::Yes
    }

    /// Ends the subscriptions whose tokens are over; clients ask for new ones and subscribe again. One that a back end
    /// has made ends the session, since the client can't.
    pub(super) fn end_expired(&mut self, frame: &mut Frame, cx: &mut Context<'_>) -> Flow {
        let now_ms = cx.shared.now.wall_ms;
        let is_due = |due_ms: u64| now_ms >= due_ms;
        if !self.subscriptions.due_ms.is_some_and(is_due) {
            return Flow::GoOn;
        }
        let is_over = |expires_ms: u64| now_ms >= expires_ms.saturating_add(GRACE_MS);
        let awaited = self.channel_awaited();
        let all = self.subscriptions.all.iter();
        let expired =
            all.filter(|one| one.expires_ms.is_some_and(is_over) && Some(&*one.channel) != awaited);
        if expired.clone().any(|one| one.is_given) {
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
        Flow::GoOn
    }
}

/// Subscribes a session; what it joins, if the channel's home is here.
pub(super) fn join(
    channel: ChannelName<'_>,
    ticket: Ticket,
    joining: &SubscribeOptions,
    cx: &mut Context<'_>,
) -> Result<Option<Option<Box<Joined>>>, ErrorCode> {
    let (hub, ports) = (&mut cx.shared.hub, &mut cx.shared.ports);
    match hub.subscribe(cx.id, channel, ticket, joining, ports) {
        Ok(veche_hub::Outcome::Done(joined)) => Ok(Some(joined)),
        Ok(veche_hub::Outcome::Pending) => Ok(None),
        Err(SubscribeError::Already) => Err(ErrorCode::AlreadySubscribed),
        Err(SubscribeError::Stale) => Err(ErrorCode::Internal),
        Err(SubscribeError::Full) => Err(ErrorCode::LimitExceeded),
    }
}
