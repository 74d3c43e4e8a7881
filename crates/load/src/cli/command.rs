//! The subcommands of the load tester, and their plans.

use clap::Subcommand;
use veche_terminal::exit::CommandFailure;

use super::options::{
    BroadcastArgs, CommonArgs, CompareArgs, EchoArgs, HttpArgs, PushLoadArgs, ScriptArgs,
    ShootoutArgs, StormArgs,
};
use super::plan;
use super::scenario::ScenarioArgs;
use crate::plan::Plan;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Open many connections and exchange one message on each
    Storm(StormArgs),
    /// Send messages and time their answers
    Echo(EchoArgs),
    /// Publish to all receivers, time the deliveries, and account for each one
    Broadcast(BroadcastArgs),
    /// Push to users individually, as a back end does, and account for each delivery
    Push(PushLoadArgs),
    /// Add clients until round trips take too long, in the protocol of "websocket-shootout"
    Shootout(ShootoutArgs),
    /// Send HTTP requests and time their responses
    Http(HttpArgs),
    /// Simulate users with a Lua script, and time their actions
    Script(ScriptArgs),
    /// Run the phases of a file, and check their objectives
    Scenario(ScenarioArgs),
    /// Compare reports of --json, with ratios and their noise
    Compare(CompareArgs),
    /// A worker process, started by the first process
    #[command(hide = true)]
    Member,
}

impl BenchCommand {
    /// Returns the command's name, its common flags, and the plan of the run; `None` for commands that are not a single run.
    pub(super) fn plan(&self) -> Option<(&'static str, &CommonArgs, Result<Plan, CommandFailure>)> {
        Some(match self {
            Self::Storm(args) => ("storm", &args.common, plan::storm(args)),
            Self::Echo(args) => ("echo", &args.common, plan::echo(args)),
            Self::Broadcast(args) => ("broadcast", &args.common, plan::broadcast(args)),
            Self::Push(args) => ("push", &args.common, plan::push(args)),
            Self::Shootout(args) => ("shootout", &args.common, plan::shootout(args)),
            Self::Http(args) => ("http", &args.common, plan::http(args)),
            Self::Script(_) | Self::Scenario(_) | Self::Compare(_) | Self::Member => return None,
        })
    }

    /// Returns the objectives of a search for the highest rate; empty if the command does not
    /// search.
    pub(super) fn promises(&self) -> &[String] {
        match self {
            Self::Echo(args) => &args.find_rate,
            Self::Http(args) => &args.find_rate,
            Self::Broadcast(args) => &args.publish.find_rate,
            Self::Push(args) => &args.publish.find_rate,
            Self::Storm(_)
            | Self::Shootout(_)
            | Self::Script(_)
            | Self::Scenario(_)
            | Self::Compare(_)
            | Self::Member => &[],
        }
    }
}
