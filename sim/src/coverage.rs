//! What has happened in a world, counted: promises are kept easily where nothing happens.

use std::fmt;

/// Kinds of events that worlds are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoverageEvent {
    /// A client was connected.
    Connected,
    /// A client got a publication, live.
    Heard,
    /// The same, as Protobuf.
    HeardInBinary,
    /// A client that hears a namespace as a whole got a publication.
    Overheard,
    /// A client was told of a publication what has changed alone.
    Changed,
    /// A client of a push route got a publication: all of them, with their places, after others that were dropped.
    Pushed,
    PushedWithPlace,
    RecoveredByPlace,
    Skipped,
    /// A back end was answered on a connection of its own.
    Called,
    Lined,
    CalledForHistory,
    CalledForPresence,
    /// A client came back and got what it had missed.
    Recovered,
    /// A client came back and had missed nothing.
    Current,
    /// A client came back and was told that something is missing.
    Lost,
    /// A client heard that another one came or went.
    Moved,
    /// Who is in a channel, and what was published there, was told.
    Present,
    History,
    /// A session was closed since its client reads too slowly.
    Slow,
    /// A session was closed since its client says nothing.
    Silent,
    /// A session was closed by the back end, and that was answered when it was done.
    Kicked,
    KickAnswered,
    /// A publication could not be taken.
    Refused,
    /// The back end was told that its publication is taken, at once and later.
    TakenAtOnce,
    TakenLater,
    /// An older state was not taken.
    Outdated,
    /// The back end read a history.
    Looked,
    /// A publication was repeated when its key was forgotten.
    RepeatedLate,
    /// A publication was repeated, and a history let go of.
    Repeated,
    Cleared,
    /// Input of a connection waited.
    Blocked,
    /// A command was let through by the back end, by an application, and not.
    Granted,
    GrantedByApp,
    Denied,
    /// A question was decided on before an older one, and when its client had gone.
    DecidedBeforeOlder,
    DecidedTooLate,
    /// It was decided on the time of a connection or a subscription, and one ended by that.
    Renewed,
    Unsubscribed,
    /// A method gave its result.
    Rpc,
    /// An application was told that a client has gone.
    GoneTold,
    /// A process went away in its time; clients were told, also that another one has begun, or came too late.
    Drained,
    Parted,
    PartedForAnother,
    RefusedInDrain,
    /// A client that only listens was connected, heard something, went on where it was, heard what it had missed, and was told that the process goes away.
    ConnectedOneWay,
    HeardOneWay,
    WentOnOneWay,
    RecoveredOneWay,
    PartedOneWay,
    /// A connection that an application has dialed was open, sent something back, ended, or never was open.
    DialedOpen,
    Echoed,
    DialedClosed,
    DialFailed,
    /// An envelope with commands was taken, also by another worker than has the session; one that is none, or not its sender's.
    Posted,
    PostedElsewhere,
    Forged,
    /// The process ended; what was on disk came back.
    Crashed,
    Restored,
    /// A publication, a command and a join went on at a home that could not send others to a worker that had no turn.
    WentOn,
    AnsweredMeanwhile,
    JoinedMeanwhile,
    /// Publications waited for a lane, and others came for the same while its credits came back one by one.
    WaitedInLine,
    /// The same home had publications for two such workers, and one of these went on.
    WentOnBehind,
    /// A worker that subscribers left had more for them to come.
    LeftBehind,
    /// Publications of channels without history went on while the log stood still.
    WentOnWithoutLog,
    /// A client that may lose some lost its oldest.
    DroppedOldest,
    /// A subscriber came between two publications that waited for a sweep.
    CameBetween,
    /// A world came to rest, also with somebody who did not read.
    Settled,
    SettledWithSlow,
}

/// All of them.
const EVENTS: [CoverageEvent; 70] = [
    CoverageEvent::Connected,
    CoverageEvent::Heard,
    CoverageEvent::HeardInBinary,
    CoverageEvent::Overheard,
    CoverageEvent::Changed,
    CoverageEvent::Pushed,
    CoverageEvent::PushedWithPlace,
    CoverageEvent::RecoveredByPlace,
    CoverageEvent::Skipped,
    CoverageEvent::Called,
    CoverageEvent::Lined,
    CoverageEvent::CalledForHistory,
    CoverageEvent::CalledForPresence,
    CoverageEvent::Recovered,
    CoverageEvent::Current,
    CoverageEvent::Lost,
    CoverageEvent::Moved,
    CoverageEvent::Present,
    CoverageEvent::History,
    CoverageEvent::Slow,
    CoverageEvent::Silent,
    CoverageEvent::Kicked,
    CoverageEvent::KickAnswered,
    CoverageEvent::Refused,
    CoverageEvent::TakenAtOnce,
    CoverageEvent::TakenLater,
    CoverageEvent::Outdated,
    CoverageEvent::Looked,
    CoverageEvent::RepeatedLate,
    CoverageEvent::Repeated,
    CoverageEvent::Cleared,
    CoverageEvent::Blocked,
    CoverageEvent::Granted,
    CoverageEvent::GrantedByApp,
    CoverageEvent::Denied,
    CoverageEvent::DecidedBeforeOlder,
    CoverageEvent::DecidedTooLate,
    CoverageEvent::Renewed,
    CoverageEvent::Unsubscribed,
    CoverageEvent::Rpc,
    CoverageEvent::GoneTold,
    CoverageEvent::Drained,
    CoverageEvent::Parted,
    CoverageEvent::PartedForAnother,
    CoverageEvent::RefusedInDrain,
    CoverageEvent::ConnectedOneWay,
    CoverageEvent::HeardOneWay,
    CoverageEvent::WentOnOneWay,
    CoverageEvent::RecoveredOneWay,
    CoverageEvent::PartedOneWay,
    CoverageEvent::DialedOpen,
    CoverageEvent::Echoed,
    CoverageEvent::DialedClosed,
    CoverageEvent::DialFailed,
    CoverageEvent::Posted,
    CoverageEvent::PostedElsewhere,
    CoverageEvent::Forged,
    CoverageEvent::Crashed,
    CoverageEvent::Restored,
    CoverageEvent::WentOn,
    CoverageEvent::AnsweredMeanwhile,
    CoverageEvent::JoinedMeanwhile,
    CoverageEvent::WaitedInLine,
    CoverageEvent::WentOnBehind,
    CoverageEvent::LeftBehind,
    CoverageEvent::WentOnWithoutLog,
    CoverageEvent::DroppedOldest,
    CoverageEvent::CameBetween,
    CoverageEvent::Settled,
    CoverageEvent::SettledWithSlow,
];

/// How often each kind of event has come.
#[derive(Clone, Debug)]
pub struct Coverage([u64; EVENTS.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; EVENTS.len()])
    }
}

impl Coverage {
    pub(crate) fn note(&mut self, event: CoverageEvent) {
        self.0[event as usize] += 1;
    }

    /// Adds what was seen in another world.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// The kind of event that came least often, and how often.
    pub fn rarest(&self) -> (String, u64) {
        let all = EVENTS.iter().zip(self.0);
        let rarest = all.min_by_key(|(_, count)| *count);
        rarest.map_or_else(Default::default, |(event, count)| {
            (format!("{event:?}"), count)
        })
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (event, count) in EVENTS.iter().zip(self.0) {
            write!(f, "{event:?} {count}, ")?;
        }
        Ok(())
    }
}
