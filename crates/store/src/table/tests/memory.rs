//! Tests of the memory that a table takes for many rows.

use super::*;

#[test]
fn memory_of_many_rows_in_any_order_is_as_expected() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut order: Vec<i128> = (0..50_000).collect();
    random.shuffle(&mut order);
    let table = visits();
    for id in order {
        let mut any = |most: u32| whole(random.u32(..most).into());
        let values = [whole(id), any(5000), any(6), any(5000), any(1 << 30)];
        table
            .put(PutMode::Insert, &row(&table, &values), None, 0)
            .expect("room");
    }
    table.check();
    let info = table.info();
    assert!(info.bytes < 50_000 * 27, "{info:?}");
    for id in 0..50_000 {
        table.delete(Cell::Bits(id), 0).expect("there");
    }
    table.check();
    let info = table.info();
    assert!(info.rows == 0 && info.bytes < 5000, "{info:?}");
}
