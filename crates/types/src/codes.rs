//! The numbered table of codes: closes of WebSockets, ends and errors of Centrifugo's protocol, errors of the back
//! end's API, and exit codes of commands. Nothing else defines a code; `docs/reference/codes.md` is written from it.
//!
//! It does not know when a code is used: that is up to the code that refers to it.

use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Close codes that applications and back ends may choose. SDKs of Centrifugo's protocol connect again after any code
/// but 3500 to 3999 and 4500 to 4999.
pub const CHOSEN: RangeInclusive<u16> = 3000..=4999;

/// Longest reason that fits a Close frame beside its code, in bytes (RFC 6455, section 5.5).
pub const REASON_BYTES_MAX: usize = 123;

/// Where a code appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The Close frame of a WebSocket.
    WebSocket,
    /// The close of a connection that speaks Centrifugo's protocol.
    CentrifugeDisconnect,
    /// The end of a subscription of Centrifugo's protocol.
    CentrifugeUnsubscribe,
    /// The reply to a command of Centrifugo's protocol.
    CentrifugeError,
    /// An answer of the back end's API.
    Api,
    /// The exit code of a command.
    Exit,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The number that is sent.
    pub number: u32,
    /// The name in the sources.
    pub name: &'static str,
    /// The text that is sent with it; empty where each case has its own.
    pub text: &'static str,
    /// The meaning, in parts that follow each other.
    pub meaning: &'static [&'static str],
    /// Whether a client connects, subscribes or sends its command again by itself; `None` where no client is concerned.
    pub is_retried: Option<bool>,
    /// Where it is used.
    pub places: &'static [Place],
}

/// Declares an enum of codes. A row has a number, a text and whether clients try again; its comment is the meaning.
macro_rules! codes {
    (@retry again) => { Some(true) };
    (@retry for_good) => { Some(false) };
    (@retry no_client) => { None };
    (@places [$($group:ident)+]) => { &[$(Place::$group),+] };
    (@places [$($group:ident)+] $($place:ident)+) => { &[$(Place::$place),+] };
    ($(#[$about:meta])* $name:ident: $number:ty, $places:tt {
        $($(#[doc = $meaning:literal])* $variant:ident = $code:literal $text:literal $retry:ident $($place:ident)*,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $meaning])* $variant,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the number that is sent.
            #[must_use]
            pub const fn code(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Returns the text that is sent with it.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// Returns its row of the table.
            #[must_use]
            pub const fn row(self) -> Code {
                match self {
                    $(Self::$variant => Code {
                        number: $code,
                        name: stringify!($variant),
                        text: $text,
                        meaning: &[$($meaning),*],
                        is_retried: codes!(@retry $retry),
                        places: codes!(@places $places $($place)*),
                    },)*
                }
            }
        }
    };
}

codes! {
    /// Closes of WebSockets. Numbers below 3000 are defined by RFC 6455 and IANA's registry; 3000 to 3999 are those
    /// that clients of Centrifugo's protocol know.
    CloseCode: u16, [WebSocket] {
        /// The purpose is fulfilled.
        Normal = 1000 "" for_good,
        /// The server stops.
        GoingAway = 1001 "server is going away" again,
        /// No message in either direction for longer than the route allows.
        Idle = 1001 "idle for too long" again,
        /// A reload removed the application.
        ApplicationGone = 1001 "the application is gone" again,
        /// A connection that a script made: the code that made it ended, or the server stops.
        DialerGone = 1001 "going away" no_client,
        /// The peer broke the protocol; the text says how.
        ProtocolError = 1002 "" for_good,
        /// A Close frame without a code; never sent.
        NoCode = 1005 "" for_good,
        /// The connection ended without a Close frame; never sent.
        Abnormal = 1006 "" again,
        /// Text that is not UTF-8, or compressed data that can't be inflated; the text says which.
        InvalidData = 1007 "" for_good,
        /// The client sends more than its route allows.
        TooFast = 1008 "too much too fast" again,
        /// A message over a limit of the route; the text says which.
        TooBig = 1009 "" for_good,
        /// A handler of the application failed.
        Failed = 1011 "internal error" again,
        /// A connection that a script made, and the application is at its memory limit.
        OutOfMemory = 1011 "not enough memory" no_client,
        /// Another server process has taken over; a client that connects again reaches it.
        Restarting = 1012 "server is restarting" again,
        /// The client does not read what it is sent.
        SlowConsumer = 1013 "too slow: try again later" again,
        /// The client's address has as many connections as it may have.
        TooMany = 1013 "too many connections of this address" again,
        /// Nothing had time for a message: all processes of the application were busy for longer than it may wait.
        AppBusy = 1013 "the application is too busy: try again later" again,
        /// Channels of the session can't be subscribed to for now.
        Unavailable = 1013 "channels are not available: try again later" again,
        /// The credentials of the client have expired, and it sent no others.
        Expired = 3005 "connection expired" again,
        /// Publications of a channel may be missing and can't be recovered; a client that reconnects loads the state.
        InsufficientState = 3010 "insufficient state" again,
        /// The back end disconnected the client.
        Disconnected = 3503 "disconnected by the back end" for_good,
        /// The back end blocks the user.
        Blocked = 3507 "permission denied" for_good,
    }
}

codes! {
    /// Errors of commands. An application's own errors have numbers from 400 to 1999.
    ErrorCode: u32, [CentrifugeError] {
        /// The server's fault; worth another try.
        Internal = 100 "internal server error" again CentrifugeError Api,
        /// The command needs a user, or another one; a call of the API needs a key.
        Unauthorized = 101 "unauthorized" for_good CentrifugeError Api,
        /// No such channel, or its namespace is unknown.
        UnknownChannel = 102 "unknown channel" for_good CentrifugeError Api,
        /// This user or this key may not.
        PermissionDenied = 103 "permission denied" for_good CentrifugeError Api,
        /// No such method.
        MethodNotFound = 104 "method not found" for_good CentrifugeError Api,
        /// This connection is subscribed to the channel.
        AlreadySubscribed = 105 "already subscribed" for_good,
        /// More than a limit allows.
        LimitExceeded = 106 "limit exceeded" for_good CentrifugeError Api,
        /// The command itself is wrong: another try is of no use.
        BadRequest = 107 "bad request" for_good CentrifugeError Api,
        /// Not enabled for this channel or this server.
        NotAvailable = 108 "not available" for_good CentrifugeError Api,
        /// The token is too old: SDKs ask for a new one and try again.
        TokenExpired = 109 "token expired" for_good,
        /// The connection's time is over, and no token can change it.
        Expired = 110 "expired" for_good,
        /// Too fast; worth another try.
        TooManyRequests = 111 "too many requests" again CentrifugeError Api,
        /// The stream does not hold what was asked for any more.
        UnrecoverablePosition = 112 "unrecoverable position" for_good CentrifugeError Api,
        /// Another page of the same channel is on its way; worth another try.
        ConcurrentPagination = 113 "concurrent pagination" again,
    }
}

codes! {
    /// Ends of subscriptions by the server.
    UnsubscribeCode: u32, [CentrifugeUnsubscribe] {
        /// The server wanted it so, for good.
        Server = 2000 "server unsubscribe" for_good,
        /// The client may have missed something: it subscribes again and recovers.
        InsufficientState = 2500 "insufficient state" again,
        /// The subscription's time is over: the client asks for a new token and subscribes again.
        Expired = 2501 "subscription expired" again,
        /// What the client keeps and its token hold no more: it forgets both and subscribes again.
        StateInvalidated = 2502 "state invalidated" again,
    }
}

codes! {
    /// Closes by the server of connections that speak Centrifugo's protocol: in the Close frame, or in a push.
    DisconnectCode: u16, [CentrifugeDisconnect] {
        /// Closed without advice.
        ConnectionClosed = 3000 "connection closed" again,
        /// The server ends.
        Shutdown = 3001 "shutdown" again,
        /// The server's fault.
        Internal = 3004 "internal server error" again,
        /// The connection's time is over.
        Expired = 3005 "connection expired" again,
        /// A subscription's time is over.
        SubscriptionExpired = 3006 "subscription expired" again,
        /// The client reads too slowly.
        Slow = 3008 "slow" again,
        /// Writing to the client failed.
        WriteError = 3009 "write error" again,
        /// The client may have missed something: it connects again and recovers.
        InsufficientState = 3010 "insufficient state" again,
        /// The server wanted it so, and the client to come back.
        ForceReconnect = 3011 "force reconnect" again,
        /// No answer to a ping in time.
        NoPong = 3012 "no pong" again,
        /// Too many commands.
        TooManyRequests = 3013 "too many requests" again,
        /// What the client keeps and its token hold no more: it forgets both and connects again.
        StateInvalidated = 3014 "state invalidated" again,
        /// The token does not hold.
        InvalidToken = 3500 "invalid token" for_good,
        /// What came was not the protocol.
        BadRequest = 3501 "bad request" for_good,
        /// No connect command in time.
        Stale = 3502 "stale" for_good,
        /// The server wanted it so, for good.
        ForceNoReconnect = 3503 "force disconnect" for_good,
        /// More connections than allowed.
        ConnectionLimit = 3504 "connection limit" for_good,
        /// More channels than allowed.
        ChannelLimit = 3505 "channel limit" for_good,
        /// Binary data for a client that speaks JSON; Centrifugo closes with it, Veche sends base64 instead.
        InappropriateProtocol = 3506 "inappropriate protocol" for_good,
        /// This user may not.
        PermissionDenied = 3507 "permission denied" for_good,
        /// What was sent is not enabled here.
        NotAvailable = 3508 "not available" for_good,
        /// Too many commands that failed.
        TooManyErrors = 3509 "too many errors" for_good,
    }
}

codes! {
    /// Exit codes of commands, which scripts rely on.
    Exit: u8, [Exit] {
        /// The command did what it was asked.
        Ok = 0 "done" no_client,
        /// A configuration or a test has problems.
        Config = 1 "the configuration has errors or cannot be read; test: a test has failed" no_client,
        /// The command line makes no sense.
        Usage = 2 "the command line is invalid" no_client,
        /// No server answers.
        NoServer = 3 "no server answers" no_client,
        /// The server answered with an error.
        Refused = 4 "the server answered with an error, for one push at least if there were several" no_client,
        /// The system refused something.
        Failed = 5 "a system error: an address in use, a full disk, a missing permission" no_client,
        /// The server outlasted the wait for its end.
        TimedOut = 6 "the server was still running after the wait" no_client,
        /// The server was killed before its drain was done.
        Killed = 7 "serve: the server was killed before its drain was done (a second signal, stop --now, the end of drain_time), so connections may have been cut" no_client,
        /// A run of the load tester went wrong in part.
        Errors = 8 "bench: the report has errors, or a scenario broke a promise" no_client,
        /// A run of the load tester was interrupted.
        Interrupted = 130 "bench: a signal ended the run; the report covers the time until then" no_client,
    }
}

/// Returns all rows, by what they end or answer and then by number.
pub fn all() -> impl Iterator<Item = Code> {
    let closes = CloseCode::ALL.iter().map(|code| code.row());
    let disconnects = DisconnectCode::ALL.iter().map(|code| code.row());
    let unsubscribes = UnsubscribeCode::ALL.iter().map(|code| code.row());
    let errors = ErrorCode::ALL.iter().map(|code| code.row());
    let exits = Exit::ALL.iter().map(|code| code.row());
    closes
        .chain(disconnects)
        .chain(unsubscribes)
        .chain(errors)
        .chain(exits)
}

impl CloseCode {
    /// Returns the number and the text, as a Close frame has them.
    #[must_use]
    pub const fn parts(self) -> (u16, &'static str) {
        (self.code(), self.words())
    }

    /// Returns the close that has this number and this text.
    #[must_use]
    pub fn with_parts(code: u16, text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|close| close.parts() == (code, text))
    }
}

impl ErrorCode {
    /// Returns the error with this number.
    #[must_use]
    pub fn with_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.code() == number)
    }

    /// Whether the same command may succeed later: SDKs try such again by themselves.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self.row().is_retried, Some(true))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Whether a Close frame may have that code (RFC 6455, section 7.4). 1004, 1005, 1006 and 1015 are for reporting only,
/// 1016 to 2999 are reserved, below 1000 and from 5000 on there are no codes.
#[must_use]
pub const fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether SDKs subscribe again after an unsubscribe with that code.
    fn resubscribes(code: u32) -> bool {
        code >= 2500
    }

    /// Whether SDKs connect again after a close with that code.
    fn reconnects(code: u16) -> bool {
        !matches!(code, 3500..=3999 | 4500..=4999)
    }

    #[test]
    fn the_table_agrees_with_the_rules_by_number() {
        for code in DisconnectCode::ALL {
            assert_eq!(code.row().is_retried, Some(reconnects(code.code())));
        }
        for code in UnsubscribeCode::ALL {
            assert_eq!(code.row().is_retried, Some(resubscribes(code.code())));
        }
        for code in CloseCode::ALL.iter().filter(|code| code.code() >= 3000) {
            assert_eq!(code.row().is_retried, Some(reconnects(code.code())));
        }
    }

    #[test]
    fn three_errors_are_temporary() {
        let temporary: Vec<u32> = ErrorCode::ALL
            .iter()
            .filter(|code| code.is_temporary())
            .map(|code| code.code())
            .collect();
        assert_eq!(temporary, [100, 111, 113]);
        assert_eq!(ErrorCode::ALL.len(), 14);
    }

    #[test]
    fn rows_are_in_order_differ_and_fit_a_close_frame() {
        let rows: Vec<Code> = all().collect();
        for pair in rows.windows(2) {
            let is_same_kind = pair[0].places[0] == pair[1].places[0];
            assert!(!is_same_kind || pair[0].number <= pair[1].number);
            assert_ne!(
                (pair[0].places[0], pair[0].number, pair[0].text),
                (pair[1].places[0], pair[1].number, pair[1].text)
            );
        }
        for row in &rows {
            let is_exit = row.places == [Place::Exit];
            assert!(
                is_exit || row.text.len() <= REASON_BYTES_MAX,
                "{}",
                row.name
            );
            assert!(!row.meaning.is_empty(), "{}", row.name);
            // A text without a code that may be sent would never be read.
            let is_close = row.places[0] == Place::WebSocket;
            let may_be_sent = is_sendable(u16::try_from(row.number).expect("16 bits"));
            assert!(!is_close || row.text.is_empty() || may_be_sent);
        }
    }
}
