//! The program; all of it is in the library of the same name, so that fuzzers reach what is in it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    veche::main()
}
