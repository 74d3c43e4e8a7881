//! Sizes of scripts' tables, for `/metrics`, `veche status` and the admin page.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::{Value, json};
use veche_store::Store;
use veche_store::table::{Table, TableGauges};

/// Collects the values at each scrape. The number of lines is bounded by the store's limit of tables.
pub(super) struct TableCollector(pub(super) Arc<Store>);

impl fmt::Debug for TableCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tables({})", self.0.tables().len())
    }
}

type Gauge = (&'static str, &'static str, fn(&TableGauges) -> usize);

const GAUGES: [Gauge; 3] = [
    ("veche_table_rows", "Rows of a table", |f| f.rows),
    (
        "veche_table_bytes",
        "Memory of a table, with its indexes",
        |f| f.bytes,
    ),
    (
        "veche_table_bytes_max",
        "The memory limit of a table (bytes_max of its schema)",
        |f| f.bytes_max,
    ),
];

impl Collector for TableCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let tables = self.0.tables();
        let figures: Vec<_> = tables.iter().map(|table| table.gauges()).collect();
        let all = || tables.iter().map(|table| table.name()).zip(&figures);
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (table, figures) in all() {
                let gauge = ConstGauge::new(read(figures) as i64);
                gauge.encode(family.encode_family(&[("table", table)])?)?;
            }
        }
        let help = "Rows evicted from a table";
        let mut family =
            encoder.encode_descriptor("veche_table_evicted", help, None, MetricType::Counter)?;
        for (table, figures) in all() {
            let counter = ConstCounter::new(figures.evicted);
            counter.encode(family.encode_family(&[("table", table)])?)?;
        }
        Ok(())
    }
}

/// Returns the figures of every table, ordered by name. Figures that require a scan of the rows are left out.
pub(super) fn figures(store: &Store) -> Value {
    store.tables().iter().map(|table| brief(table)).collect()
}

fn brief(table: &Table) -> Value {
    let figures = table.gauges();
    json!({
        "name": table.name(),
        "rows": figures.rows,
        "bytes": figures.bytes,
        "bytes_max": figures.bytes_max,
        "evicted": figures.evicted,
        "loading": figures.is_loading,
    })
}

/// Returns all figures of every table, which requires a scan of the tables.
pub(super) fn seen(store: &Store) -> Value {
    let tables = store.tables();
    json!({"tables": tables.iter().map(|table| whole(table)).collect::<Vec<_>>()})
}

fn whole(table: &Table) -> Value {
    let schema = table.schema();
    let info = table.info();
    let columns = schema.visible().iter().zip(&info.columns);
    let columns: Vec<Value> = columns
        .map(|(column, bytes)| {
            json!({"name": column.name, "type": column.type_text(), "bytes": bytes})
        })
        .collect();
    // If rows expire, the last index is the unnamed index by expiry time, which is not listed.
    let indexes = schema.indexes.iter().zip(&info.indexes);
    let indexes: Vec<Value> = indexes
        .filter(|(index, _)| schema.index(index.name.as_bytes()).is_some())
        .map(|(index, bytes)| {
            let names = index
                .columns
                .iter()
                .map(|place| &schema.columns[*place].name);
            json!({
                "name": index.name,
                "columns": names.collect::<Vec<_>>(),
                "unique": index.is_unique,
                "bytes": bytes,
            })
        })
        .collect();
    let mut seen = brief(table);
    seen["ttl"] = schema.has_ttl.into();
    seen["columns"] = columns.into();
    seen["indexes"] = indexes.into();
    seen
}

#[cfg(test)]
pub(super) mod tests {
    use veche_store::table::{Cell, PutMode, SchemaDraft};

    use super::*;

    /// Creates a table with two rows.
    pub(crate) fn make(store: &Store, name: &str) {
        let draft = SchemaDraft {
            key: "id:u32".to_owned(),
            columns: vec![
                ("mail".to_owned(), "string(50)?".to_owned()),
                ("mark".to_owned(), "u8".to_owned()),
            ],
            indexes: vec![("by_mark".to_owned(), vec!["mark".to_owned()], true)],
            has_ttl: true,
            ..SchemaDraft::default()
        };
        let schema = draft.check().expect("a schema");
        let table = store.table(name, Some(schema)).expect("a table");
        for id in 0..2 {
            let row = [Cell::Bits(id), Cell::Null, Cell::Bits(id)];
            table.put(PutMode::Insert, &row, None, 0).expect("room");
        }
    }

    #[test]
    fn tables_are_counted_and_listed() {
        let store = Store::default();
        make(&store, "users");
        make(&store, "a \"quoted\"\nname");
        let seen = seen(&store);
        let users = &seen["tables"][1];
        for (member, expected) in [
            ("name", json!("users")),
            ("rows", json!(2)),
            ("bytes_max", json!(1 << 30)),
            ("evicted", json!(0)),
            ("loading", json!(false)),
            ("ttl", json!(true)),
        ] {
            assert_eq!(users[member], expected, "{member}");
        }
        let types = users["columns"].as_array().expect("columns").iter();
        let types: Vec<_> = types
            .map(|column| (&column["name"], &column["type"]))
            .collect();
        let expected = [
            (&json!("id"), &json!("u32")),
            (&json!("mail"), &json!("string(50)?")),
            (&json!("mark"), &json!("u8")),
        ];
        assert_eq!(types, expected);
        assert_eq!(users["indexes"].as_array().map(Vec::len), Some(1));
        assert_eq!(users["indexes"][0]["columns"], json!(["mark"]));
        assert_eq!(users["indexes"][0]["unique"], true);
        assert!(users["indexes"][0]["bytes"].as_u64() > Some(0));
        assert_eq!(figures(&store)[1]["rows"], 2);

        let mut text = String::new();
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(TableCollector(Arc::new(store))));
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "veche_table_rows{table=\"users\"} 2",
            "veche_table_rows{table=\"a \\\"quoted\\\"\\nname\"} 2",
            "veche_table_bytes_max{table=\"users\"} 1073741824",
            "veche_table_evicted_total{table=\"users\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
