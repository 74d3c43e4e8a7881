//! The helper: the process in which PAM's modules run.
//!
//! It has what it was started with, which is nothing: no environment, no descriptors but its socket, no way to more rights,
//! no dumps of its memory. It judges one question at a time, since modules are not made for threads, and ends when
//! whoever has started it goes: the kernel kills it then, even where it waits for a module.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use crate::library::Library;
use crate::raw;
use crate::wire::{Answer, Question};

/// The argument by which the program is a helper; nobody but the server has a use for it.
pub const ARGUMENT: &str = "pam-helper";

/// Descriptors that a helper may have: modules that run programs close each that there might be, one by one.
const DESCRIPTORS_MAX: u64 = 256;

/// The whole life of a helper, whose standard input is its socket.
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
        // Whoever would want to know has gone.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Gives up what it does not need; the socket is what is left.
fn confine() -> io::Result<UnixStream> {
    raw::close_others();
    let stdin = io::stdin();
    rustix::net::sockopt::socket_type(&stdin)?;
    let socket = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // Programs that modules run get to see neither.
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
    let library = match Library::load() {
        Ok(library) => library,
        Err(why) => return Answer::Unusable(why).write(&mut socket),
    };
    Answer::Ready.write(&mut socket)?;
    while let Some(question) = Question::read(&mut socket)? {
        let answer = library.judge(&question);
        drop(question);
        answer.write(&mut socket)?;
    }
    Ok(())
}
