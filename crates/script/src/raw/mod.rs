//! Lua's raw API, and all other unsafe code of this crate.
//!
//! `mlua` protects each step of a call, which is too slow for the path of a message. Here a
//! function and its arguments are pushed onto a pooled coroutine, which is then resumed. The few
//! methods that handlers call for every message are plain C functions.
//!
//! Three rules make this code sound:
//! * **No Lua error crosses a Rust frame that owns anything.** C functions here hold no value with a destructor when
//!   they call functions that may raise an error.
//! * **Pushing values while no script runs can't fail**: allocations are refused only during a run ([`memory`]), and the stack
//!   has room ([`ARGUMENTS_MAX`]).
//! * A coroutine that has failed is discarded.
//!
//! Lua's errors unwind through the C functions here and through those of `mlua`: a build without unwinding would abort
//! the process at the first error.

#![allow(
    unsafe_code,
    reason = "the only module that uses Lua's raw API and the system's signals"
)]

#[cfg(panic = "abort")]
compile_error!("Lua's errors unwind through Rust: build with panic = \"unwind\"");

mod clients;
mod functions;
mod gc_schedule;
mod kill;
mod machine;
mod memory;
mod natives;
mod object;
mod redis;
mod system;
mod tables;

pub(crate) use kill::{KillReason, is_run_over, kill_reason, kill_run};
pub(crate) use machine::{Argument, Coroutine, LuaError, LuaVm, MemoryRoom, Reference, RunEnd};
pub(crate) use memory::{IsShort, VmMemory};
pub(crate) use natives::Natives;
pub(crate) use system::{cpu_ns, learn_stack, note_stack, on_signal, peek, signal};
pub(crate) use tables::bound::BoundTables;
