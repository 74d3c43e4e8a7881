//! Access log entries: one for each HTTP request and each WebSocket session.
//!
//! Whether a request or session is part of the sample is decided when it begins. Only sampled
//! requests and sessions cost anything: one small allocation until they end. An entry is complete
//! when its request is answered or its session has ended. The worker then takes the entry; writing
//! it to the log is not part of this module. **A query is never part of an entry**, since it may
//! contain tokens.

use std::net::IpAddr;

use veche_hub::ConnectionId;
use veche_proto::http::{Head, HttpVersion};
use veche_types::Now;
use veche_types::codes::CloseCode;

/// Maximum length in bytes of each text in an entry; longer texts are truncated.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Maximum number of slow events that are recorded per turn.
const SLOW_MAX: usize = 64;

/// The status in the entry of a request whose client disconnected before the response. No client receives it.
pub const CLIENT_LEFT: u16 = 499;

/// Determines which requests and sessions get an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessLogFilter {
    /// The fraction of requests and sessions that get an entry, from 0 to 1.
    pub sample_rate: f64,
    /// Whether requests on internal listeners get entries too.
    pub internal: bool,
}

/// The entry of an answered request or an ended session.
#[derive(Clone, Debug, Default)]
pub struct AccessLogEntry {
    /// The IP address of the client.
    pub client: Option<IpAddr>,
    /// The time at which the request or session ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The requested path without its query; empty if the request could not be parsed.
    pub path: Box<str>,
    /// The request method, such as `GET`.
    pub method: Box<str>,
    /// The host name that the request addressed.
    pub host: Box<str>,
    /// The value of `User-Agent`.
    pub user_agent: Box<str>,
    /// The value of `Referer` without its query.
    pub referer: Box<str>,
    /// Whether the request was HTTP/1.0.
    pub is_http10: bool,
    /// The user, if any.
    pub user: Option<Box<str>>,
    /// The route of the request, if any.
    pub route: Option<Box<str>>,
    /// The status of the response: 101 for a WebSocket session, [`CLIENT_LEFT`] if the client disconnected first.
    pub status: u16,
    /// Bytes of the request; for a session, of the payloads received.
    pub bytes_in: u64,
    /// Bytes of the response; for a session, of the payloads sent.
    pub bytes_out: u64,
    /// The messages of the session; `None` for a request.
    pub session: Option<SessionSummary>,
    /// The monotonic time in milliseconds at which the request or session began.
    began_ms: u64,
    /// Bytes of earlier responses that were in the outbox when the request or session began.
    before: u64,
    /// Bytes sent from the outbox since the request or session began.
    left: u64,
}

/// An event whose duration reached the threshold of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEvent {
    /// The kind of event.
    pub kind: SlowEventKind,
    /// The subject of the event. For a turn: its numbers of events and messages. For a handler: its app and name. For a
    /// request: its method and path. For a slow consumer: the client.
    pub subject: Box<str>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
}

/// The kind of a slow event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowEventKind {
    /// A turn of the worker's loop, during which all connections of the worker waited.
    Turn,
    /// A call of an application handler that did not suspend; all connections of the worker waited for its end.
    Handler,
    /// A request that an application answered; suspensions of its handler are included.
    Request,
    /// A client that reads too slowly. The duration is the time since the client's last message.
    Consumer,
}

impl SlowEventKind {
    /// All kinds with their names in the slow log.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Turn, "turn"),
        (Self::Handler, "handler"),
        (Self::Request, "request"),
        (Self::Consumer, "consumer"),
    ];

    /// Returns the minimum duration, in milliseconds, at which an event of this kind is recorded.
    #[must_use]
    pub fn threshold_ms(self) -> u64 {
        match self {
            Self::Turn => 5,
            Self::Handler => 4,
            Self::Request => 100,
            // Slow consumers are recognised by the size of their outbox, so each is recorded.
            Self::Consumer => 0,
        }
    }
}

/// A summary of the messages of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// Number of messages from the client.
    pub messages_in: u64,
    /// Number of messages to the client.
    pub messages_out: u64,
    /// The close code of the Close frame that was sent first, by either side; 1006 if the session ended without a
    /// Close frame. `None` until the code is known.
    pub close_code: Option<u16>,
}

/// The access log entries and slow events of one worker.
#[derive(Debug, Default)]
pub struct AccessLogBuffer {
    filter: Option<AccessLogFilter>,
    random: u64,
    now: Now,
    /// Entries in progress by connection index. The list grows to the highest index that ever had
    /// an entry.
    open: Vec<Option<Box<AccessLogEntry>>>,
    done: Vec<AccessLogEntry>,
    slow: Vec<SlowEvent>,
}

impl AccessLogBuffer {
    /// Replaces the filter for requests and sessions that begin from now on. If it is `None`, they get no entry.
    /// `seed` initialises the sampling.
    pub fn set_filter(&mut self, choice: Option<AccessLogFilter>, seed: u64) {
        (self.filter, self.random) = (choice, seed);
    }

    /// Sets the time of the turn.
    pub(crate) fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Moves the complete entries to the end of `into`.
    pub fn take_entries(&mut self, into: &mut Vec<AccessLogEntry>) {
        into.append(&mut self.done);
    }

    /// Records an event if its duration reaches the threshold of its kind.
    pub fn record_duration(
        &mut self,
        kind: SlowEventKind,
        lasted_ms: u64,
        what: impl FnOnce() -> String,
    ) {
        if lasted_ms >= kind.threshold_ms() && self.slow.len() < SLOW_MAX {
            let what = truncate(&what());
            self.slow.push(SlowEvent {
                kind,
                subject: what,
                duration_ms: lasted_ms,
            });
        }
    }

    /// Takes the slow events that were recorded since the last call.
    #[inline]
    pub fn take_slow_events(&mut self) -> Vec<SlowEvent> {
        std::mem::take(&mut self.slow)
    }

    /// Begins the entry of a request if it is sampled; only then is the closure `request` called. `queued` is the number
    /// of bytes of earlier responses in the outbox.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        id: ConnectionId,
        internal: bool,
        queued: usize,
        request: impl FnOnce() -> AccessLogEntry,
    ) {
        if self.filter.is_some() {
            self.consider(id, internal, queued, request);
        }
    }

    fn consider(
        &mut self,
        id: ConnectionId,
        internal: bool,
        queued: usize,
        request: impl FnOnce() -> AccessLogEntry,
    ) {
        let choice = self.filter.unwrap_or(AccessLogFilter {
            sample_rate: 0.0,
            internal,
        });
        if internal && !choice.internal || !self.is_sampled(choice.sample_rate) {
            return;
        }
        let index = id.index as usize;
        if index >= self.open.len() {
            self.open.resize_with(index + 1, || None);
        }
        let mut entry = request();
        entry.began_ms = self.now.mono_ms;
        entry.before = queued as u64;
        self.open[index] = Some(Box::new(entry));
    }

    /// Decides at random whether a request gets an entry. SplitMix64 is random enough, and its state
    /// is a single number.
    fn is_sampled(&mut self, share: f64) -> bool {
        if share >= 1.0 {
            return true;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut sample = self.random;
        sample = (sample ^ (sample >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sample = (sample ^ (sample >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sample ^= sample >> 31;
        (sample >> 11) as f64 / (1_u64 << 53) as f64 <= share
    }

    #[inline]
    fn entry(&mut self, id: ConnectionId) -> Option<&mut AccessLogEntry> {
        self.open.get_mut(id.index as usize)?.as_deref_mut()
    }

    pub(crate) fn set_route(&mut self, id: ConnectionId, path: &str) {
        if let Some(entry) = self.entry(id) {
            entry.route = Some(truncate(path));
        }
    }

    pub(crate) fn set_user(&mut self, id: ConnectionId, user: Option<&str>) {
        if let Some(entry) = self.entry(id) {
            entry.user = user.map(truncate);
        }
    }

    /// Records the status of the response to a request that could not be parsed.
    pub(crate) fn unreadable_request(&mut self, id: ConnectionId, status: u16) {
        if self.entry(id).is_none() {
            self.begin(id, false, 0, AccessLogEntry::default);
        }
        self.response_started(id, status);
    }

    /// Records the response's status when its head is written.
    pub(crate) fn response_started(&mut self, id: ConnectionId, status: u16) {
        if let Some(entry) = self.entry(id) {
            entry.status = status;
        }
    }

    /// Adds bytes of the request's body to the entry.
    pub(crate) fn body_received(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(entry) = self.entry(id) {
            entry.bytes_in += bytes as u64;
        }
    }

    /// Counts bytes that were sent from the outbox.
    #[inline]
    pub(crate) fn bytes_sent(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(entry) = self.entry(id) {
            entry.left += bytes as u64;
        }
    }

    /// Turns the entry of a request into that of the session that it opened.
    pub(crate) fn session_opened(&mut self, id: ConnectionId) {
        if let Some(entry) = self.entry(id) {
            entry.session = Some(SessionSummary::default());
            entry.bytes_in = 0;
        }
    }

    /// Counts a client's message and its payload bytes.
    #[inline]
    pub(crate) fn message_received(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(entry) = self.entry(id)
            && let Some(session) = &mut entry.session
        {
            session.messages_in += 1;
            entry.bytes_in += bytes as u64;
        }
    }

    /// Counts a message to the client and its payload bytes.
    #[inline]
    pub(crate) fn message_sent(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(entry) = self.entry(id)
            && let Some(session) = &mut entry.session
        {
            session.messages_out += 1;
            entry.bytes_out += bytes as u64;
        }
    }

    /// Counts further bytes of a message to the client. The message itself was counted when its first part was written.
    pub(crate) fn message_continued(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(entry) = self.entry(id)
            && entry.session.is_some()
        {
            entry.bytes_out += bytes as u64;
        }
    }

    /// Records the close code of a Close frame that either side has sent. Only the first code is kept.
    pub(crate) fn closed(&mut self, id: ConnectionId, code: Option<u16>) {
        if let Some(entry) = self.entry(id)
            && let Some(session) = &mut entry.session
        {
            session
                .close_code
                .get_or_insert(code.unwrap_or(CloseCode::NoCode.code()));
        }
    }

    /// Completes an entry when its request is answered or its session has ended. `queued` is the number of bytes that
    /// are still in the outbox.
    #[inline]
    pub(crate) fn end(&mut self, id: ConnectionId, client: IpAddr, queued: usize) {
        if let Some(open) = self.open.get_mut(id.index as usize)
            && let Some(entry) = open.take()
        {
            self.complete(*entry, client, queued);
        }
    }

    fn complete(&mut self, mut entry: AccessLogEntry, client: IpAddr, queued: usize) {
        entry.client.get_or_insert(client);
        entry.ended_ms = self.now.wall_ms;
        entry.duration_ms = self.now.mono_ms.saturating_sub(entry.began_ms);
        match &mut entry.session {
            Some(session) => {
                session.close_code.get_or_insert(CloseCode::Abnormal.code());
            }
            None => {
                let written = entry.left + queued as u64;
                entry.bytes_out = written.saturating_sub(entry.before);
            }
        }
        if entry.status == 0 {
            entry.status = CLIENT_LEFT;
        }
        self.done.push(entry);
    }
}

impl AccessLogEntry {
    /// Creates the entry of a request whose head has `length` bytes.
    pub(crate) fn of(head: &Head<'_>, length: usize, client: IpAddr) -> Self {
        let header = |name| head.header(name).map(truncate).unwrap_or_default();
        Self {
            client: Some(client),
            path: truncate(&head.path),
            method: truncate(head.method.as_str()),
            host: truncate(head.host),
            user_agent: header("user-agent"),
            referer: head
                .header("referer")
                .map(|referer| truncate(without_query(referer)))
                .unwrap_or_default(),
            is_http10: head.version == HttpVersion::Http10,
            bytes_in: length as u64,
            ..Self::default()
        }
    }
}

/// Truncates a text to [`TEXT_BYTES_MAX`] bytes.
fn truncate(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into()
}

fn without_query(url: &str) -> &str {
    &url[..url.find(['?', '#']).unwrap_or(url.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ConnectionId = ConnectionId {
        index: 3,
        generation: 0,
    };

    fn access_log(share: f64, internal: bool) -> AccessLogBuffer {
        let mut access_log = AccessLogBuffer::default();
        access_log.set_filter(
            Some(AccessLogFilter {
                sample_rate: share,
                internal,
            }),
            7,
        );
        access_log
    }

    fn done(access_log: &mut AccessLogBuffer) -> Vec<AccessLogEntry> {
        let mut done = Vec::new();
        access_log.take_entries(&mut done);
        done
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_share_is_chosen_and_nothing_when_it_is_off() {
        let mut access_log = AccessLogBuffer::default();
        for (share, expected) in [
            (None, 0..=0),
            (Some(1.0), 10_000..=10_000),
            (Some(0.1), 900..=1_100),
        ] {
            let choice = share.map(|share| AccessLogFilter {
                sample_rate: share,
                internal: false,
            });
            access_log.set_filter(choice, 1);
            for _ in 0..10_000 {
                access_log.begin(ID, false, 0, AccessLogEntry::default);
                access_log.end(ID, CLIENT, 0);
            }
            let count = done(&mut access_log).len();
            assert!(expected.contains(&count), "{share:?}: {count}");
        }
    }

    #[test]
    fn internal_requests_only_where_they_are_wanted() {
        for (internal, expected) in [(false, 0), (true, 1)] {
            let mut access_log = access_log(1.0, internal);
            access_log.begin(ID, true, 0, AccessLogEntry::default);
            access_log.end(ID, CLIENT, 0);
            assert_eq!(done(&mut access_log).len(), expected);
        }
    }

    #[test]
    fn a_response_counts_the_bytes_since_its_start() {
        let mut access_log = access_log(1.0, false);
        // 10 bytes of the previous response are unsent. Then 40 bytes are sent, and 60 are unsent
        // at the end.
        access_log.begin(ID, false, 10, AccessLogEntry::default);
        access_log.bytes_sent(ID, 40);
        access_log.response_started(ID, 200);
        access_log.end(ID, CLIENT, 60);
        let entry = done(&mut access_log).remove(0);
        assert_eq!((entry.bytes_out, entry.status), (90, 200));
        assert_eq!(entry.session, None);
    }

    #[test]
    fn a_session_counts_messages_and_keeps_the_first_code() {
        let mut access_log = access_log(1.0, false);
        access_log.begin(ID, false, 0, AccessLogEntry::default);
        access_log.response_started(ID, 101);
        access_log.session_opened(ID);
        access_log.bytes_sent(ID, 150);
        access_log.message_received(ID, 5);
        access_log.message_sent(ID, 7);
        access_log.message_sent(ID, 8);
        access_log.message_continued(ID, 9);
        access_log.closed(ID, Some(4000));
        access_log.closed(ID, Some(1000));
        access_log.end(ID, CLIENT, 0);
        access_log.end(ID, CLIENT, 0);
        let mut entries = done(&mut access_log);
        assert_eq!(entries.len(), 1);
        let entry = entries.remove(0);
        let expected = SessionSummary {
            messages_in: 1,
            messages_out: 2,
            close_code: Some(4000),
        };
        assert_eq!(entry.session, Some(expected));
        assert_eq!(
            (entry.bytes_in, entry.bytes_out, entry.status),
            (5, 24, 101)
        );
    }

    #[test]
    fn entries_mark_clients_that_left_without_a_response() {
        let mut access_log = access_log(1.0, false);
        access_log.begin(ID, false, 0, AccessLogEntry::default);
        access_log.end(ID, CLIENT, 0);
        assert_eq!(done(&mut access_log)[0].status, CLIENT_LEFT);
        access_log.begin(ID, false, 0, AccessLogEntry::default);
        access_log.response_started(ID, 101);
        access_log.session_opened(ID);
        access_log.end(ID, CLIENT, 0);
        let session = done(&mut access_log)[0]
            .session
            .expect("an entry of a session");
        assert_eq!(session.close_code, Some(1006));
    }

    #[test]
    fn a_query_is_never_kept() {
        let text = "GET /chat?token=secret HTTP/1.1\r\nHost: a\r\nReferer: https://a/b?key=secret#x\r\n\r\n";
        let head = veche_proto::http::parse_head(text.as_bytes(), &Default::default());
        let entry = AccessLogEntry::of(&head.expect("a head"), text.len(), CLIENT);
        assert_eq!((&*entry.path, &*entry.referer), ("/chat", "https://a/b"));
        assert!(!format!("{entry:?}").contains("secret"));
    }

    #[test]
    fn lots_are_those_of_splitmix64() {
        let samples = [
            0xe220_a839_7b1d_cdaf_u64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        let part = |sample: u64| (sample >> 11) as f64 / (1_u64 << 53) as f64;
        let (mut exact, mut below) = (AccessLogBuffer::default(), AccessLogBuffer::default());
        for sample in samples {
            assert!(exact.is_sampled(part(sample)));
            assert!(!below.is_sampled(part(sample) - 1.0 / (1_u64 << 53) as f64));
        }
        assert!(exact.is_sampled(1.0) && !exact.is_sampled(0.0));
    }

    #[test]
    fn an_entry_has_the_request_and_its_duration() {
        let text = "GET /a HTTP/1.0\r\nHost: h\r\nUser-Agent: ua\r\nReferer: r#f\r\n\r\n";
        let head =
            veche_proto::http::parse_head(text.as_bytes(), &Default::default()).expect("a head");
        let entry = AccessLogEntry::of(&head, text.len(), CLIENT);
        assert!(entry.is_http10);
        assert_eq!((&*entry.method, &*entry.host), ("GET", "h"));
        assert_eq!((&*entry.user_agent, &*entry.referer), ("ua", "r"));
        assert_eq!(
            (entry.client, entry.bytes_in),
            (Some(CLIENT), text.len() as u64)
        );
        let mut access_log = access_log(1.0, false);
        let at = |mono_ms| Now {
            mono_ms,
            wall_ms: mono_ms + 1_000_000,
        };
        access_log.set_now(at(5_000));
        access_log.begin(ID, false, 0, || entry);
        access_log.body_received(ID, 30);
        access_log.set_user(ID, Some("ann"));
        access_log.set_now(at(5_070));
        access_log.response_started(ID, 404);
        access_log.end(ID, CLIENT, 0);
        let entry = done(&mut access_log).remove(0);
        assert_eq!((entry.duration_ms, entry.ended_ms), (70, 1_005_070));
        assert_eq!((entry.status, entry.user.as_deref()), (404, Some("ann")));
        assert_eq!(entry.bytes_in, text.len() as u64 + 30);
    }

    #[test]
    fn what_could_not_be_read_gets_an_entry_of_its_own_or_ends_the_open_one() {
        let mut access_log = access_log(1.0, false);
        access_log.unreadable_request(ID, 400);
        access_log.end(ID, CLIENT, 9);
        let entry = done(&mut access_log).remove(0);
        assert_eq!((entry.status, &*entry.path, entry.bytes_out), (400, "", 9));
        assert_eq!(entry.client, Some(CLIENT));
        access_log.begin(ID, false, 0, || AccessLogEntry {
            path: "/a".into(),
            ..AccessLogEntry::default()
        });
        access_log.unreadable_request(ID, 413);
        access_log.end(ID, CLIENT, 0);
        let entry = done(&mut access_log).remove(0);
        assert_eq!((entry.status, &*entry.path), (413, "/a"));
    }

    #[test]
    fn a_session_s_bytes_are_those_of_its_messages() {
        let mut access_log = access_log(1.0, false);
        access_log.begin(ID, false, 0, || AccessLogEntry {
            bytes_in: 300,
            ..AccessLogEntry::default()
        });
        access_log.message_received(ID, 7);
        access_log.message_sent(ID, 7);
        access_log.closed(ID, Some(4000));
        access_log.session_opened(ID);
        access_log.message_received(ID, 5);
        access_log.message_received(ID, 6);
        access_log.closed(ID, None);
        access_log.end(ID, CLIENT, 100);
        let entry = done(&mut access_log).remove(0);
        assert_eq!((entry.bytes_in, entry.bytes_out), (11, 0));
        let session = entry.session.expect("an entry of a session");
        assert_eq!((session.messages_in, session.close_code), (2, Some(1005)));
    }

    #[test]
    fn what_took_long_is_noted_from_its_bound_on_and_not_without_end() {
        let mut access_log = AccessLogBuffer::default();
        for (kind, from_ms) in [
            (SlowEventKind::Turn, 5),
            (SlowEventKind::Handler, 4),
            (SlowEventKind::Request, 100),
            (SlowEventKind::Consumer, 0),
        ] {
            if from_ms > 0 {
                access_log.record_duration(kind, from_ms - 1, || unreachable!("it is quick"));
            }
            access_log.record_duration(kind, from_ms, || "x".repeat(TEXT_BYTES_MAX + 1));
            let slow = access_log.take_slow_events();
            assert_eq!(slow.len(), 1);
            assert_eq!((slow[0].kind, slow[0].duration_ms), (kind, from_ms));
            assert_eq!(slow[0].subject.len(), TEXT_BYTES_MAX);
        }
        (0..SLOW_MAX + 9)
            .for_each(|_| access_log.record_duration(SlowEventKind::Turn, 5, String::new));
        assert_eq!(access_log.take_slow_events().len(), SLOW_MAX);
        assert_eq!(access_log.take_slow_events(), []);
    }
}
