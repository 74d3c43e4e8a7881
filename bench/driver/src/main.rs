//! The load driver: one thread, one epoll, plain sockets, every answer verified byte by byte. It prints one JSON
//! object per run and knows nothing about the server beyond its address and, for CPU time and memory, its pid.
//! `bench/run` calls it and compares; it can be used by hand just as well.

mod closed_loop;
mod cpu;
mod fanout;
mod fleet;
mod frame;
mod handshake;
mod idle;
mod open_loop;
mod poll;
mod push;
mod send_alone;
mod shakes;
mod storm;
mod stream;
mod tls;

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Load driver for WebSocket servers; one JSON object per run")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What every load of connections needs.
#[derive(Args, Clone)]
struct Target {
    /// Address of the server.
    #[arg(long)]
    address: SocketAddr,
    /// Request target of the handshake.
    #[arg(long, default_value = "/")]
    path: String,
    /// Connections.
    #[arg(long, short = 'c', default_value_t = 240)]
    connections: usize,
    /// Handshakes at a time while opening.
    #[arg(long, default_value_t = 100)]
    opening: usize,
    /// Speak TLS 1.3 with AES-128-GCM.
    #[arg(long)]
    tls: bool,
    /// Server process whose CPU time is taken over the measured interval.
    #[arg(long)]
    pid: Option<u32>,
}

#[derive(Subcommand)]
enum Command {
    /// Closed loop: each active connection has DEPTH messages in flight and sends the next when all came back.
    Echo {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        plan: closed_loop::Plan,
    },
    /// Open loop at a fixed rate; latency counts from the intended time of each send.
    Rate {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        plan: open_loop::Plan,
    },
    /// Handshakes as fast as they go, one message and its answer each; `--opening 0` is all at once.
    Storm {
        #[command(flatten)]
        target: Target,
        #[arg(long, default_value_t = 20)]
        size: usize,
        /// The server pushes nothing back: no message, handshakes only.
        #[arg(long)]
        silent: bool,
        #[arg(long, default_value_t = 60_000)]
        deadline_ms: u64,
    },
    /// TLS handshakes and nothing else, one after the other on each of the connections.
    Shakes {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        plan: shakes::Plan,
    },
    /// Open the connections, print one line, hold them until standard input ends.
    Idle {
        #[command(flatten)]
        target: Target,
        /// `?user=` names of this many bytes are appended to the path; 0 for none.
        #[arg(long, default_value_t = 0)]
        user_bytes: usize,
    },
    /// Users on one side, one TCP connection with a JSON object a line on the other; counts and verifies arrivals.
    Push {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        plan: push::Plan,
    },
    /// Subscribers of one channel, and a publisher that publishes a burst when all have the last one.
    Fanout {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        plan: fanout::Plan,
    },
    /// Not a load but the yardstick of `push` and `fanout`: a server that does nothing but epoll and one send per message.
    SendAlone {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        control: SocketAddr,
        #[arg(long, default_value_t = 20)]
        size: usize,
        /// Each byte is for all receivers, not for the next one.
        #[arg(long)]
        all: bool,
    },
}

fn main() -> anyhow::Result<()> {
    cpu::raise_descriptor_limit()?;
    let report = match Cli::parse().command {
        Command::Echo { target, plan } => serde_json::to_value(closed_loop::run(&target, &plan)?)?,
        Command::Rate { target, plan } => serde_json::to_value(open_loop::run(&target, &plan)?)?,
        Command::Storm {
            target,
            size,
            silent,
            deadline_ms,
        } => {
            let size = (!silent).then_some(size);
            serde_json::to_value(storm::run(&target, size, deadline_ms)?)?
        }
        Command::Shakes { target, plan } => serde_json::to_value(shakes::run(&target, &plan)?)?,
        Command::Idle { target, user_bytes } => {
            serde_json::to_value(idle::run(&target, user_bytes)?)?
        }
        Command::Push { target, plan } => serde_json::to_value(push::run(&target, &plan)?)?,
        Command::Fanout { target, plan } => serde_json::to_value(fanout::run(&target, &plan)?)?,
        Command::SendAlone {
            address,
            control,
            size,
            all,
        } => return send_alone::run(address, control, size, all),
    };
    println!("{report}");
    Ok(())
}
