//! The capacity of lists. It grows in steps, and unused capacity is released, so that a table takes little more memory than its
//! values.

/// Returns the heap memory in bytes of an allocation with the given size, including the allocator's overhead.
pub(super) fn heap_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => (bytes + 8).next_multiple_of(16).max(32),
    }
}

/// Reserves room for `more` items; the capacity grows in multiples of `step`.
pub(super) fn make_room<T>(list: &mut Vec<T>, more: usize, step: usize) {
    let needed = list.len() + more;
    if needed > list.capacity() {
        let capacity = needed.next_multiple_of(step.max(needed / 8));
        // A list of up to eight items does not reserve a whole step.
        let capacity = if needed <= 8 { 8 } else { capacity };
        list.reserve_exact(capacity - list.len());
    }
}

pub(super) fn release_room<T>(list: &mut Vec<T>, step: usize) {
    if list.capacity() - list.len() > 2 * step.max(list.len() / 4) {
        list.shrink_to(list.len().next_multiple_of(step));
    }
}
