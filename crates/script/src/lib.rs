//! Applications in Lua: VMs, coroutines, limits, and the modules that scripts can use.
//!
//! There is one [`Vm`] per worker and application. Its handlers run in coroutines and are written in blocking style: an
//! operation that has to wait yields a [`Token`], the worker continues, and the [answer](Vm::answer) resumes the
//! coroutine.
//!
//! This crate does no I/O, does not depend on the hub and reads no clock for scripts. Scripts record their actions as
//! [`Effects`], which the caller executes afterwards; time is an argument ([`Now`]). Begin reading with [`vm`](Vm).
//!
//! # Calls
//!
//! * *Input of clients*: [`Vm::opened`], [`Vm::message`], [`Vm::drained`], [`Vm::closed`], [`Vm::request`],
//!   [`Vm::handshake`], [`Vm::decide`], [`Vm::answer`].
//! * *Input of other servers*: [`Vm::client_opened`], [`Vm::client_failed`], [`Vm::full`]; then the same calls as for clients.
//! * *Time*: [`Vm::turn`], no later than at [`Vm::deadline_ms`].
//! * *After each of these*: [`Vm::take_effects`].
//!
//! Tests of applications are scripts too: see [`TestVm`]. So are the simulated users of a load test: see [`LoadRun`].

mod app;
mod clock;
mod code;
mod connections;
mod host_context;
mod load_run;
mod modules;
mod pattern;
mod program;
mod raw;
mod role;
mod script;
mod streams;
mod task;
mod testing;
mod ttl;
mod utf8;
mod vm;
mod watch;

pub use app::{AppWorld, ScriptApp, ScriptLimits, Snapshots};
pub use code::{CodeError, SourceCode};
pub use load_run::LoadRun;
pub use program::Program;
pub use role::AppRole;
pub use script::Script;
pub use testing::{Ask, Case, Ended, Plain, TestVm};
pub use veche_runtime::{
    ByteSpan, ChannelEventView, Dial, Effect, Effects, HandlerProgress, HandshakeReply, Level,
    PublishGate, Request, ServiceState, SlowHandler, Token, WaitResult, hooks,
};
pub use veche_types::{ConnectionId, MessageKind, Now};
pub use vm::{HandlerName, LoadError, Vm};
