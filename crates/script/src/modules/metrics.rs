//! `veche.metrics`: applications' own metrics on `/metrics`.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};
use veche_store::metrics::{BUCKETS_MAX, LABEL_BYTES_MAX, Metric, MetricError, MetricKind};

use super::argument::{Arguments, as_number};
use super::copy_limit::option_name;
use super::growing_list::GrowingList;
use crate::host_context::HostContext;

/// The default bucket bounds of a histogram in seconds, as in Prometheus' libraries.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The longest help text in bytes.
const HELP_BYTES_MAX: usize = 1024;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    // The store's own limits keep the list small.
    let kept = GrowingList::new("metrics: there is no metric with that number");
    let metrics = lua.create_table()?;
    for (name, function) in [
        ("counter", "metrics.counter"),
        ("gauge", "metrics.gauge"),
        ("histogram", "metrics.histogram"),
    ] {
        let (own, kept) = (Rc::clone(context), kept.clone());
        let create = lua.create_function(move |_, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            Ok(kept.keep(metric(&arguments, name, &own)?))
        })?;
        metrics.set(name, create)?;
    }
    for (name, change) in METHODS {
        let kept = kept.clone();
        let method = lua.create_function(move |_, mut values: MultiValue| {
            let metric = kept.find_first(&mut values)?;
            change(&metric, &Arguments::new(name, values))
        })?;
        metrics.set(name, method)?;
    }
    native.set("metrics", metrics)
}

type Change = fn(&Metric, &Arguments) -> mlua::Result<()>;

const METHODS: [(&str, Change); 4] = [
    ("counter:add", |metric, arguments| {
        let what = "a finite number that is not negative";
        let by = arguments.number(1, [0.0, f64::MAX], what)?;
        series(metric, arguments, |series| series.add(by.unwrap_or(1.0)))
    }),
    ("gauge:add", |metric, arguments| {
        let by = arguments.number(1, [f64::MIN, f64::MAX], "a finite number")?;
        series(metric, arguments, |series| series.add(by.unwrap_or(1.0)))
    }),
    ("gauge:set", |metric, arguments| {
        let value = arguments.number(1, [f64::MIN, f64::MAX], FINITE)?;
        let value = arguments.needed(1, value, FINITE)?;
        series(metric, arguments, |series| series.set(value))
    }),
    ("histogram:observe", |metric, arguments| {
        let value = arguments.number(1, [f64::MIN, f64::MAX], FINITE)?;
        let value = arguments.needed(1, value, FINITE)?;
        series(metric, arguments, |series| metric.observe(series, value))
    }),
];

const FINITE: &str = "a finite number";

/// Passes a series of the metric to `change`. The script's arguments after the first are the values
/// of the series' labels.
fn series(
    metric: &Metric,
    arguments: &Arguments,
    change: impl FnOnce(&veche_store::metrics::Series),
) -> mlua::Result<()> {
    let count = arguments.count();
    if count.saturating_sub(1) != metric.labels.len() {
        let expected = format!("the number of label values must be {}", metric.labels.len());
        return Err(arguments.bad(2, &expected));
    }
    let mut values: Vec<String> = Vec::with_capacity(metric.labels.len());
    for number in 2..=count {
        values.push(match arguments.at(number) {
            // A string longer than the store accepts is cut, but left long enough to be rejected.
            Value::String(text) => match text.to_str() {
                Ok(text) => text[..text.floor_char_boundary(LABEL_BYTES_MAX + 4)].to_owned(),
                Err(_) => return Err(arguments.bad(number, "a label's value must be UTF-8")),
            },
            Value::Integer(value) => value.to_string(),
            Value::Number(value) => value.to_string(),
            Value::Boolean(value) => value.to_string(),
            _ => return Err(arguments.expected(number, "a string as the label's value")),
        });
    }
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    match metric.series(&values) {
        Ok(series) => {
            change(&series);
            Ok(())
        }
        Err(error) => Err(arguments.bad(2, &error.to_string())),
    }
}

fn metric(arguments: &Arguments, kind: &str, context: &HostContext) -> mlua::Result<Arc<Metric>> {
    let name = arguments.string(1)?.to_str();
    let name = name.map_err(|_| arguments.bad(1, "it is not UTF-8"))?;
    let help = arguments.string(2)?.to_str();
    let help = help.map_err(|_| arguments.bad(2, "it is not UTF-8"))?;
    if help.len() > HELP_BYTES_MAX || help.contains(|one: char| one.is_control() || one == '\\') {
        return Err(arguments.bad(
            2,
            "a help text of at most 1024 bytes without control characters and backslashes expected",
        ));
    }
    let (kind, labels_at) = match kind {
        "counter" => (MetricKind::Counter, 3),
        "gauge" => (MetricKind::Gauge, 3),
        _ => (MetricKind::Histogram(buckets(arguments)?), 4),
    };
    let labels = labels(arguments, labels_at)?;
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let metric = context
        .world
        .store
        .metrics
        .metric(&name, &help, kind, &labels);
    metric.map_err(|error| {
        let number = match &error {
            MetricError::Name(words) if words.contains("labels") => labels_at,
            _ => 1,
        };
        arguments.bad(number, &error.to_string())
    })
}

fn buckets(arguments: &Arguments) -> mlua::Result<Arc<[f64]>> {
    const WHAT: &str = "a list of at most 64 finite numbers in ascending order";
    let table = match arguments.at(3) {
        Value::Nil => return Ok(BUCKETS.into()),
        Value::Table(table) => table,
        _ => return Err(arguments.expected(3, WHAT)),
    };
    let mut bounds = Vec::new();
    for value in table.sequence_values::<Value>() {
        let bound = as_number(&value?).filter(|bound| bound.is_finite());
        let rises = bound.is_some_and(|bound| bounds.last().is_none_or(|last| *last < bound));
        match bound.filter(|_| rises && bounds.len() < BUCKETS_MAX) {
            Some(bound) => bounds.push(bound),
            None => return Err(arguments.bad(3, &format!("{WHAT} expected"))),
        }
    }
    match bounds.is_empty() {
        true => Err(arguments.bad(3, &format!("{WHAT} expected"))),
        false => Ok(bounds.into()),
    }
}

fn labels(arguments: &Arguments, number: usize) -> mlua::Result<Vec<String>> {
    const WHAT: &str = "a list of label names";
    let table = match arguments.at(number) {
        Value::Nil => return Ok(Vec::new()),
        Value::Table(table) => table,
        _ => return Err(arguments.expected(number, WHAT)),
    };
    let mut labels = Vec::new();
    for value in table.sequence_values::<Value>() {
        match value? {
            // One label above the limit is enough to have the list rejected.
            Value::String(name) if labels.len() <= veche_store::metrics::LABELS_MAX => {
                labels.push(option_name(&name));
            }
            _ => return Err(arguments.bad(number, &format!("{WHAT} expected"))),
        }
    }
    Ok(labels)
}
