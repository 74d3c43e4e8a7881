//! Counts of events in a world. They show that the situations to be checked really occur: a promise about an event that
//! never occurs can't be broken.

use std::fmt;

/// The events that worlds are meant to produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoverageEvent {
    /// A client connected and was admitted.
    Connected,
    /// A client received a live publication.
    Heard,
    /// A client received a live publication as Protobuf.
    HeardInBinary,
    /// A wildcard subscriber received a publication.
    Overheard,
    /// A client received a delta.
    Changed,
    /// A client of a push route received a publication without a position.
    Pushed,
    /// A client of a push route received a publication with a position.
    PushedWithPlace,
    /// A client of a push route received the first publication after a recovery.
    RecoveredByPlace,
    /// A client of a push route received a publication after others were dropped.
    Skipped,
    /// A back end got a reply on its own connection.
    Called,
    Lined,
    CalledForHistory,
    /// A back end read a history after a publication of the same batch.
    CalledInOrder,
    CalledForPresence,
    /// A client returned and recovered its missed publications.
    Recovered,
    /// A client returned and had missed nothing.
    Current,
    /// A client returned and learned that publications are missing.
    Lost,
    /// A client received a join or leave.
    Moved,
    /// A client received the presence of a channel.
    Present,
    /// A client received the history of a channel.
    History,
    /// A session was closed because its client reads too slowly.
    Slow,
    /// A session was closed because its client is silent.
    Silent,
    /// A session was closed by the back end.
    Kicked,
    /// The back end got the reply to its call that closed a session.
    KickAnswered,
    /// A publication was refused.
    Refused,
    /// The back end learned immediately that its publication was accepted.
    TakenAtOnce,
    /// The back end learned later that its publication was accepted.
    TakenLater,
    /// A back end published a state that is older than the latest one, so the publication was
    /// skipped.
    Outdated,
    /// The back end read a history.
    Looked,
    /// A publication was repeated after its key had expired.
    RepeatedLate,
    /// A publication was repeated.
    Repeated,
    /// A history was removed.
    Cleared,
    /// Input of a connection was paused.
    Blocked,
    /// A command was granted by the back end.
    Granted,
    /// A command was granted by an application.
    GrantedByApp,
    Denied,
    /// A hook request was answered before an older one.
    DecidedBeforeOlder,
    /// A hook request was answered after its client had gone.
    DecidedTooLate,
    /// A connection or subscription was renewed.
    Renewed,
    /// A client was unsubscribed, since its subscription expired.
    Unsubscribed,
    /// An RPC method returned its result.
    Rpc,
    /// An application learned that a client has gone.
    GoneTold,
    /// A process was drained.
    Drained,
    /// A client was notified of a drain.
    ClosedByDrain,
    /// A client was notified that its process is replaced.
    ClosedForReplacement,
    /// A client was refused during a drain.
    RefusedInDrain,
    /// A unidirectional client connected.
    ConnectedOneWay,
    /// A unidirectional client received a publication.
    HeardOneWay,
    /// A unidirectional client that had missed nothing continued.
    WentOnOneWay,
    /// A unidirectional client recovered its missed publications.
    RecoveredOneWay,
    /// A unidirectional client was notified of a drain.
    OneWayClosedByDrain,
    /// A dialed connection was opened.
    DialedOpen,
    /// A dialed connection echoed a message.
    Echoed,
    /// A dialed connection ended.
    DialedClosed,
    /// A dialed connection could not be opened.
    DialFailed,
    /// An envelope with commands was accepted.
    Posted,
    /// An envelope with commands was posted to a worker other than the session's.
    PostedElsewhere,
    /// An invalid or forged envelope was not accepted.
    Forged,
    /// The process was killed and started again.
    Crashed,
    /// Streams were restored from disk.
    Restored,
    /// A publication made progress at a home whose messages for a stalled worker had to wait.
    WentOn,
    /// A command made progress at a home whose messages for a stalled worker had to wait.
    AnsweredMeanwhile,
    /// A join made progress at a home whose messages for a stalled worker had to wait.
    JoinedMeanwhile,
    /// Publications waited for a lane, and further ones arrived while its credits returned one by
    /// one.
    WaitedInLine,
    /// A home had publications waiting for two workers, and those for the second worker made
    /// progress.
    WentOnBehind,
    /// Publications still waited for a stalled worker after all its subscribers had left.
    LeftBehind,
    /// Publications of channels without history made progress while the log was stalled.
    WentOnWithoutLog,
    /// A slow client lost its oldest publication.
    DroppedOldest,
    /// A slow client lost a publication that was replaced by a later one of the same channel.
    DroppedForLater,
    /// A slow client missed a publication, which the options of the namespace permit.
    MissedByNamespace,
    /// A subscriber arrived between two publications that were queued for delivery.
    CameBetween,
    /// A connection waited with input for a later turn.
    WaitedForTurn,
    /// A world settled while all peers read.
    Settled,
    /// A world settled although a peer did not read.
    SettledWithSlow,
}

const EVENTS: [CoverageEvent; 74] = [
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
    CoverageEvent::CalledInOrder,
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
    CoverageEvent::ClosedByDrain,
    CoverageEvent::ClosedForReplacement,
    CoverageEvent::RefusedInDrain,
    CoverageEvent::ConnectedOneWay,
    CoverageEvent::HeardOneWay,
    CoverageEvent::WentOnOneWay,
    CoverageEvent::RecoveredOneWay,
    CoverageEvent::OneWayClosedByDrain,
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
    CoverageEvent::DroppedForLater,
    CoverageEvent::MissedByNamespace,
    CoverageEvent::CameBetween,
    CoverageEvent::WaitedForTurn,
    CoverageEvent::Settled,
    CoverageEvent::SettledWithSlow,
];

/// The number of occurrences of each event.
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

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Returns the rarest event with its count.
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
