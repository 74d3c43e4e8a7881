//! Measures reads, scans and changes of a large table, in microseconds of wall-clock time on an otherwise idle machine.
//!
//! ```sh
//! cargo run --profile bench -p veche-store --example speed -- 11000000
//! ```
//!
//! The first argument is the number of rows. A second argument selects the measurements whose names contain it. The rows
//! are visits as in examples/highload-cup: about eleven visits per user, in random order.

#[path = "../../../tests/now.rs"]
mod now;

use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use veche_store::Store;
use veche_store::table::{
    Cell, InputValue, LoadFormat, LoadOptions, PutMode, ScanOptions, SchemaDraft, Table,
};
use veche_types::Now;

use now::now;

/// A fast pseudo-random number generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }
}

/// Prints the time of one call of `each`, in microseconds: the average over `count` calls in the
/// fastest of several runs.
fn measure(what: &str, count: u64, runs: u32, mut each: impl FnMut(&mut Random)) {
    let wanted = std::env::args().nth(2);
    if wanted.is_some_and(|wanted| !what.contains(&wanted)) {
        return;
    }
    let mut random = Random(runs.into());
    let mut taken = Vec::new();
    for _ in 0..runs {
        let begun = now();
        for _ in 0..count {
            each(&mut random);
        }
        taken.push(begun.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    taken.sort_by(f64::total_cmp);
    println!("{what:28} {:7.3}  (all runs: {taken:.3?})", taken[0]);
}

struct Sizes {
    rows: u64,
    users: u64,
    locations: u64,
}

impl Sizes {
    /// Returns the values of a new visit: location, mark, user, visited_at.
    fn visit(&self, random: &mut Random) -> [u64; 4] {
        [
            random.below(self.locations),
            random.below(6),
            random.below(self.users),
            900_000_000 + random.below(500_000_000),
        ]
    }
}

fn load(sizes: &Sizes) -> Arc<Table> {
    let pair = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    let index = |name: &str, columns: &[&str]| {
        (
            name.to_owned(),
            columns.iter().map(|c| (*c).to_owned()).collect(),
            false,
        )
    };
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![
            pair("location", "u32"),
            pair("mark", "u8"),
            pair("user", "u32"),
            pair("visited_at", "i32"),
        ],
        indexes: vec![
            index("by_location", &["location"]),
            index("by_user", &["user", "visited_at"]),
        ],
        ..SchemaDraft::default()
    };
    let store = Store::default();
    let schema = draft.check().expect("a schema");
    let table = store.table("visits", Some(schema)).expect("a table");
    let path = std::env::temp_dir().join(format!("speed-{}.csv", std::process::id()));
    let mut out = BufWriter::new(std::fs::File::create(&path).expect("a file"));
    let mut random = Random(7);
    writeln!(out, "id,location,mark,user,visited_at")
        .expect("the disk must have space for the file");
    for id in 0..sizes.rows {
        let [location, mark, user, at] = sizes.visit(&mut random);
        writeln!(out, "{id},{location},{mark},{user},{at}")
            .expect("the disk must have space for the file");
    }
    drop(out);
    let begun = now();
    let job = table.start_load(
        path.clone(),
        LoadOptions::new(LoadFormat::Csv),
        Now::default(),
    );
    job.wait().unwrap_or_else(|error| panic!("{error}"));
    println!(
        "loaded in {:.1} s: {:.1} MB",
        begun.elapsed().as_secs_f64(),
        table.info().bytes as f64 / 1e6
    );
    std::fs::remove_file(path).expect("the file was written before and must still exist");
    table
}

fn main() {
    let rows = std::env::args().nth(1);
    let rows = rows.map_or(11_000_000, |rows| rows.parse().expect("how many rows"));
    let sizes = Sizes {
        rows,
        users: (rows / 11).max(1),
        locations: (rows / 14).max(1),
    };
    let table = load(&sizes);
    let names: Vec<&str> = table
        .schema()
        .visible()
        .iter()
        .map(|column| &*column.name)
        .collect();
    assert_eq!(names, ["id", "location", "mark", "user", "visited_at"]);
    let by_user = Some(
        table
            .schema()
            .indexes
            .iter()
            .position(|index| &*index.name == "by_user")
            .expect("it is there"),
    );

    let mut sum = 0;
    let mut read = |id: u64| {
        table.read(Cell::Bits(id), 0, |row| {
            if let Cell::Bits(mark) = row.get(2) {
                sum += mark;
            }
        });
    };
    measure("read, cold", 500_000, 5, |random| read(random.below(rows)));
    measure("read, hot", 500_000, 5, |random| read(random.below(1000)));
    let mut scan = |user: u64| {
        let user = [InputValue::Whole(user.into())];
        let scan = table.scan(by_user, &user, &ScanOptions::default());
        let mut scan = scan.expect("such an index");
        let mut look = |row: veche_store::table::Row<'_>| {
            for column in 1..5 {
                if let Cell::Bits(bits) = row.get(column) {
                    sum = sum.wrapping_add(bits);
                }
            }
        };
        table
            .next(&mut scan, 64, 0, &mut look)
            .expect("it is loaded");
    };
    measure("scan of 11 rows, cold", 50_000, 5, |random| {
        scan(random.below(sizes.users))
    });
    measure("scan of 11 rows, hot", 50_000, 5, |random| {
        scan(random.below(100))
    });
    let mut id = rows;
    measure("insert, both indexes", 100_000, 5, |random| {
        let [location, mark, user, at] = sizes.visit(random);
        let row = [id, location, mark, user, at].map(Cell::Bits);
        table
            .put(PutMode::Insert, &row, None, 0)
            .expect("it is new");
        id += 1;
    });
    measure("update, both indexes", 100_000, 5, |random| {
        let [location, mark, user, at] = sizes.visit(random);
        let changes = [(1, location), (2, mark), (3, user), (4, at)];
        let changes = changes.map(|(column, bits)| (column, Cell::Bits(bits)));
        table
            .update(Cell::Bits(random.below(rows)), &changes, None, 0)
            .expect("it fits");
    });
    let info = table.info();
    println!(
        "{} rows, {:.1} MB; {sum}",
        info.rows,
        info.bytes as f64 / 1e6
    );
}
