//! The outside of a test: what applications ask of other servers gets canned answers, or none.
//!
//! Nothing leaves the process. A call that nobody has an answer for fails, and fails the test too.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use veche_calls::{Body, Call, CallId, Fault, FaultKind, Fetch, Http, HttpReply, Outcome, Reply};
use veche_script::{Level, Plain};

use crate::apps::{Entry, Gate, Journal};

/// Calls that are kept for a test to look at.
const CALLS_MAX: usize = 10_000;

/// What both the test and the applications' worker hold.
#[derive(Clone)]
pub(super) struct Outside(Rc<RefCell<Inner>>);

struct Inner {
    /// The last one counts first.
    stubs: Vec<Stub>,
    /// Called and not told yet.
    outcomes: Vec<(CallId, Outcome)>,
    made: VecDeque<Plain>,
    journal: Journal,
}

/// A canned answer.
struct Stub {
    /// `http`, or `resolve`.
    kind: &'static str,
    /// Of HTTP; `*` is any.
    method: String,
    /// An address, or a host; a `*` at its end is any end.
    target: String,
    answer: Outcome,
}

impl Outside {
    pub(super) fn new(journal: Journal) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            stubs: Vec::new(),
            outcomes: Vec::new(),
            made: VecDeque::new(),
            journal,
        })))
    }

    /// Keeps an answer.
    pub(super) fn stub(&self, question: &Plain) -> Result<(), String> {
        let target = question.get("target").text();
        let fails = question.get("fails").text();
        let fault = FaultKind::ALL.into_iter().find(|kind| kind.name() == fails);
        let (kind, answer) = match question.get("kind").bytes() {
            b"resolve" => ("resolve", addresses(question)?),
            _ => ("http", Ok(Reply::Http(Box::new(reply(question, &target))))),
        };
        let answer = match fault {
            Some(kind) => Err(Fault::new(kind, format!("{fails}, as the test has it"))),
            None => answer,
        };
        self.0.borrow_mut().stubs.push(Stub {
            kind,
            method: question.get("method").text(),
            target,
            answer,
        });
        Ok(())
    }

    /// Calls that the applications have made.
    pub(super) fn made(&self) -> Vec<Plain> {
        self.0.borrow().made.iter().cloned().collect()
    }
}

fn addresses(question: &Plain) -> Result<Outcome, String> {
    let texts = question.get("addresses").items().iter().map(Plain::text);
    let addresses: Result<Vec<IpAddr>, String> = texts
        .map(|text| {
            text.parse()
                .map_err(|_| format!("{text:?} is no IP address"))
        })
        .collect();
    Ok(Ok(Reply::Addresses(addresses?)))
}

fn reply(question: &Plain, url: &str) -> HttpReply {
    let headers = question.get("headers").items().iter();
    let headers = headers.filter_map(|pair| match pair.items() {
        [name, value] => Some((name.text().to_ascii_lowercase(), value.bytes().to_vec())),
        _ => None,
    });
    HttpReply {
        status: question.get("status").number().unwrap_or(200.0) as u16,
        headers: headers.collect(),
        url: url.to_owned(),
        body: Body::Whole(question.get("body").bytes().to_vec()),
    }
}

impl Stub {
    fn is_of(&self, kind: &str, method: &str, target: &str) -> bool {
        let is_target = match self.target.strip_suffix('*') {
            Some(beginning) => target.starts_with(beginning),
            None => target == self.target,
        };
        self.kind == kind && is_target && (self.method == "*" || self.method == method)
    }
}

impl Inner {
    fn answer(&mut self, kind: &str, method: &str, target: &str) -> Outcome {
        let mut stubs = self.stubs.iter().rev();
        if let Some(stub) = stubs.find(|stub| stub.is_of(kind, method, target)) {
            let mut answer = stub.answer.clone();
            if let Ok(Reply::Http(reply)) = &mut answer {
                target.clone_into(&mut reply.url);
            }
            return answer;
        }
        let words = match kind {
            "http" => format!(
                "the test has no answer to {method} {target}: test.stub_http({method:?}, {target:?}, …)"
            ),
            _ => format!("the test has no addresses of {target}: test.stub_resolve({target:?}, …)"),
        };
        self.refuse(words)
    }

    /// The application may catch it; the test fails all the same.
    fn refuse(&self, words: String) -> Outcome {
        self.journal.write(Entry::Logged {
            level: Level::Error,
            text: words.clone(),
        });
        Err(Fault::new(FaultKind::Unreachable, words))
    }

    fn fetch(&mut self, fetch: &Fetch) -> Outcome {
        let headers = fetch.headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), Plain::Bytes(value.clone())));
        if self.made.len() == CALLS_MAX {
            self.made.pop_front();
        }
        self.made.push_back(Plain::map([
            ("method", Plain::from(fetch.method.as_str())),
            ("url", Plain::from(fetch.url.as_str())),
            ("headers", Plain::Map(headers.collect())),
            ("body", Plain::Bytes(fetch.body.clone())),
        ]));
        if fetch.is_stream {
            let url = &fetch.url;
            return self.refuse(format!(
                "a test has no answers in parts, as asked for of {url}"
            ));
        }
        self.answer("http", &fetch.method, &fetch.url)
    }
}

impl Gate for Outside {
    fn submit(&mut self, id: CallId, call: Call) {
        let mut inner = self.0.borrow_mut();
        let outcome = match &call {
            Call::Http(Http::Fetch(fetch)) => inner.fetch(fetch),
            Call::Resolve(resolve) => inner.answer("resolve", "", &resolve.host),
            _ => inner.refuse("a test has no answers to calls of this kind".to_owned()),
        };
        inner.outcomes.push((id, outcome));
    }

    fn cancel(&mut self, id: CallId) {
        self.0.borrow_mut().outcomes.retain(|(own, _)| *own != id);
    }

    fn flush(&mut self) {}

    fn has_outcomes(&self) -> bool {
        !self.0.borrow().outcomes.is_empty()
    }

    fn take(&mut self, into: &mut Vec<(CallId, Outcome)>) {
        into.append(&mut self.0.borrow_mut().outcomes);
    }
}
