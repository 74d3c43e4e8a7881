//! Lua's raw API, and everything else that is unsafe: this folder only.
//!
//! `mlua` guards each step of a call, which is right everywhere but on the path of a message. Here a pooled coroutine
//! gets its function and its arguments pushed and is resumed, and the few methods that handlers call for every
//! message are plain C functions.
//!
//! Three rules make it sound:
//! * **No Lua error crosses a Rust frame that owns anything.** C functions here hold no value with a destructor when
//!   they call what may raise an error.
//! * **What pushes from outside can't fail**: memory is refused to runs only ([`memory`]), and the stack has room
//!   ([`ARGUMENTS_MAX`]).
//! * A coroutine that has failed is thrown away.
//!
//! Lua's errors unwind through the C functions here and through `mlua`'s: a build in which Rust can't unwind would end
//! the process at the first one.

#![allow(
    unsafe_code,
    reason = "the one place that speaks Lua's raw API and the system's signals"
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
