//! The program; all of it is in the library of the same name, so that fuzzers reach what is in it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Gives back to the system what a spike has left: docs/decisions/16-allocator.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    veche::main()
}
