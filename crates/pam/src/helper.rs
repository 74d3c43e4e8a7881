//! The helper process, in which PAM's modules run.
//!
//! It starts with nothing: no environment, no descriptors except its socket, no way to gain privileges, no core dumps.
//! It handles one request at a time, since modules are not thread-safe. When its parent ends, the kernel kills it, even
//! while a module blocks.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use crate::library::PamLibrary;
use crate::raw;
use crate::wire::{PamReply, PamRequest};

/// The argument that makes the program run as a helper; only the server uses it.
pub const ARGUMENT: &str = "pam-helper";

/// Maximum number of descriptors of a helper. It is low because modules that run programs close
/// every possible descriptor in a loop.
const DESCRIPTORS_MAX: u64 = 256;

/// Runs a helper, whose standard input is its socket.
pub fn run() -> ExitCode {
    let socket = match confine() {
        Ok(socket) => socket,
        Err(why) => {
            eprintln!("veche: {ARGUMENT} is for internal use by the server: {why}");
            return ExitCode::FAILURE;
        }
    };
    match serve(socket) {
        Ok(()) => ExitCode::SUCCESS,
        // The parent has ended, so the error can't be reported.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Drops all descriptors and privileges except the socket.
fn confine() -> io::Result<UnixStream> {
    raw::close_others();
    let stdin = io::stdin();
    rustix::net::sockopt::socket_type(&stdin)?;
    let socket = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // Programs started by modules must not inherit the socket as their standard input.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let few = maximum.map_or(DESCRIPTORS_MAX, |maximum| maximum.min(DESCRIPTORS_MAX));
    let few = Rlimit {
        current: Some(few),
        maximum: Some(few),
    };
    setrlimit(Resource::Nofile, few)?;
    Ok(socket)
}

fn serve(mut socket: UnixStream) -> io::Result<()> {
    let library = match PamLibrary::load() {
        Ok(library) => library,
        Err(why) => return PamReply::Unusable(why).write(&mut socket),
    };
    PamReply::Ready.write(&mut socket)?;
    while let Some(request) = PamRequest::read(&mut socket)? {
        let answer = library.authenticate(&request);
        drop(request);
        answer.write(&mut socket)?;
    }
    Ok(())
}
