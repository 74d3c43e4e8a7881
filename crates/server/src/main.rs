//! The program. All code is in the library of the same name, so that fuzz targets can reach it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The allocator returns memory to the system after a spike; see docs/decisions/16-allocator.md.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    veche::main()
}
