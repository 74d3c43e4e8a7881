//! Applications in Lua: VMs, coroutines, limits, and what scripts can call.
//!
//! There is one [`Vm`] per worker and application. Its handlers run in coroutines and are written as if they blocked:
//! what has to be waited for yields a [`Token`], the worker goes on, and the [answer](Vm::answer) resumes it.
//!
//! This crate knows no socket, no hub and no clock. What scripts want done they leave as [`Effects`], which whoever
//! runs them carries out afterwards; time is an argument ([`Now`]). Begin with [`vm`](Vm).
//!
//! # Calls
//!
//! * *The world speaks*: [`Vm::opened`], [`Vm::message`], [`Vm::drained`], [`Vm::closed`], [`Vm::request`],
//!   [`Vm::handshake`], [`Vm::decide`], [`Vm::answer`].
//! * *Other servers speak*: [`Vm::client_opened`], [`Vm::client_failed`], [`Vm::client_full`]; then as a client.
//! * *Time passes*: [`Vm::turn`], at [`Vm::deadline_ms`] at the latest.
//! * *After each of them*: [`Vm::take_effects`].
//!
//! Tests of applications are scripts too: see [`TestVm`]. So are users of a server under load: see [`LoadRun`].

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
