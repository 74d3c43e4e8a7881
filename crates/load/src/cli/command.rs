//! What the load tester can be asked: its subcommands, and the plans that they come to.

use clap::Subcommand;
use veche_terminal::exit::CommandFailure;

use super::options::{
    BroadcastArgs, CommonArgs, CompareArgs, EchoArgs, HttpArgs, PushArgs, ScriptArgs, ShootoutArgs,
    StormArgs,
};
use super::plan;
use super::scenario::ScenarioArgs;
use crate::plan::Plan;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Open many connections, and exchange one message on each
    Storm(StormArgs),
    /// Send messages and time their answers
    Echo(EchoArgs),
    /// Publish to all receivers, time the deliveries, and keep a ledger of every one
    Broadcast(BroadcastArgs),
    /// Push to users one by one, as a back end does, and keep a ledger of every one
    Push(PushArgs),
    /// Add clients until round trips take too long, in the protocol of "websocket-shootout"
    Shootout(ShootoutArgs),
    /// Send HTTP requests and time their responses
    Http(HttpArgs),
    /// Let a script play the users, and time what they do
    Script(ScriptArgs),
    /// Run the phases of a file, and hold the server to its promises
    Scenario(ScenarioArgs),
    /// Put reports of --json side by side, with ratios, and say what is noise
    Compare(CompareArgs),
    /// One process of several; started by the first
    #[command(hide = true)]
    Member,
}

impl BenchCommand {
    /// Its name, its flags, and the plan that they come to; `None` for what is no single run.
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

    /// The promises of a search for the highest rate; empty without one.
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
