//! A run in several processes: the first one leads, the others are members, which it starts, tells when to begin and
//! end, and whose tallies it adds up.
//!
//! They talk in lines. To a member: its part of the plan, then [`Order`]s. From a member: [`News`]. The monotonic
//! clock is the same for all of them, so "start" can name a time.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::control::Sums;
use crate::crew::{Crew, GLANCE};
use crate::plan::Plan;
use crate::tally::Tally;

/// What a member is.
#[derive(Serialize, Deserialize)]
struct Part {
    plan: Plan,
    process: u32,
}

/// What a member is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    Start { at_ns: u64 },
    Stop,
    Hold(bool),
}

/// What a member tells.
#[derive(Debug, Serialize, Deserialize)]
enum News {
    Live(Sums),
    Tally(Box<Tally>),
    Failed(String),
}

/// Runs one process's part, as a member: orders come in, news go out. For the program that the leader starts.
///
/// # Errors
/// The leader is gone, or was none.
pub fn serve(orders: impl io::Read + Send + 'static, mut news: impl Write) -> io::Result<()> {
    let mut orders = BufReader::new(orders);
    let mut line = String::new();
    orders.read_line(&mut line)?;
    let part: Part = serde_json::from_str(&line)?;
    let crew = Crew::muster(&Arc::new(part.plan), part.process)?;
    let control = Arc::clone(&crew.control);
    thread::spawn(move || {
        for line in orders.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Start { at_ns }) => control.start_at(at_ns),
                Ok(Order::Stop) => control.stop(),
                Ok(Order::Hold(held)) => control.hold(held),
                Err(_) => break,
            }
        }
        // Nobody leads any more.
        control.stop();
        control.stop();
    });
    while !crew.is_finished() {
        tell(&mut news, &News::Live(crew.control.sums()))?;
        thread::sleep(GLANCE);
    }
    tell(&mut news, &News::Live(crew.control.sums()))?;
    match crew.dismiss() {
        Ok(tally) => tell(&mut news, &News::Tally(Box::new(tally))),
        Err(error) => tell(&mut news, &News::Failed(error.to_string())),
    }
}

fn tell(out: &mut impl Write, news: &News) -> io::Result<()> {
    let mut line = serde_json::to_vec(news)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// A member as its leader sees it.
#[derive(Debug)]
pub(crate) struct Member {
    child: Child,
    orders: Option<ChildStdin>,
    state: Arc<Mutex<Sums>>,
    reader: Option<JoinHandle<io::Result<Tally>>>,
}

impl Member {
    /// Starts `program` (with `arguments`), which is to call [`serve`].
    pub(crate) fn start(program: &Command, plan: &Plan, process: u32) -> io::Result<Self> {
        let mut command = Command::new(program.get_program());
        command
            .args(program.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the leader.
            .process_group(0);
        let mut child = command.spawn()?;
        let (Some(mut orders), Some(news)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a process without pipes"));
        };
        let part = Part {
            plan: plan.clone(),
            process,
        };
        let mut line = serde_json::to_vec(&part)?;
        line.push(b'\n');
        orders.write_all(&line)?;
        let state = Arc::new(Mutex::new(Sums::default()));
        let shared = Arc::clone(&state);
        let reader = thread::spawn(move || {
            let result = read(BufReader::new(news), &shared);
            // Nobody is to wait for a member that has failed.
            let mut sums = shared.lock();
            (sums.ready, sums.done, sums.finished) = (true, true, true);
            result
        });
        Ok(Self {
            child,
            orders: Some(orders),
            state,
            reader: Some(reader),
        })
    }

    pub(crate) fn sums(&self) -> Sums {
        *self.state.lock()
    }

    pub(crate) fn start_at(&mut self, at_ns: u64) {
        self.order(Order::Start { at_ns });
    }

    pub(crate) fn stop(&mut self) {
        self.order(Order::Stop);
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.order(Order::Hold(held));
    }

    /// One that does not hear is told by its reader.
    fn order(&mut self, order: Order) {
        if let (Some(orders), Ok(mut line)) = (&mut self.orders, serde_json::to_vec(&order)) {
            line.push(b'\n');
            let _ = orders.write_all(&line);
        }
    }

    pub(crate) fn dismiss(mut self) -> io::Result<Tally> {
        let reader = self.reader.take();
        let result = reader.map(JoinHandle::join);
        self.orders = None;
        self.child.wait()?;
        result
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(io::Error::other("a process of the tester has panicked")))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Without orders it ends by itself.
        self.orders = None;
    }
}

fn read(news: impl BufRead, state: &Mutex<Sums>) -> io::Result<Tally> {
    for line in news.lines() {
        match serde_json::from_str(&line?)? {
            News::Live(sums) => {
                *state.lock() = sums;
            }
            News::Tally(tally) => return Ok(*tally),
            News::Failed(words) => return Err(io::Error::other(words)),
        }
    }
    Err(io::Error::other("a process of the tester has died"))
}
