//! Conversion of flags to a plan.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use crate::ledger::NOTE_BYTES_MIN;
use crate::loads::LoadPlan;
use crate::loads::echo::EchoPlan;
use crate::loads::fanout::{FanoutPlan, asks_for_answers};
use crate::loads::http::{HttpPlan, HttpRequestPlan};
use crate::loads::shootout::ShootoutPlan;
use crate::loads::storm::StormPlan;
use crate::loads::think::ThinkTime;
use crate::payload::{PayloadContent, PayloadPlan};
use crate::plan::{Endpoint, Plan, TlsPlan};
use crate::report::model::Settings;
use crate::target::{BodyTemplate, ClientTemplate, Scheme, Target, TargetError};

use super::options::{
    BroadcastArgs, CommonArgs, DurationArgs, EchoArgs, HttpArgs, PauseRange, PayloadArgs,
    PublishArgs, PushLoadArgs, RateRange, ShootoutArgs, ShootoutKind, StormArgs,
};
use veche_terminal::exit::{CommandFailure, Exit};

pub(super) fn storm(args: &StormArgs) -> Result<Plan, CommandFailure> {
    let endpoints = endpoints(&args.urls, &args.common)?;
    let load = LoadPlan::Storm(StormPlan {
        payload: payload(&args.payload)?,
    });
    Ok(plan(endpoints, load, &args.common))
}

pub(super) fn echo(args: &EchoArgs) -> Result<Plan, CommandFailure> {
    check_search(&args.find_rate, args.rate)?;
    let endpoints = endpoints(&args.urls, &args.common)?;
    let load = LoadPlan::Echo(EchoPlan {
        payload: payload(&args.payload)?,
        inflight: args.inflight,
        rate: args.rate.map(|rate| rate.from),
        rate_to: args.rate.and_then(|rate| rate.to),
        arrivals: args.arrivals.into(),
        think: args.think.map(think),
        churn: args.churn,
    });
    Ok(lasting(&args.span, plan(endpoints, load, &args.common)))
}

pub(super) fn http(args: &HttpArgs) -> Result<Plan, CommandFailure> {
    check_search(&args.find_rate, args.rate)?;
    let endpoint = endpoint(&args.url, http_scheme, &args.common)?;
    let body = text_or_file(args.body.as_deref(), args.body_file.as_deref())?;
    let list = args.requests.as_deref().map(requests).transpose()?;
    if !is_method(&args.method) {
        let words = format!("--method {:?}: not an HTTP method", args.method);
        return Err(CommandFailure::new(Exit::Usage, words));
    }
    if args.method == "HEAD" && (args.expect.is_some() || args.expect_file.is_some()) {
        return Err(usage("--expect: the answer to HEAD has no body"));
    }
    let load = LoadPlan::Http(HttpPlan {
        method: args.method.clone(),
        is_http10: args.http10,
        body: BodyTemplate::new(body.unwrap_or_default()),
        inflight: args.inflight,
        rate: args.rate.map(|rate| rate.from),
        rate_to: args.rate.and_then(|rate| rate.to),
        arrivals: args.arrivals.into(),
        think: args.think.map(think),
        expect: text_or_file(args.expect.as_deref(), args.expect_file.as_deref())?,
        list: list.unwrap_or_default(),
    });
    Ok(lasting(
        &args.span,
        plan(vec![endpoint], load, &args.common),
    ))
}

/// Checks that a search for the highest rate starts with a single rate, not with a range.
fn check_search(promises: &[String], rate: Option<RateRange>) -> Result<(), CommandFailure> {
    match rate.and_then(|rate| rate.to) {
        Some(_) if !promises.is_empty() => {
            Err(usage("--find-rate: requires a single number for --rate"))
        }
        _ => Ok(()),
    }
}

/// Returns whether a text is an HTTP method, which is a token (RFC 9110 section 5.6.2).
fn is_method(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

/// Parses the requests of a file, one per line.
fn requests(path: &Path) -> Result<Vec<HttpRequestPlan>, CommandFailure> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| usage(format!("--requests {shown}: {error}")))?;
    let mut list = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bad = |words: &str| usage(format!("--requests {shown}:{}: {words}", number + 1));
        let (method, path, body): (String, String, Option<String>) = serde_json::from_str(line)
            .map_err(|_| {
                bad("expected [\"GET\", \"/path\", null], optionally with a body in place of null")
            })?;
        if !is_method(&method) || method == "HEAD" {
            return Err(bad(
                "the method must be an HTTP method other than HEAD, whose responses have no body",
            ));
        }
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || !path.starts_with('/') {
            return Err(bad("expected a path that begins with / and has no spaces"));
        }
        list.push(HttpRequestPlan {
            method,
            path,
            body: body.unwrap_or_default().into_bytes(),
        });
    }
    match list.is_empty() {
        true => Err(usage(format!(
            "--requests {shown}: the file has no requests"
        ))),
        false => Ok(list),
    }
}

pub(super) fn broadcast(args: &BroadcastArgs) -> Result<Plan, CommandFailure> {
    let plan = fanout(&args.url, &args.publish, &args.body, false, &args.common)?;
    Ok(lasting(&args.span, plan))
}

pub(super) fn push(args: &PushLoadArgs) -> Result<Plan, CommandFailure> {
    if !args.body.contains("{i}") {
        return Err(usage(
            "--body: must contain {i}, the number of the receiver",
        ));
    }
    let plan = fanout(&args.url, &args.publish, &args.body, true, &args.common)?;
    Ok(lasting(&args.span, plan))
}

fn fanout(
    url: &str,
    args: &PublishArgs,
    body: &str,
    to_one: bool,
    common: &CommonArgs,
) -> Result<Plan, CommandFailure> {
    check_search(&args.find_rate, Some(args.rate))?;
    let receivers = endpoint(url, websocket, common)?;
    let publishers = Endpoint {
        clients: args.publishers,
        headers: headers("--publish-header", &args.publish_header, &[])?,
        ..endpoint(&args.publish, |_| None, common)?
    };
    if !body.contains("{data}") {
        return Err(usage("--body: must contain {data}, the message"));
    }
    if args.size <= NOTE_BYTES_MIN {
        let words = format!(
            "--size {}: must be at least {} bytes, since a message contains its publisher and number",
            args.size,
            NOTE_BYTES_MIN + 1
        );
        return Err(usage(words));
    }
    if args.recover && !is_answered(publishers.target.scheme, body) {
        return Err(usage(
            "--recover: requires publications that are answered: use http:// or https:// in --publish, or tcp:// with \"ack\":true in --body",
        ));
    }
    let load = LoadPlan::Fanout(FanoutPlan {
        body: body.to_owned(),
        to_one,
        rate: args.rate.from,
        rate_to: args.rate.to,
        burst: args.burst,
        arrivals: args.arrivals.into(),
        size: args.size,
        hello: args.hello.clone(),
        run: run_number(),
        chaos: args.chaos,
        recover: args.recover,
    });
    Ok(plan(vec![receivers, publishers], load, common))
}

pub(super) fn shootout(args: &ShootoutArgs) -> Result<Plan, CommandFailure> {
    if args.common.threads * args.common.processes > 1 {
        return Err(usage(
            "shootout: always runs on one thread of one process: omit --threads and --processes",
        ));
    }
    let load = LoadPlan::Shootout(ShootoutPlan {
        broadcast: args.kind == ShootoutKind::Broadcast,
        step: args.step,
        concurrent: args.concurrent,
        samples: args.samples,
        limit_ns: ns(args.limit),
    });
    let endpoint = endpoint(&args.url, websocket, &args.common)?;
    Ok(plan(vec![endpoint], load, &args.common))
}

/// Returns whether a publisher gets an acknowledgement of each publication, in order, and nothing else.
fn is_answered(scheme: Scheme, body: &str) -> bool {
    scheme.is_http() || (scheme == Scheme::Tcp && asks_for_answers(body))
}

/// Returns a random number that identifies the run among all runs against the same server.
fn run_number() -> u32 {
    fastrand::u32(..)
}

fn usage(words: impl Into<String>) -> CommandFailure {
    CommandFailure::new(Exit::Usage, words)
}

/// Default limit of connections that are opening at the same time.
const OPENING_MAX: u32 = 256;

/// Creates a plan without a duration.
fn plan(endpoints: Vec<Endpoint>, load: LoadPlan, common: &CommonArgs) -> Plan {
    Plan {
        sources: sources(&endpoints, common),
        endpoints,
        load,
        duration_ns: None,
        warmup_ns: 0,
        timeout_ns: ns(common.timeout),
        opening_max: common.opening.unwrap_or(match common.connect_rate {
            // Opening at a fixed rate does not wait for handshakes in progress.
            Some(_) => u32::MAX,
            None => OPENING_MAX,
        }),
        connect_rate: common.connect_rate,
        seed: common.seed,
        threads: common.threads,
        processes: common.processes,
    }
}

/// Sets the duration of a plan.
fn lasting(span: &DurationArgs, plan: Plan) -> Plan {
    Plan {
        duration_ns: Some(ns(span.duration)),
        warmup_ns: ns(span.warmup),
        ..plan
    }
}

/// Maximum number of connections from one local address. It is below the number of ports, because
/// closed connections occupy their ports for a while.
const CONNECTIONS_PER_SOURCE_MAX: u32 = 20_000;
/// The number of connections from each loopback address, if several are used. It is far below the
/// maximum, because the kernel finds a free port slowly when many ports are taken.
const CONNECTIONS_PER_SOURCE: u32 = 5_000;

/// Returns the local addresses to connect from. On loopback there are as many as needed.
fn sources(endpoints: &[Endpoint], common: &CommonArgs) -> Vec<IpAddr> {
    let is_here = |endpoint: &Endpoint| {
        let addresses = &endpoint.target.addresses;
        let is_first_v4 = addresses.first().is_some_and(|address| address.is_ipv4());
        is_first_v4 && addresses.iter().all(|address| address.ip().is_loopback())
    };
    let needed = common.connections.div_ceil(CONNECTIONS_PER_SOURCE);
    let is_enough = common.connections <= CONNECTIONS_PER_SOURCE_MAX;
    if !common.source.is_empty() || is_enough || !endpoints.iter().all(is_here) {
        return common.source.clone();
    }
    (1..=needed)
        .map(|index| Ipv4Addr::from(0x7f00_0000 + index).into())
        .collect()
}

/// Returns the settings for the report.
pub(super) fn settings(common: &CommonArgs, plan: &Plan) -> Settings {
    let bytes = |payload: &PayloadPlan| match &payload.content {
        PayloadContent::Size(size) => *size as u64,
        PayloadContent::Fixed(bytes) => bytes.len() as u64,
    };
    // For a rate that changes during the run, the report contains the average.
    let mean = |from: f64, to: Option<f64>| (from + to.unwrap_or(from)) / 2.0;
    let (size_bytes, inflight, rate) = match &plan.load {
        LoadPlan::Storm(storm) => (Some(bytes(&storm.payload)), None, None),
        LoadPlan::Echo(echo) => (
            Some(bytes(&echo.payload)),
            Some(echo.inflight),
            echo.rate.map(|rate| mean(rate, echo.rate_to)),
        ),
        LoadPlan::Http(http) => (
            None,
            Some(http.inflight),
            http.rate.map(|rate| mean(rate, http.rate_to)),
        ),
        LoadPlan::Fanout(fanout) => (
            Some(fanout.size as u64),
            None,
            Some(mean(fanout.rate, fanout.rate_to)),
        ),
        LoadPlan::Shootout(shootout) => (None, Some(shootout.concurrent), None),
    };
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    Settings {
        // The arguments without the program's name and "bench".
        command: super::mask::mask(std::env::args().skip(2)),
        label: common.output.label.clone(),
        connections: u64::from(plan.clients()),
        duration_s: plan.duration_ns.map(seconds),
        warmup_s: seconds(plan.warmup_ns),
        rate,
        size_bytes,
        stamped: plan.load.is_stamped(),
        inflight: inflight.filter(|_| rate.is_none()).map(u64::from),
        threads: u64::from(plan.threads),
        processes: u64::from(plan.processes),
    }
}

fn think(pause: PauseRange) -> ThinkTime {
    ThinkTime {
        min_ns: ns(pause.min),
        max_ns: ns(pause.max),
    }
}

pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn websocket(scheme: Scheme) -> Option<&'static str> {
    (!scheme.is_websocket()).then_some("ws:// or wss://")
}

fn http_scheme(scheme: Scheme) -> Option<&'static str> {
    (!scheme.is_http()).then_some("http:// or https://")
}

/// Divides the connections among the URLs.
fn endpoints(urls: &[String], common: &CommonArgs) -> Result<Vec<Endpoint>, CommandFailure> {
    let count = urls.len() as u32;
    let share = |index: u32| {
        let until = u64::from(common.connections) * u64::from(index) / u64::from(count);
        until as u32
    };
    urls.iter()
        .zip(0..)
        .map(|(url, index)| {
            Ok(Endpoint {
                clients: share(index + 1) - share(index),
                ..endpoint(url, websocket, common)?
            })
        })
        .collect()
}

fn endpoint(
    url: &str,
    expected: fn(Scheme) -> Option<&'static str>,
    common: &CommonArgs,
) -> Result<Endpoint, CommandFailure> {
    let usage = |error: TargetError| CommandFailure::new(Exit::Usage, error.to_string());
    let target = Target::parse(url).map_err(usage)?;
    if let Some(expected) = expected(target.scheme) {
        return Err(usage(TargetError::Scheme {
            url: url.to_owned(),
            expected,
        }));
    }
    Ok(Endpoint {
        headers: headers("--header", &common.header, &common.cookie)?,
        subprotocols: common.subprotocol.clone(),
        deflate: common.deflate,
        tls: TlsPlan {
            insecure: common.insecure,
            ca: common.ca.clone(),
            full_handshakes: common.full_handshakes,
        },
        heartbeats: common.answer.clone(),
        ..Endpoint::new(target, common.connections)
    })
}

fn headers(
    flag: &str,
    lines: &[String],
    cookies: &[String],
) -> Result<Vec<(String, ClientTemplate)>, CommandFailure> {
    let bad = |header: &str| usage(format!("{flag} {header:?}: expected \"Name: value\""));
    let mut headers = Vec::new();
    for header in lines {
        let (name, value) = header.split_once(':').ok_or_else(|| bad(header))?;
        let is_safe = |text: &str| !text.bytes().any(|byte| byte.is_ascii_control());
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name || !is_safe(value) {
            return Err(bad(header));
        }
        headers.push((name.to_owned(), ClientTemplate::new(value.trim())));
    }
    if !cookies.is_empty() {
        let cookies = cookies.join("; ");
        headers.push(("Cookie".to_owned(), ClientTemplate::new(&cookies)));
    }
    Ok(headers)
}

fn payload(args: &PayloadArgs) -> Result<PayloadPlan, CommandFailure> {
    let fixed = text_or_file(args.message.as_deref(), args.file.as_deref())?;
    let content = fixed.map_or(PayloadContent::Size(args.size), PayloadContent::Fixed);
    if !args.binary
        && let PayloadContent::Fixed(bytes) = &content
        && std::str::from_utf8(bytes).is_err()
    {
        return Err(CommandFailure::new(
            Exit::Usage,
            "the file is not UTF-8 text: use --binary",
        ));
    }
    Ok(PayloadPlan {
        binary: args.binary,
        content,
    })
}

fn text_or_file(
    text: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<Vec<u8>>, CommandFailure> {
    match (text, file) {
        (Some(text), _) => Ok(Some(text.as_bytes().to_vec())),
        (None, Some(file)) => fs::read(file).map(Some).map_err(|error| {
            CommandFailure::new(Exit::Usage, format!("{}: {error}", file.display()))
        }),
        (None, None) => Ok(None),
    }
}
