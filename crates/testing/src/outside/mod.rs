//! Stubs of external services: calls of applications get fixed responses, or responses of the test's functions.
//!
//! No call leaves the process. A call without a stub fails, and makes the test fail. This module
//! handles calls, stubs and the test's clock. Other modules run the test's functions and implement
//! the WebSocket protocol.

mod http;
mod mysql;
mod redis;
mod stub;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use veche_apps::{AppRecorder, CallExecutor, RecordedEntry};
use veche_calls::redis::{RedisAction, RedisReply};
use veche_calls::{
    Call, CallError, CallErrorKind, CallId, CallOutcome, CallReply, HttpCall, RedisCall,
};
use veche_outbound::password::{self, Cost};
use veche_script::{Dial, Level, Plain};

use super::world::MONO_MS;
use redis::MockSubscriptions;
use stub::{Says, Stub, StubAnswer, StubCall, StubKind};

/// The maximum number of recorded calls of one kind.
const CALLS_MAX: usize = 10_000;

/// The state shared by the test and the applications' worker.
#[derive(Clone)]
pub(super) struct MockServices(Rc<RefCell<MockState>>);

struct MockState {
    now_ms: u64,
    /// The stubs, in order of creation; the most recent stub that matches is used.
    stubs: Vec<Stub>,
    /// Outcomes that have not been delivered.
    outcomes: Vec<(CallId, CallOutcome)>,
    pending: Vec<MockCall>,
    /// Arguments for the test's functions that have not been passed on yet, with the number of their stub.
    asked: VecDeque<(usize, Plain)>,
    receiving: Vec<Receiving>,
    subscriptions: MockSubscriptions,
    /// Remaining parts of streamed bodies.
    bodies: HashMap<u64, VecDeque<Vec<u8>>>,
    /// Requested connections to mocked WebSocket servers, by their assigned address.
    dialed: HashMap<SocketAddr, DialedSocket>,
    made: CallRecord,
    recorder: AppRecorder,
    last_number: u64,
}

/// A call that waits for functions of the test.
struct MockCall {
    id: CallId,
    call: Call,
    /// One part for each query that the call consists of.
    parts: Vec<CallPart>,
    until_ms: u64,
}

enum CallPart {
    Answered(StubAnswer),
    /// Waits for the answer to the query with this number.
    Waits(u64),
}

/// A call that waits for a message of a subscription.
struct Receiving {
    id: CallId,
    subscription: u64,
    until_ms: u64,
}

/// A requested connection to a WebSocket server.
#[derive(Clone, Debug)]
pub(super) struct DialedSocket {
    pub(super) url: String,
    /// The number of the matching stub and its answer; `None` if no stub matches.
    pub(super) server: Option<(usize, Result<Plain, CallError>)>,
}

/// The recorded calls of applications, by kind.
#[derive(Default)]
struct CallRecord {
    requests: VecDeque<Plain>,
    queries: VecDeque<Plain>,
    commands: VecDeque<Plain>,
}

impl MockServices {
    pub(super) fn new(recorder: AppRecorder) -> Self {
        Self(Rc::new(RefCell::new(MockState {
            now_ms: MONO_MS,
            stubs: Vec::new(),
            outcomes: Vec::new(),
            pending: Vec::new(),
            asked: VecDeque::new(),
            receiving: Vec::new(),
            subscriptions: MockSubscriptions::default(),
            bodies: HashMap::new(),
            dialed: HashMap::new(),
            made: CallRecord::default(),
            recorder,
            last_number: 0,
        })))
    }

    /// Adds a stub; returns its number.
    pub(super) fn stub(&self, request: &Plain) -> Result<usize, String> {
        http::check(request)?;
        let mut inner = self.0.borrow_mut();
        inner.stubs.push(Stub::read(request)?);
        Ok(inner.stubs.len() - 1)
    }

    /// Removes and returns the arguments of the next call of a stub's function.
    pub(super) fn take_asked(&self, stub: usize) -> Option<Plain> {
        let mut inner = self.0.borrow_mut();
        let place = inner.asked.iter().position(|(of, _)| *of == stub)?;
        inner.asked.remove(place).map(|(_, call_value)| call_value)
    }

    /// Handles the answer of a test's function.
    pub(super) fn replied(&self, request: &Plain) {
        let number = request.get("call").number().unwrap_or_default() as u64;
        self.0.borrow_mut().replied(number, request);
    }

    /// Returns the recorded calls of one kind.
    pub(super) fn made(&self, kind: &str) -> Vec<Plain> {
        let made = &self.0.borrow().made;
        let list = match kind {
            "queries" => &made.queries,
            "commands" => &made.commands,
            _ => &made.requests,
        };
        list.iter().cloned().collect()
    }

    /// Publishes to mocked Redis subscriptions; returns the number of receivers.
    pub(super) fn publish(&self, channel: &[u8], data: &[u8]) -> usize {
        self.0.borrow_mut().publish(channel, data)
    }

    /// Removes and returns the requested connection to which this address was assigned.
    pub(super) fn dialed(&self, address: SocketAddr) -> Option<DialedSocket> {
        self.0.borrow_mut().dialed.remove(&address)
    }

    pub(super) fn set_now_ms(&self, now_ms: u64) {
        let mut inner = self.0.borrow_mut();
        inner.now_ms = now_ms;
        inner.give_up();
    }

    /// Returns the earliest timeout of an unanswered call, in monotonic milliseconds; `u64::MAX` for never.
    pub(super) fn next_ms(&self) -> u64 {
        let inner = self.0.borrow();
        let pending = inner.pending.iter().map(|pending| pending.until_ms);
        let receiving = inner.receiving.iter().map(|receiving| receiving.until_ms);
        pending.chain(receiving).min().unwrap_or(u64::MAX)
    }
}

impl MockState {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn after(&self, time: Duration) -> u64 {
        let ms = time.as_nanos().div_ceil(1_000_000);
        self.now_ms
            .saturating_add(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Returns the error of a call without a stub, and logs it, so that the test fails even if the application catches
    /// the error.
    fn refuse(&self, kind: CallErrorKind, words: String) -> CallError {
        self.recorder.write(RecordedEntry::Logged {
            level: Level::Error,
            text: words.clone(),
        });
        CallError::new(kind, words)
    }

    fn found(&self, stub_call: &StubCall) -> Option<usize> {
        self.stubs.iter().rposition(|stub| stub.is_of(stub_call))
    }

    /// Finds the stub for a query and starts its answer. A query that succeeds `by_itself` needs no stub.
    fn ask(&mut self, stub_call: StubCall, by_itself: bool) -> CallPart {
        let Some(stub) = self.found(&stub_call) else {
            return CallPart::Answered(self.without_stub(&stub_call, by_itself));
        };
        if let Says::Always(answer) = &self.stubs[stub].says {
            return CallPart::Answered(answer.clone());
        }
        let number = self.number();
        let call_value = Plain::map([
            ("call", Plain::Number(number as f64)),
            ("arguments", stub_call.arguments),
        ]);
        self.asked.push_back((stub, call_value));
        CallPart::Waits(number)
    }

    fn without_stub(&mut self, stub_call: &StubCall, by_itself: bool) -> StubAnswer {
        let StubCall { method, target, .. } = stub_call;
        let words = match stub_call.kind {
            _ if by_itself => return Ok(Plain::Nil),
            StubKind::Redis => match stub_call.arguments.items() {
                [name, channel, data] if name.bytes() == b"PUBLISH" => {
                    let handed = self.publish(channel.bytes(), data.bytes());
                    return Ok(Plain::Number(handed as f64));
                }
                _ => format!("the test has no stub for {target}: test.stub_redis({target:?}, …)"),
            },
            StubKind::Mysql => {
                format!("the test has no stub for {target}: test.stub_mysql({target:?}, …)")
            }
            StubKind::Http => format!(
                "the test has no stub for {method} {target}: test.stub_http({method:?}, {target:?}, …)"
            ),
            StubKind::Resolve if self.stubs.iter().any(|stub| stub.is_at(target)) => {
                return Ok(Plain::List(vec![Plain::from("192.0.2.1")]));
            }
            StubKind::Resolve | StubKind::WebSocket => format!(
                "the test has no stub that resolves {target}: test.stub_resolve({target:?}, …), or test.stub_websocket(\"wss://{target}/…\") for a WebSocket server"
            ),
        };
        Err(self.refuse(CallErrorKind::Unreachable, words))
    }

    fn submit(&mut self, id: CallId, call: Call) {
        let (stub_calls, by_itself, timeout) = match &call {
            Call::Http(HttpCall::Read(read)) => {
                let outcome = self.read_body(read);
                return self.outcomes.push((id, outcome));
            }
            Call::Redis(redis) if matches!(redis.action, RedisAction::Receive { .. }) => {
                return self.receive(id, redis);
            }
            Call::Http(HttpCall::Fetch(fetch)) => {
                self.made.requests.keep(http::call_value(fetch));
                (vec![http::stub_call(fetch)], false, Some(fetch.timeout))
            }
            Call::Resolve(resolve) => {
                let stub_call = StubCall {
                    kind: StubKind::Resolve,
                    method: String::new(),
                    target: resolve.host.clone(),
                    arguments: Plain::List(Vec::new()),
                };
                (vec![stub_call], false, Some(resolve.timeout))
            }
            Call::Mysql(mysql) => {
                let stub_call = mysql::stub_call(mysql);
                self.made.queries.keep(mysql::call_value(mysql, &stub_call));
                let timeout = mysql.database.timeout;
                (vec![stub_call], mysql::by_itself(mysql), Some(timeout))
            }
            Call::Redis(redis) => {
                let stub_calls = redis::stub_calls(redis);
                for stub_call in &stub_calls {
                    self.made.commands.keep(stub_call.arguments.clone());
                }
                let subscribes = matches!(redis.action, RedisAction::Subscribe { .. });
                // A blocking command has no timeout here, since its own argument limits it.
                let blocks = matches!(redis.action, RedisAction::Block(_));
                let timeout = (!blocks).then_some(redis.keyspace.timeout);
                (stub_calls, subscribes, timeout)
            }
            // These calls contact no other server, so they need no stub.
            Call::Password(_) | Call::Fastcgi(_) => (Vec::new(), true, None),
        };
        let parts = stub_calls.into_iter();
        let parts = parts.map(|stub_call| self.ask(stub_call, by_itself));
        let parts = parts.collect();
        let until_ms = timeout.map_or(u64::MAX, |timeout| self.after(timeout));
        self.pending.push(MockCall {
            id,
            call,
            parts,
            until_ms,
        });
        self.finish();
    }

    fn replied(&mut self, number: u64, request: &Plain) {
        let mut failed = None;
        for pending in &mut self.pending {
            let waits =
                |part: &&mut CallPart| matches!(part, CallPart::Waits(own) if *own == number);
            if let Some(part) = pending.parts.iter_mut().find(waits) {
                let kind = match &pending.call {
                    Call::Http(_) => StubKind::Http,
                    Call::Resolve(_) => StubKind::Resolve,
                    Call::Mysql(_) => StubKind::Mysql,
                    Call::Redis(_) => StubKind::Redis,
                    Call::Password(_) | Call::Fastcgi(_) => continue,
                };
                let error = request.get("error");
                *part = CallPart::Answered(match error {
                    Plain::Nil => stub::answer(kind, request),
                    error => {
                        let words = format!("the stub's function failed: {}", error.text());
                        failed = Some(words.clone());
                        Err(CallError::new(CallErrorKind::Broken, words))
                    }
                });
            }
        }
        if let Some(words) = failed {
            self.refuse(CallErrorKind::Broken, words);
        }
        self.finish();
    }

    /// Completes each pending call whose parts are all answered.
    fn finish(&mut self) {
        let is_answered = |pending: &mut MockCall| {
            let mut parts = pending.parts.iter();
            parts.all(|part| matches!(part, CallPart::Answered(_)))
        };
        let ready: Vec<MockCall> = self.pending.extract_if(.., is_answered).collect();
        for MockCall {
            id, call, parts, ..
        } in ready
        {
            let answers = parts.into_iter().filter_map(|part| match part {
                CallPart::Answered(answer) => Some(answer),
                CallPart::Waits(_) => None,
            });
            let outcome = self.outcome(&call, answers.collect());
            self.outcomes.push((id, outcome));
        }
    }

    fn outcome(&mut self, call: &Call, mut answers: Vec<StubAnswer>) -> CallOutcome {
        let reply = match call {
            Call::Redis(redis) => return self.redis_reply(redis, answers).map(CallReply::Redis),
            Call::Http(HttpCall::Read(_)) => return Ok(CallReply::Chunk(None)),
            Call::Password(call) => {
                return password::run(call, Cost::Least).map(CallReply::Password);
            }
            Call::Fastcgi(_) => {
                let words = "tests can't run FastCGI scripts";
                return Err(CallError::new(CallErrorKind::Invalid, words));
            }
            Call::Http(HttpCall::Fetch(fetch)) => {
                let answer = answers.pop().unwrap_or(Ok(Plain::Nil))?;
                return Ok(CallReply::Http(Box::new(self.http_reply(fetch, &answer))));
            }
            Call::Resolve(_) => http::addresses(&answers.pop().unwrap_or(Ok(Plain::Nil))?),
            Call::Mysql(mysql) => {
                let answer = answers.pop().unwrap_or(Ok(Plain::Nil))?;
                let reply = mysql::reply(mysql, answer).map(CallReply::Mysql);
                reply.map_err(|words| format!("test.stub_mysql: {words}"))
            }
        };
        reply.map_err(|words| self.refuse(CallErrorKind::Invalid, words))
    }

    fn redis_reply(
        &mut self,
        redis: &RedisCall,
        answers: Vec<StubAnswer>,
    ) -> Result<RedisReply, CallError> {
        let RedisAction::Subscribe {
            names,
            are_patterns,
        } = &redis.action
        else {
            return redis::reply(redis, answers);
        };
        answers
            .into_iter()
            .collect::<Result<Vec<Plain>, CallError>>()?;
        let number = self.number();
        let lease = self.subscriptions.add(number, names, *are_patterns);
        Ok(RedisReply::Subscribed(lease))
    }

    fn receive(&mut self, id: CallId, redis: &RedisCall) {
        let RedisAction::Receive { lease, within } = &redis.action else {
            return;
        };
        let Some(subscription) = MockSubscriptions::number(lease) else {
            let fault = CallError::new(CallErrorKind::Invalid, "redis: the subscription has ended");
            return self.outcomes.push((id, Err(fault)));
        };
        let until_ms = within.map_or(u64::MAX, |within| self.after(within));
        self.receiving.push(Receiving {
            id,
            subscription,
            until_ms,
        });
        self.hand_out();
        self.give_up();
    }

    fn publish(&mut self, channel: &[u8], data: &[u8]) -> usize {
        let count = self.subscriptions.publish(channel, data);
        self.hand_out();
        count
    }

    /// Delivers messages of subscriptions to the calls that wait for them.
    fn hand_out(&mut self) {
        let (subscriptions, outcomes) = (&mut self.subscriptions, &mut self.outcomes);
        self.receiving
            .retain(|one| match subscriptions.receive(one.subscription) {
                Some(message) => {
                    let reply = CallReply::Redis(RedisReply::Message(Some(message)));
                    outcomes.push((one.id, Ok(reply)));
                    false
                }
                None => true,
            });
    }

    /// Ends calls that have timed out: receiving from a subscription returns no message, and any other call fails.
    fn give_up(&mut self) {
        let now_ms = self.now_ms;
        let is_late = |one: &mut Receiving| one.until_ms <= now_ms;
        for one in self.receiving.extract_if(.., is_late) {
            let reply = CallReply::Redis(RedisReply::Message(None));
            self.outcomes.push((one.id, Ok(reply)));
        }
        let is_late = |one: &mut MockCall| one.until_ms <= now_ms;
        for one in self.pending.extract_if(.., is_late) {
            let words = match &one.call {
                Call::Mysql(mysql) => {
                    format!("mysql: no result within {:?}", mysql.database.timeout)
                }
                Call::Redis(redis) => {
                    format!("redis: no reply within {:?}", redis.keyspace.timeout)
                }
                Call::Http(HttpCall::Fetch(fetch)) => {
                    format!(
                        "timeout after {} s waiting for the response",
                        fetch.timeout.as_secs_f64()
                    )
                }
                Call::Http(HttpCall::Read(_))
                | Call::Resolve(_)
                | Call::Password(_)
                | Call::Fastcgi(_) => "timeout".to_owned(),
            };
            let fault = CallError::new(CallErrorKind::Timeout, words);
            self.outcomes.push((one.id, Err(fault)));
        }
    }

    /// Assigns an artificial address to an outgoing WebSocket, by which its connection is recognised later.
    fn redirect(&mut self, dial: &mut Dial) {
        let scheme = if dial.tls.take().is_some() {
            "wss"
        } else {
            "ws"
        };
        let url = format!("{scheme}://{}{}", dial.authority, dial.target);
        let stub_call = StubCall {
            kind: StubKind::WebSocket,
            method: String::new(),
            target: stub::canonical(StubKind::WebSocket, &url),
            arguments: Plain::Nil,
        };
        let server = self.found(&stub_call).map(|stub| {
            let says = match &self.stubs[stub].says {
                Says::Always(answer) => answer.clone(),
                Says::Asks => Ok(Plain::Nil),
            };
            (stub, says)
        });
        if server.is_none() {
            let words = format!(
                "the test has no stub for a WebSocket server at {url}: test.stub_websocket({url:?})"
            );
            self.refuse(CallErrorKind::Unreachable, words);
        }
        let number = self.number() as u32;
        dial.address = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(number)), 1);
        self.dialed
            .insert(dial.address, DialedSocket { url, server });
    }
}

trait BoundedRecord {
    fn keep(&mut self, call: Plain);
}

impl BoundedRecord for VecDeque<Plain> {
    fn keep(&mut self, call: Plain) {
        if self.len() == CALLS_MAX {
            self.pop_front();
        }
        self.push_back(call);
    }
}

impl CallExecutor for MockServices {
    fn submit(&mut self, id: CallId, call: Call) {
        self.0.borrow_mut().submit(id, call);
    }

    fn cancel(&mut self, id: CallId) {
        let mut inner = self.0.borrow_mut();
        inner.outcomes.retain(|(own, _)| *own != id);
        inner.pending.retain(|pending| pending.id != id);
        inner.receiving.retain(|receiving| receiving.id != id);
    }

    fn flush(&mut self) {}

    fn has_outcomes(&self) -> bool {
        !self.0.borrow().outcomes.is_empty()
    }

    fn take(&mut self, into: &mut Vec<(CallId, CallOutcome)>) {
        into.append(&mut self.0.borrow_mut().outcomes);
    }

    fn redirect(&mut self, dial: &mut Dial) {
        self.0.borrow_mut().redirect(dial);
    }
}
