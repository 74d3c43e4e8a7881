//! `veche push`: pushes through the push listener.
//!
//! Pushes from standard input are pipelined: up to [`WINDOW`] of them wait for their responses, which a second thread
//! reads. A single line on standard input is sent at once.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use veche_config::{self as config, ListenerRole};
use veche_terminal::exit::{CommandFailure, Exit, print_line};

/// Flags of `veche push`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("to").required(true).args(["user", "users", "channel"]))]
pub(super) struct PushArgs {
    /// To all connections of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// To all connections of these users, separated by commas
    #[arg(long, value_name = "USER,USER", value_delimiter = ',')]
    users: Option<Vec<String>>,
    /// To all subscribers of this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Send a binary message; standard input is then a single message
    #[arg(long, conflicts_with = "json")]
    binary: bool,
    /// DATA is a JSON value
    #[arg(long)]
    json: bool,
    /// The push listener; by default the first of the configuration with role "push"
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,
    /// The message; "-" reads standard input, each line a message
    #[arg(value_name = "DATA")]
    data: OsString,
}

/// Maximum number of pushes that wait for a response.
const WINDOW: usize = 256;
/// The time limit for connecting, sending a line and receiving a response.
const WAIT: Duration = Duration::from_secs(10);
/// Maximum length in bytes of a message, and of a line of standard input.
const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// Maximum length of a response in bytes. A longer response is treated like a closed connection.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Sends the pushes that `args` describe, and prints the result.
pub(super) fn run(file: &Path, args: PushArgs) -> Result<(), CommandFailure> {
    let address = match args.address {
        Some(address) => address,
        None => address_of(file)?,
    };
    let builder = LineBuilder::new(&args);
    if args.data == "-" && !args.binary {
        return stream(
            PushConnection::open(address)?,
            &builder,
            BufReader::new(io::stdin()),
        );
    }
    let mut data = args.data.as_encoded_bytes().to_owned();
    if args.data == "-" {
        data.clear();
        let read = io::stdin()
            .lock()
            .take(MESSAGE_BYTES_MAX + 1)
            .read_to_end(&mut data);
        read.map_err(|error| unreadable(&error))?;
        if data.len() as u64 > MESSAGE_BYTES_MAX {
            return Err(CommandFailure::new(
                Exit::Usage,
                "the message is longer than 16 MiB",
            ));
        }
    }
    let line = builder
        .line(1, &data)
        .map_err(|why| CommandFailure::new(Exit::Usage, why))?;
    let mut connection = PushConnection::open(address)?;
    connection.send(&line)?;
    match connection.answers.next(address)?.outcome {
        Ok(published) => print_line(format_args!("{}", builder.outcome(published))),
        Err(why) => Err(CommandFailure::new(Exit::Refused, why)),
    }
}

/// Returns the address at which this machine reaches the first configured push listener that does not use TLS.
fn address_of(file: &Path) -> Result<SocketAddr, CommandFailure> {
    let config = config::load(file)?;
    let mut listeners = config.listeners.iter();
    let Some(listener) = listeners.find(|one| one.role == ListenerRole::Push && one.tls.is_none())
    else {
        let why = match config.listener(ListenerRole::Push) {
            Some(_) => {
                "all push listeners use TLS, which `veche push` does not support; add one without TLS on loopback"
            }
            None => {
                "there is no push listener; add [[listen]] with role = \"push\", or use --address"
            }
        };
        return Err(CommandFailure::new(
            Exit::Config,
            format!("{}: {why}", veche_terminal::shown(file)),
        ));
    };
    let mut address = listener.address;
    if address.port() == 0 {
        let why = "the push listener uses a port chosen by the system: pass the address that veche status shows with --address";
        return Err(CommandFailure::new(
            Exit::Config,
            format!("{}: {why}", veche_terminal::shown(file)),
        ));
    }
    if address.ip().is_unspecified() {
        let loopback = if address.is_ipv4() {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        };
        address.set_ip(loopback);
    }
    Ok(address)
}

/// Builds the lines that are sent to the push listener.
struct LineBuilder {
    to: (&'static str, Value),
    binary: bool,
    json: bool,
}

impl LineBuilder {
    fn new(args: &PushArgs) -> Self {
        let to = match (&args.user, &args.users, &args.channel) {
            (Some(user), _, _) => ("user", json!(user)),
            (_, Some(users), _) => ("users", json!(users)),
            (_, _, channel) => ("channel", json!(channel)),
        };
        Self {
            to,
            binary: args.binary,
            json: args.json,
        }
    }

    /// Describes a successful push.
    fn outcome(&self, published: Published) -> String {
        match (published.handed, published.nodes) {
            (Some(handed), _) => format!("{}{}", handed_to(handed), self.why(handed)),
            (None, Some(1)) => "published; 1 node has the channel".to_owned(),
            (None, Some(nodes)) => format!("published; {nodes} nodes have the channel"),
            (None, None) => "published".to_owned(),
        }
    }

    /// Returns why a push reached no connection; empty if `handed` is not 0.
    fn why(&self, handed: u64) -> &'static str {
        match self.to.0 {
            _ if handed > 0 => "",
            "user" => ": the user has no connection",
            "users" => ": none of the users has a connection",
            _ => ": the channel has no subscriber",
        }
    }

    fn line(&self, id: u64, data: &[u8]) -> Result<String, String> {
        let (to, recipient) = &self.to;
        let mut push = json!({ *to: recipient, "ack": true, "id": id });
        if self.binary {
            push["binary"] = Value::String(STANDARD.encode(data));
            return Ok(format!("{push}\n"));
        }
        let text = str::from_utf8(data)
            .map_err(|_| "the message is not UTF-8 text; push it with --binary")?;
        push["data"] = match self.json {
            true => serde_json::from_str(text)
                .map_err(|error| format!("the message is not JSON: {error}"))?,
            false => Value::String(text.to_owned()),
        };
        Ok(format!("{push}\n"))
    }
}

struct PushConnection {
    address: SocketAddr,
    out: BufWriter<TcpStream>,
    answers: PushReplies,
}

struct PushReplies(BufReader<TcpStream>);

impl PushConnection {
    fn open(address: SocketAddr) -> Result<Self, CommandFailure> {
        let open = || {
            let socket = TcpStream::connect_timeout(&address, WAIT)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(WAIT))?;
            socket.set_write_timeout(Some(WAIT))?;
            Ok((socket.try_clone()?, socket))
        };
        let (reader, writer) = open().map_err(|error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::ConnectionRefused => "is it running?".to_owned(),
                _ => error.to_string(),
            };
            CommandFailure::new(
                Exit::NoServer,
                format!("no push listener answers at {address}: {why}"),
            )
        })?;
        Ok(Self {
            address,
            out: BufWriter::new(writer),
            answers: PushReplies(BufReader::new(reader)),
        })
    }

    fn send(&mut self, line: &str) -> Result<(), CommandFailure> {
        let sent = self
            .out
            .write_all(line.as_bytes())
            .and_then(|()| self.out.flush());
        sent.map_err(|error| lost(self.address, &error))
    }
}

struct PushReply {
    /// The push's id, if the server could read it.
    id: Option<u64>,
    /// The server's result, or the error.
    outcome: Result<Published, String>,
}

/// The server's result of a push. With the engine on Redis, `handed` is `None`.
#[derive(Clone, Copy)]
struct Published {
    /// The number of connections that accepted the message.
    handed: Option<u64>,
    /// The number of nodes with subscribers of the channel, if the result contains it.
    nodes: Option<u64>,
}

impl PushReplies {
    fn next(&mut self, address: SocketAddr) -> Result<PushReply, CommandFailure> {
        let mut line = String::new();
        let read = (&mut self.0).take(ANSWER_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| lost(address, &error))?;
        if !line.ends_with('\n') {
            return Err(lost(address, &io::ErrorKind::UnexpectedEof.into()));
        }
        let answer: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let id = answer["id"].as_u64();
        if let Some(result) = answer["result"].as_object() {
            let number = |name: &str| result.get(name).and_then(Value::as_u64);
            let published = Published {
                handed: number("handed"),
                nodes: number("nodes"),
            };
            return Ok(PushReply {
                id,
                outcome: Ok(published),
            });
        }
        let Some(message) = answer["error"]["message"].as_str() else {
            let why = format!("the server at {address} is not a push listener of Veche");
            return Err(CommandFailure::new(Exit::NoServer, why));
        };
        let code = answer["error"]["code"]
            .as_u64()
            .map_or_else(String::new, |code| format!(" (error {code})"));
        Ok(PushReply {
            id,
            outcome: Err(format!("{message}{code}")),
        })
    }
}

fn lost(address: SocketAddr, error: &io::Error) -> CommandFailure {
    let why = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("did not respond within {} s", WAIT.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
        _ => format!("is gone: {error}"),
    };
    CommandFailure::new(
        Exit::NoServer,
        format!("the push listener at {address} {why}"),
    )
}

fn unreadable(error: &io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("can't read standard input: {error}"))
}

/// Totals of many pushes.
struct PushTotals {
    pushes: u64,
    /// The number of connections that accepted a push, summed over all pushes; `None` if it is
    /// unknown for one of them.
    handed: Option<u64>,
    failed: u64,
}

fn stream(
    connection: PushConnection,
    builder: &LineBuilder,
    input: BufReader<impl Read>,
) -> Result<(), CommandFailure> {
    let PushConnection {
        address,
        out,
        answers,
    } = connection;
    let (tokens, waiting) = sync_channel(WINDOW);
    let reader = thread::spawn(move || collect(answers, address, &waiting));
    let mut sender = Sender {
        address,
        out,
        tokens,
        skipped: 0,
    };
    let sent = sender.all(builder, input);
    let skipped = sender.skipped;
    // This closes the channel of tokens, so the reader stops after the last pending response.
    drop(sender);
    // If both threads have failed, the reader's error is reported, because it contains the server's response.
    let sum = reader
        .join()
        .expect("the reader thread must return errors instead of panicking")?;
    sent?;
    let failed = sum.failed + skipped;
    let plural = if sum.pushes == 1 { "push" } else { "pushes" };
    let handed = sum.handed.map_or_else(String::new, |handed| {
        format!(", {} in all{}", handed_to(handed), builder.why(handed))
    });
    print_line(format_args!("{} {plural}{handed}", sum.pushes))?;
    if failed > 0 {
        let lines = sum.pushes + failed;
        return Err(CommandFailure::new(
            Exit::Refused,
            format!("{failed} of {lines} lines were not pushed"),
        ));
    }
    Ok(())
}

struct Sender {
    address: SocketAddr,
    out: BufWriter<TcpStream>,
    /// Contains one token for each push without a response. A full channel blocks further pushes.
    tokens: SyncSender<()>,
    skipped: u64,
}

impl Sender {
    fn all(
        &mut self,
        builder: &LineBuilder,
        mut input: BufReader<impl Read>,
    ) -> Result<(), CommandFailure> {
        let mut data = Vec::new();
        for number in 1.. {
            if input.buffer().is_empty() {
                // Reading the next line may take long, so pending data is sent first.
                self.flush()?;
            }
            data.clear();
            let read = (&mut input)
                .take(MESSAGE_BYTES_MAX + 1)
                .read_until(b'\n', &mut data);
            if read.map_err(|error| unreadable(&error))? == 0 {
                break;
            }
            if data.pop_if(|last| *last == b'\n').is_none() && data.len() as u64 > MESSAGE_BYTES_MAX
            {
                return Err(CommandFailure::new(
                    Exit::Usage,
                    format!("line {number} is longer than 16 MiB"),
                ));
            }
            match builder.line(number, &data) {
                Ok(line) => {
                    if !self.push(&line)? {
                        break;
                    }
                }
                Err(why) => {
                    eprintln!("veche: line {number}: {why}");
                    self.skipped += 1;
                }
            }
        }
        self.flush()
    }

    /// Sends a push. Returns false if the thread that reads the responses has failed; that thread
    /// reports the error.
    fn push(&mut self, line: &str) -> Result<bool, CommandFailure> {
        match self.tokens.try_send(()) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(())) => return Ok(false),
            Err(TrySendError::Full(())) => {
                self.flush()?;
                if self.tokens.send(()).is_err() {
                    return Ok(false);
                }
            }
        }
        self.out
            .write_all(line.as_bytes())
            .map_err(|error| lost(self.address, &error))?;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), CommandFailure> {
        self.out.flush().map_err(|error| lost(self.address, &error))
    }
}

fn collect(
    mut answers: PushReplies,
    address: SocketAddr,
    waiting: &Receiver<()>,
) -> Result<PushTotals, CommandFailure> {
    let mut sum = PushTotals {
        pushes: 0,
        handed: Some(0),
        failed: 0,
    };
    while waiting.recv().is_ok() {
        let PushReply { id, outcome } = answers.next(address)?;
        match outcome {
            Ok(published) => {
                sum.pushes += 1;
                sum.handed = sum
                    .handed
                    .zip(published.handed)
                    .map(|(sum, handed)| sum + handed);
            }
            Err(why) => {
                let line = id.map_or_else(String::new, |id| format!("line {id}: "));
                eprintln!("veche: {line}{why}");
                sum.failed += 1;
            }
        }
    }
    Ok(sum)
}

fn handed_to(count: u64) -> String {
    format!(
        "handed to {count} connection{}",
        if count == 1 { "" } else { "s" }
    )
}
