//! Applications for tests. They follow commands in messages and queries, record every call, and assert that calls
//! come in the order that the trait `Apps` promises.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

use veche_frontends::app::{
    AbandonReason, AppAnswer, AppBody, AppId, AppProgress, AppResponse, Apps, HandshakeDecision,
    MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::outbox::SendResult;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{Context, RenewError, WaitReason};
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::http::Status;
use veche_proto::websocket::MessageKind;
use veche_worker::AppHost;

use super::{Peer, World};

/// The application that follows commands and records calls.
pub const SCRIPTED: AppId = AppId(0);
/// The application that echoes every message and records nothing.
pub const ECHOING: AppId = AppId(1);
/// An application like [`SCRIPTED`] that also decides on handshakes.
pub const DECIDING: AppId = AppId(2);

/// The id that is recorded for calls without a connection.
const NO_CONNECTION: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// A recorded call of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppCall {
    /// The decision on a handshake was requested; the text has the path, the user and the parameters.
    Handshake(String),
    Opened(String),
    /// An outbound connection was opened (with the application's number for it) or failed (with the
    /// reason).
    Dialed(Result<u64, String>),
    Message(MessageKind, Vec<u8>),
    /// The application sent messages until the outbox was not ready for more. Contains the number of messages and the
    /// result of the last send.
    Flooded(usize, SendResult),
    Drained,
    Answered(Ticket),
    Closed(u16, String),
    /// A request was passed; the text has the method, path, user, parameters and body.
    Request(String),
    /// The outbox has room for more parts of a response.
    Written,
    Gone,
    /// A response is no longer needed, because the application exceeded its time limit.
    TooLate,
}

/// Returns the call for a text message with this content.
pub fn app_message(text: &str) -> AppCall {
    AppCall::Message(MessageKind::Text, text.as_bytes().to_vec())
}

pub fn closed(code: u16, reason: &str) -> AppCall {
    AppCall::Closed(code, reason.to_owned())
}

pub fn opened(what: &str) -> AppCall {
    AppCall::Opened(what.to_owned())
}

/// The state of a connection id, according to the calls so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Judged,
    Accepted,
    Open,
    Waiting,
    /// A message was passed while the handler was suspended. This is permitted only right before the end of the
    /// session.
    Ending,
    Asked,
}

#[derive(Default)]
pub struct Record {
    pub calls: Vec<(ConnectionId, AppCall)>,
    pub turns: u64,
    /// Results of token renewals by applications.
    pub renewed: Vec<Result<Option<u64>, RenewError>>,
    /// Hook requests of sessions to applications.
    pub asked: Vec<HookRequest>,
    standing: BTreeMap<(u32, u32), Standing>,
}

impl Record {
    fn stand(&mut self, id: ConnectionId, from: &[Option<Standing>], to: Option<Standing>) {
        let key = (id.index, id.generation);
        let was = self.standing.remove(&key);
        assert!(
            from.contains(&was),
            "{id:?} was {was:?} before {to:?}: {:?}",
            self.calls
        );
        if let Some(to) = to {
            self.standing.insert(key, to);
        }
    }

    fn progress(&mut self, id: ConnectionId, progress: AppProgress) -> AppProgress {
        if progress == AppProgress::Suspended {
            self.standing
                .insert((id.index, id.generation), Standing::Waiting);
        }
        progress
    }

    /// Asserts that no connection is in progress.
    pub fn check_empty(&self) {
        assert_eq!(self.standing, BTreeMap::new());
    }
}

/// The applications of one worker.
pub struct TestApps(pub Rc<RefCell<Record>>);

fn described(request: &RequestView<'_>) -> String {
    let mut what = request.head.path.clone().into_owned();
    if let Some(user) = request.user {
        what += &format!(" user={user}");
    }
    for (name, value) in request.params.iter() {
        what += &format!(" {name}={value}");
    }
    what
}

fn response(status: u16, headers: &[(&str, &str)], body: &str) -> AppResponse {
    let headers = headers.iter();
    AppResponse {
        status: Status(status),
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: AppBody::Bytes(body.as_bytes().to_vec()),
    }
}

/// Returns the answer to a request: a response with this body.
pub fn app_response(body: &str) -> AppAnswer {
    AppAnswer::Response(response(200, &[("Content-Type", "text/plain")], body))
}

/// Returns the decision that `?decision=…` selects.
pub fn handshake_decision(name: &str) -> HandshakeDecision {
    let accept = |user: Option<&str>, protocol: Option<&str>| HandshakeDecision::Accept {
        user: user.map(str::to_owned),
        protocol: protocol.map(str::to_owned),
    };
    match name {
        "user" => accept(Some("hooked"), None),
        "bad-user" => accept(Some("a\nb"), None),
        "protocol" => accept(None, Some("b")),
        "bad-protocol" => accept(None, Some("never offered")),
        "refuse" => HandshakeDecision::Refuse(response(403, &[("X-Why", "full")], "no room\n")),
        "redirect" => HandshakeDecision::Refuse(response(302, &[("Location", "/login")], "")),
        "bad-header" => HandshakeDecision::Refuse(response(403, &[("X-Why", "a\r\nb: c")], "")),
        "bad-status" => HandshakeDecision::Refuse(response(101, &[], "")),
        _ => accept(None, None),
    }
}

impl Apps for TestApps {
    fn has_handshake(&self, app: AppId) -> bool {
        app == DECIDING
    }

    fn handshake(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision> {
        assert_eq!(app, DECIDING);
        let mut record = self.0.borrow_mut();
        record
            .calls
            .push((id, AppCall::Handshake(described(request))));
        let wanted = request.head.query("decision").unwrap_or_default();
        if wanted == "later" {
            record.stand(id, &[None], Some(Standing::Judged));
            return MaybeDeferred::Deferred;
        }
        let decision = handshake_decision(&wanted);
        let accepted = matches!(decision, HandshakeDecision::Accept { .. });
        record.stand(id, &[None], accepted.then_some(Standing::Accepted));
        MaybeDeferred::Ready(decision)
    }

    fn opened(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> AppProgress {
        assert!(request.body.is_empty() && shared.apps.is_none());
        if app == ECHOING {
            return AppProgress::Done;
        }
        let mut record = self.0.borrow_mut();
        record.calls.push((id, AppCall::Opened(described(request))));
        let from = if app == DECIDING {
            Some(Standing::Accepted)
        } else {
            None
        };
        record.stand(id, &[from], Some(Standing::Open));
        match request.head.query("open").as_deref() {
            Some("say") => {
                shared
                    .requests
                    .outboxes
                    .send(id, MessageKind::Text, b"hello");
            }
            Some("close") => shared
                .requests
                .disconnects
                .push((id, 4001, "not today".to_owned())),
            Some("wait") => return record.progress(id, AppProgress::Suspended),
            _ => {}
        }
        AppProgress::Done
    }

    fn message(
        &mut self,
        app: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> AppProgress {
        if app == ECHOING {
            shared.requests.outboxes.send(id, kind, data);
            return AppProgress::Done;
        }
        let mut record = self.0.borrow_mut();
        record
            .calls
            .push((id, AppCall::Message(kind, data.to_vec())));
        let key = (id.index, id.generation);
        match record.standing.get(&key) {
            Some(Standing::Open) => {}
            Some(Standing::Waiting | Standing::Ending) => {
                assert_eq!(
                    shared.requests.outboxes.send(id, kind, b"too late"),
                    SendResult::Refused,
                    "a message while its handler waits"
                );
                record.standing.insert(key, Standing::Ending);
                return AppProgress::Suspended;
            }
            other => panic!("a message where it stands at {other:?}"),
        }
        let text = String::from_utf8_lossy(data).into_owned();
        let mut words = text.split(' ');
        match words.next().unwrap_or_default() {
            "wait" => return record.progress(id, AppProgress::Suspended),
            "say" => {
                shared
                    .requests
                    .outboxes
                    .send(id, MessageKind::Text, &data[4..]);
            }
            "close" => {
                let code = words
                    .next()
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(4000);
                shared.requests.disconnects.push((
                    id,
                    code,
                    words.next().unwrap_or_default().to_owned(),
                ));
            }
            "flood" => {
                let stop: SendResult = match words.next() {
                    Some("on") => SendResult::Refused,
                    _ => SendResult::Full,
                };
                let mut count = 0;
                let sending = loop {
                    let sending = shared.requests.outboxes.send(id, kind, &[b'x'; 1000]);
                    count += usize::from(sending != SendResult::Refused);
                    if sending == stop || sending == SendResult::Refused {
                        break sending;
                    }
                };
                record.calls.push((id, AppCall::Flooded(count, sending)));
            }
            _ => {}
        }
        AppProgress::Done
    }

    fn drained(&mut self, _: AppId, id: ConnectionId, _: &mut Context) {
        let mut record = self.0.borrow_mut();
        record.calls.push((id, AppCall::Drained));
        let standing = record.standing.get(&(id.index, id.generation));
        assert!(
            matches!(standing, Some(Standing::Open | Standing::Waiting)),
            "{standing:?}"
        );
    }

    fn answered(
        &mut self,
        _: AppId,
        id: ConnectionId,
        ticket: Ticket,
        _: HubReply,
        _: &mut Context,
    ) {
        self.0
            .borrow_mut()
            .calls
            .push((id, AppCall::Answered(ticket)));
    }

    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        let sending = shared
            .requests
            .outboxes
            .send(id, MessageKind::Text, b"too late");
        assert_eq!(sending, SendResult::Refused);
        if app == ECHOING {
            return;
        }
        let mut record = self.0.borrow_mut();
        record
            .calls
            .push((id, AppCall::Closed(code, reason.to_owned())));
        let from = [Standing::Open, Standing::Waiting, Standing::Ending].map(Some);
        record.stand(id, &from, None);
    }

    fn request(
        &mut self,
        _: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        assert!(shared.apps.is_none());
        let body = String::from_utf8_lossy(request.body);
        let what = format!(
            "{} {} {body}",
            request.head.method.as_str(),
            described(request)
        );
        let what = what.trim_end().to_owned();
        let mut record = self.0.borrow_mut();
        record.calls.push((id, AppCall::Request(what.clone())));
        let last = request.head.path.rsplit('/').next().unwrap_or_default();
        let later = last == "later";
        record.stand(id, &[None], later.then_some(Standing::Asked));
        MaybeDeferred::Ready(match last {
            "later" => return MaybeDeferred::Deferred,
            "204" => response(204, &[("X-A", "b")], "left out"),
            "304" => response(304, &[("ETag", "\"a\"")], "left out"),
            "500" => response(500, &[], "our own"),
            "bad-name" => response(200, &[("a b", "c")], "secret"),
            "bad-value" => response(200, &[("A", "b\r\nC: d")], "secret"),
            "framing" => response(200, &[("content-length", "3")], "secret"),
            "bad-status" => response(101, &[], "secret"),
            "no-status" => response(0, &[], "secret"),
            _ => response(200, &[("Content-Type", "text/plain"), ("X-A", "b")], &what),
        })
    }

    fn client_opened(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        _: Option<&str>,
        shared: &mut Context,
    ) -> Option<()> {
        assert!(shared.apps.is_none());
        if app == ECHOING {
            return Some(());
        }
        let mut record = self.0.borrow_mut();
        record.calls.push((id, AppCall::Dialed(Ok(token))));
        // If the application's number of the connection is even, the connection is no longer needed when it opens.
        (token % 2 == 1).then(|| record.stand(id, &[None], Some(Standing::Open)))
    }

    fn client_failed(&mut self, _: AppId, token: u64, why: &str, shared: &mut Context) {
        assert!(shared.apps.is_none());
        let mut record = self.0.borrow_mut();
        let failed = AppCall::Dialed(Err(format!("{token}: {why}")));
        record.calls.push((NO_CONNECTION, failed));
    }

    fn written(&mut self, _: AppId, id: ConnectionId, shared: &mut Context) {
        assert!(shared.apps.is_none());
        self.0.borrow_mut().calls.push((id, AppCall::Written));
    }

    fn abandoned(&mut self, _: AppId, id: ConnectionId, why: AbandonReason, shared: &mut Context) {
        assert!(shared.apps.is_none());
        let mut record = self.0.borrow_mut();
        let call = match why {
            AbandonReason::Disconnected => AppCall::Gone,
            AbandonReason::TimedOut => AppCall::TooLate,
        };
        record.calls.push((id, call));
        // `None`: an application that does not decide on handshakes has had no call about an abandoned handshake.
        let from = [
            None,
            Some(Standing::Judged),
            Some(Standing::Accepted),
            Some(Standing::Asked),
        ];
        record.stand(id, &from, None);
    }

    fn turn(&mut self, shared: &mut Context) {
        assert!(shared.apps.is_none());
        self.0.borrow_mut().turns += 1;
    }

    fn deadline_ms(&self) -> u64 {
        u64::MAX
    }
}

impl AppHost for TestApps {
    type Message = Infallible;

    fn handle_message(&mut self, message: Infallible, _: &mut Context) {
        match message {}
    }

    fn decide_hook(&mut self, _: AppId, _: u64, request: &HookRequest, _: &mut Context) {
        self.0.borrow_mut().asked.push(request.clone());
    }

    fn handle_renewed(
        &mut self,
        _: &TokenRenewal,
        result: Result<Option<u64>, RenewError>,
        _: &mut Context,
    ) {
        self.0.borrow_mut().renewed.push(result);
    }
}

impl World {
    /// Returns the calls about a client since the last call of this method.
    pub fn app_calls(&mut self, peer: Peer) -> Vec<AppCall> {
        let (worker, id) = self.place(peer);
        let mut record = self.workers[worker].record.borrow_mut();
        let calls = std::mem::take(&mut record.calls);
        let (its, others) = calls.into_iter().partition(|(of, _)| *of == id);
        record.calls = others;
        let its: Vec<(ConnectionId, AppCall)> = its;
        its.into_iter().map(|(_, call)| call).collect()
    }

    /// Returns the failures of outbound connections since the last call of this method.
    pub fn failures(&mut self, worker: usize) -> Vec<String> {
        let mut record = self.workers[worker].record.borrow_mut();
        let calls = std::mem::take(&mut record.calls);
        let (failed, others) = calls.into_iter().partition(|(of, _)| *of == NO_CONNECTION);
        record.calls = others;
        let failed: Vec<(ConnectionId, AppCall)> = failed;
        let words = failed.into_iter().filter_map(|(_, call)| match call {
            AppCall::Dialed(Err(words)) => Some(words),
            _ => None,
        });
        words.collect()
    }

    /// Ends the wait of this client's suspended handler; returns whether there was one.
    pub fn end_wait(&mut self, peer: Peer) -> bool {
        let (worker, id) = self.place(peer);
        let worker = &mut self.workers[worker];
        let key = (id.index, id.generation);
        let mut record = worker.record.borrow_mut();
        let waited = record.standing.get(&key) == Some(&Standing::Waiting);
        if waited {
            record.standing.insert(key, Standing::Open);
            drop(record);
            worker.shared_mut().app_ready.push(id);
        }
        waited
    }

    /// Answers this client's pending request with `name` as the text, or its pending handshake with the decision that
    /// is called `name`. Returns whether a request or handshake was pending.
    pub fn answer(&mut self, peer: Peer, name: &str) -> bool {
        let (worker, id) = self.place(peer);
        let worker = &mut self.workers[worker];
        let key = (id.index, id.generation);
        let mut record = worker.record.borrow_mut();
        let (answer, standing) = match record.standing.get(&key) {
            Some(Standing::Judged) => {
                let decision = handshake_decision(name);
                let accepted = matches!(decision, HandshakeDecision::Accept { .. });
                (
                    AppAnswer::Handshake(decision),
                    accepted.then_some(Standing::Accepted),
                )
            }
            Some(Standing::Asked) => (app_response(name), None),
            _ => return false,
        };
        record.standing.remove(&key);
        record
            .standing
            .extend(standing.map(|standing| (key, standing)));
        drop(record);
        let answers = &mut worker.shared_mut().requests.app_answers;
        answers.push_back((id, answer));
        true
    }

    /// Passes the head, a part or the end of an application's response to a client.
    pub fn write(&mut self, peer: Peer, answer: AppAnswer) {
        let (worker, id) = self.place(peer);
        let worker = &mut self.workers[worker];
        if matches!(answer, AppAnswer::End { .. }) {
            let key = (id.index, id.generation);
            worker.record.borrow_mut().standing.remove(&key);
        }
        let answers = &mut worker.shared_mut().requests.app_answers;
        answers.push_back((id, answer));
        self.settle();
    }

    /// Returns whether this client's input waits for an application.
    pub fn waits_for_app(&self, peer: Peer) -> bool {
        self.blocked(peer) == Some(WaitReason::App)
    }

    /// Returns the id that the server uses for a client's connection.
    pub fn id(&self, peer: Peer) -> ConnectionId {
        self.place(peer).1
    }

    fn place(&self, Peer(peer): Peer) -> (usize, ConnectionId) {
        (self.clients[peer].worker, self.clients[peer].id)
    }
}
