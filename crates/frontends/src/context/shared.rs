//! What the connections of one worker share: the hub, the outboxes, the site, the codecs, the time of the turn.
//!
//! Connections are handed a `&mut Shared` with every call. They write into outboxes and speak to the hub; what the
//! hub wants of *other* connections is noted in [`Ports`] and carried out by the worker when the call is over, so
//! nothing re-enters a connection.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;

pub use veche_hub::Now;
use veche_hub::{
    Answer, Caller as ApiCaller, Class, ConnectionId, Deed, Delivery, Hub, Instruction, Mail,
    Outlet, Ticket, WorkerId,
};
use veche_nodes::{BlockCommand, NodeId};
use veche_proto::websocket::{Codecs, ContextBudget};

use crate::context::app::{AppAnswer, AppId};
use crate::context::apps::Apps;
use crate::context::census::Census;
use crate::context::close::Parting;
use crate::context::files::Files;
use crate::context::hooks::{Question, QuestionId, Verdict};
use crate::context::identity::{Checks, Desk, Finding};
use crate::context::note::{Decision, Note, NoteLevel};
pub use crate::context::process::Process;
use crate::context::relay::Relay;
use crate::context::site::Site;
use crate::context::stats::Stats;
use crate::context::work::{Waiting, Work};
use crate::outbox::Outboxes;

/// Notes of one kind written down in a second; a flood of mistakes is counted, not written down one by one.
const NOTES_PER_SECOND: u32 = 16;
/// Kinds of notes of one place in the code. Words of which there are more share a limit.
const NOTE_KINDS: u16 = 64;

/// Longest note.
const NOTE_BYTES_MAX: usize = 300;

/// See the module's text.
pub struct Shared {
    /// This worker's part of the hub.
    pub hub: Hub,
    /// Where the hub's effects go.
    pub ports: Ports,
    /// The configuration in force.
    pub site: Arc<Site>,
    /// For what comes in; outboxes have their own. Taken out while a session works on a message, which may lie there.
    pub(crate) codecs: Option<Box<Codecs>>,
    /// What connections may still do in this turn.
    pub work: Work,
    /// The time of this turn.
    pub now: Now,
    /// The time of this turn for `Date`.
    pub date: Date,
    /// This worker's counters.
    pub stats: Arc<Stats>,
    /// Where static files come from.
    pub files: Box<dyn Files>,
    /// The process around.
    pub process: Arc<dyn Process>,
    /// Nothing new is begun: no handshake, no publication. The worker says so, each turn.
    pub is_short_of_memory: bool,
    /// The users of sessions that count, by the index of the session; none where users may have as many as they like.
    counted_users: HashMap<u32, Box<str>>,
    /// Where this worker hears who clients are, if it has to be waited for; the worker calls
    /// [`Connection::found`](crate::Connection::found).
    pub desk: Arc<dyn Desk>,
    /// Connections whose work waits until their own answers have left.
    pub waiting_for_output: Vec<ConnectionId>,
    /// Connections whose work waits for the hub to take publications again.
    pub waiting_for_credit: Vec<ConnectionId>,
    /// Connections that have done their share of a turn and have input left.
    pub waiting_for_turn: Waiting,
    /// The applications of this worker, if its routes lead to any; `None` as well while one is called: see
    /// [`Shared::with_apps`].
    pub apps: Option<Box<dyn Apps>>,
    /// Sessions whose waiting handler has ended; the worker calls [`Connection::app_ready`](crate::Connection::app_ready).
    pub app_ready: Vec<ConnectionId>,
    /// For the log; the worker writes them down after each batch.
    pub notes: Vec<Note>,
    /// What was noted in this second, by kind; there are as many kinds as places that note something.
    note_kinds: Vec<NoteKind>,
    notes_second: u64,
    /// Decoded payloads, names and replies; empty between calls.
    pub(crate) scratch: Scratch,
    parting: Option<Parting>,
}

/// What was noted at one place of the code.
struct NoteKind {
    place: (&'static Location<'static>, u16),
    /// In this second.
    noted: u32,
    dropped: u64,
    /// Before the first that was dropped.
    last: String,
}

#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) payload: Vec<u8>,
    pub(crate) name: String,
    pub(crate) reply: Vec<u8>,
}

impl Shared {
    /// The state of a worker without connections.
    pub fn new(
        hub: Hub,
        ports: Ports,
        site: Arc<Site>,
        stats: Arc<Stats>,
        files: Box<dyn Files>,
        process: Arc<dyn Process>,
    ) -> Self {
        let mut shared = Self {
            hub,
            ports,
            site,
            codecs: Some(Box::default()),
            work: Work::default(),
            now: Now::default(),
            date: Date::default(),
            stats,
            files,
            process,
            is_short_of_memory: false,
            counted_users: HashMap::new(),
            desk: Arc::new(Unheard),
            waiting_for_output: Vec::new(),
            waiting_for_credit: Vec::new(),
            waiting_for_turn: Waiting::default(),
            apps: None,
            app_ready: Vec::new(),
            notes: Vec::new(),
            note_kinds: Vec::new(),
            notes_second: 0,
            scratch: Scratch::default(),
            parting: None,
        };
        shared.remember();
        shared
    }

    /// Another configuration is in force.
    pub fn set_site(&mut self, site: Arc<Site>) {
        self.site = site;
        self.remember();
    }

    fn remember(&mut self) {
        let (namespaces, bytes_max) = (&self.site.namespaces, self.site.history_bytes_max);
        self.hub.set_history(Arc::clone(namespaces), bytes_max);
        let answer_max = self.site.history_answer_max;
        self.hub.set_history_answer_max(answer_max);
    }

    /// Begins a turn.
    pub fn set_now(&mut self, now: Now) {
        self.now = now;
        self.date.set(now.wall_ms);
        if now.mono_ms / 1000 != self.notes_second {
            self.notes_second = now.mono_ms / 1000;
            self.note_kinds.iter_mut().for_each(|kind| kind.noted = 0);
        }
        self.hub.set_now(now);
        self.ports.outboxes.set_now_ms(now.mono_ms);
        self.ports.outboxes.journal.set_now(now);
    }

    /// Kept compression contexts count against this budget, which other workers may share. Before the first connection.
    pub fn set_context_budget(&mut self, budget: &Arc<ContextBudget>) {
        self.codecs = Some(Box::new(Codecs::with_budget(Arc::clone(budget))));
        self.ports.outboxes.set_context_budget(budget);
    }

    /// What compressing and inflating have cost since the last call, both ways; see [`Codecs::take_work`].
    #[inline]
    pub(crate) fn take_codec_work(&mut self) -> u64 {
        let codecs = self.codecs.as_mut();
        codecs.map_or(0, |codecs| codecs.take_work()) + self.ports.outboxes.take_codec_work()
    }

    /// Begins another connection's share of the turn's work. What was compressed meanwhile is not charged to it.
    #[inline]
    pub fn begin_share(&mut self) {
        self.take_codec_work();
        self.work.begin_share();
    }

    /// Gives memory back that a spike has left and nothing needed since the last call; to be called about once a
    /// second until it says that there is no more.
    pub fn trim(&mut self) -> bool {
        if let Some(codecs) = &mut self.codecs {
            codecs.trim();
        }
        self.hub.look_after();
        // What channels remember gets old also while nothing happens.
        self.ports.outboxes.trim() || self.hub.has_looks_due()
    }

    /// Calls the applications, which are taken out of here meanwhile; `None` where there are none.
    pub fn with_apps<R>(&mut self, call: impl FnOnce(&mut dyn Apps, &mut Self) -> R) -> Option<R> {
        let mut apps = self.apps.take()?;
        let result = call(&mut *apps, self);
        self.apps = Some(apps);
        Some(result)
    }

    /// Reports a decision to watchers.
    pub(crate) fn decided(&self, decision: &Decision<'_>) {
        if self.process.is_watched() {
            self.process.decided(decision);
        }
    }

    /// Returns what identities are checked with.
    pub(crate) fn checks(&self) -> Checks<'_> {
        Checks {
            process: &*self.process,
            desk: &self.desk,
            now: self.now,
        }
    }

    /// Whether a user is not let in.
    pub(crate) fn is_blocked(&self, user: &str) -> bool {
        self.process.is_blocked(user, self.now.wall_ms / 1000)
    }

    /// Whether a user's connections were ended since the question was asked; `false` where none was.
    pub(crate) fn is_ended_since(&self, user: &str, asked: Option<u64>, client: &str) -> bool {
        asked.is_some_and(|asked| self.process.is_ended_since(user, asked, client))
    }

    /// The same of a subscription of his.
    pub(crate) fn is_unsubscribed_since(
        &self,
        user: &str,
        channel: &str,
        asked: Option<u64>,
        client: &str,
    ) -> bool {
        let process = &self.process;
        asked.is_some_and(|asked| process.is_unsubscribed_since(user, channel, asked, client))
    }

    /// Counts a session that is about to open among those of its user; `false` if there are too many.
    pub(crate) fn count_user_in(&mut self, id: ConnectionId, user: &str) -> bool {
        let max = self.site.limits.connections_per_user;
        if max == 0 {
            return true;
        }
        self.count_user_out(id);
        let has_room = self.process.user_opened(user, max);
        if has_room {
            self.counted_users.insert(id.index, user.into());
        }
        has_room
    }

    /// The session is over, or did not open.
    pub(crate) fn count_user_out(&mut self, id: ConnectionId) {
        if self.counted_users.is_empty() {
            return;
        }
        if let Some(user) = self.counted_users.remove(&id.index) {
            self.process.user_closed(&user);
        }
    }

    /// A session is closed, since its client says more than its route allows.
    pub(crate) fn count_outpaced(&mut self, session: ConnectionId) {
        self.stats.outpaced.add(1);
        self.note(session, NoteLevel::Info, "closed: rate limit exceeded");
    }

    /// Notes something for the log. What one place in the code notes is of one kind, and each kind has a limit of its
    /// own: a flood of one hides no other.
    #[track_caller]
    pub(crate) fn note(
        &mut self,
        session: ConnectionId,
        level: NoteLevel,
        what: impl Into<String>,
    ) {
        self.note_as("", session, level, what);
    }

    /// The same where one place notes several kinds, told apart by words: as many as [`NOTE_KINDS`] of one place.
    #[track_caller]
    pub(crate) fn note_as(
        &mut self,
        kind: &str,
        session: ConnectionId,
        level: NoteLevel,
        what: impl Into<String>,
    ) {
        let place = (Location::caller(), number_of(kind));
        let index = self.note_kinds.iter().position(|kind| kind.place == place);
        let index = index.unwrap_or_else(|| {
            self.note_kinds.push(NoteKind {
                place,
                noted: 0,
                dropped: 0,
                last: String::new(),
            });
            self.note_kinds.len() - 1
        });
        let kind = &mut self.note_kinds[index];
        if kind.noted >= NOTES_PER_SECOND {
            kind.dropped += 1;
            return;
        }
        kind.noted += 1;
        let mut what = what.into();
        if what.len() > NOTE_BYTES_MAX {
            what.truncate(what.floor_char_boundary(NOTE_BYTES_MAX));
            what.push('…');
        }
        if kind.noted == NOTES_PER_SECOND {
            kind.last.clone_from(&what);
        }
        self.notes.push(Note {
            session,
            level,
            what,
        });
    }

    /// A kind of which notes were not written down for lack of room, if it has room again: how many since it was taken
    /// last, and the last note before them.
    pub fn take_dropped_notes(&mut self) -> Option<(u64, String)> {
        let mut kinds = self.note_kinds.iter_mut();
        let kind = kinds.find(|kind| kind.dropped > 0 && kind.noted < NOTES_PER_SECOND)?;
        let dropped = std::mem::take(&mut kind.dropped);
        Some((dropped, std::mem::take(&mut kind.last)))
    }

    /// The head of an answer with this status is written.
    pub(crate) fn answered(&mut self, id: ConnectionId, status: u16) {
        self.stats.answer(status);
        self.ports.outboxes.journal.answered(id, status);
    }

    /// From now on no connection is kept alive: the server is going away.
    pub fn start_draining(&mut self, parting: Parting) {
        self.parting = Some(parting);
    }

    /// How connections are told that the server goes.
    pub(crate) fn parting(&self) -> Parting {
        self.parting.unwrap_or(Parting::Stopping)
    }

    /// Whether the server is going away.
    pub fn is_draining(&self) -> bool {
        self.parting.is_some()
    }
}

/// A kind's number, the same for the same words.
fn number_of(kind: &str) -> u16 {
    let sum = |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte));
    kind.bytes().fold(0, sum) % NOTE_KINDS
}

/// A desk where nobody listens: of workers whose routes ask nobody.
#[derive(Debug)]
struct Unheard;

impl Desk for Unheard {
    fn tell(&self, _: ConnectionId, _: Finding) {}
}

/// The `Date` header's value, written once a second.
#[derive(Clone, Debug)]
pub struct Date {
    second: u64,
    text: [u8; 29],
}

impl Default for Date {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
    }
}

impl Date {
    fn set(&mut self, wall_ms: u64) {
        let second = wall_ms / 1000;
        if second != self.second {
            self.second = second;
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            let text = httpdate::fmt_http_date(time);
            if let Ok(text) = text.as_bytes().try_into() {
                self.text = text;
            }
        }
    }

    /// RFC 9110, section 5.6.7: always 29 bytes.
    pub fn text(&self) -> &[u8; 29] {
        &self.text
    }
}

/// Where the hub's effects go.
pub struct Ports {
    /// Publications are written here at once.
    pub outboxes: Outboxes,
    /// Mail for other workers, sent at the end of the turn.
    pub post: Post,
    /// Answers to hand to their sessions.
    pub answers: VecDeque<(ConnectionId, Ticket, Answer)>,
    /// Which connections there are is to be asked of all workers, this one too, by [`Census::take`].
    pub censuses: Vec<Census>,
    /// Sessions to disconnect.
    pub kicks: Vec<(ConnectionId, u16, String)>,
    /// What is to be done to sessions for back ends; the worker calls
    /// [`Connection::instructed`](crate::Connection::instructed).
    pub instructions: Vec<(ConnectionId, Arc<Instruction>)>,
    /// Sessions that have lost publications of a channel; the worker calls [`Connection::lost`](crate::Connection::lost).
    pub lost: Vec<(ConnectionId, Arc<str>)>,
    /// Instructions whose callers wait; the worker calls [`Hub::settle`] once its sessions have carried them out.
    pub settling: Vec<(ApiCaller, Arc<Instruction>)>,
    /// Commands for responses of this worker and of others; the worker calls
    /// [`Connection::relayed`](crate::Connection::relayed) where they are.
    pub relays: VecDeque<Relay>,
    /// Commands for responses of other nodes.
    pub far_relays: VecDeque<(NodeId, Relay)>,
    /// Blocks that other nodes have to put in force, each with the call that waits for it.
    pub blocks: VecDeque<BlockCommand>,
    /// The lane to the cluster, where this node belongs to one: commands and questions about users, channels and connections
    /// go there, and the answer covers all nodes.
    pub nodes: Option<WorkerId>,
    /// Tokens that applications hand in for sessions; the worker calls [`Connection::renew`](crate::Connection::renew) and
    /// tells them what came of it.
    pub renewals: Vec<Renewal>,
    /// Verdicts and responses of applications that did not come at once; the worker calls
    /// [`Connection::app_answered`](crate::Connection::app_answered).
    pub app_answers: VecDeque<(ConnectionId, AppAnswer)>,
    /// What sessions want decided; the worker takes them to whoever decides, after the call.
    pub questions: VecDeque<Question>,
    /// What was decided on this thread; the worker calls [`Connection::judged`](crate::Connection::judged).
    pub verdicts: VecDeque<(ConnectionId, QuestionId, Verdict)>,
}

/// Another token for a session that one has opened.
pub struct Renewal {
    /// Whose.
    pub session: ConnectionId,
    /// The token; never shown.
    pub credential: String,
    /// Who hands it in.
    pub app: AppId,
    /// By which that one knows what it asked for.
    pub ticket: u64,
}

impl Ports {
    /// Nothing to do yet.
    pub fn new(outboxes: Outboxes, post: Post) -> Self {
        Self {
            outboxes,
            post,
            answers: VecDeque::new(),
            censuses: Vec::new(),
            kicks: Vec::new(),
            instructions: Vec::new(),
            lost: Vec::new(),
            settling: Vec::new(),
            relays: VecDeque::new(),
            far_relays: VecDeque::new(),
            blocks: VecDeque::new(),
            nodes: None,
            renewals: Vec::new(),
            app_answers: VecDeque::new(),
            questions: VecDeque::new(),
            verdicts: VecDeque::new(),
        }
    }

    /// Whether a session is to be disconnected in this turn.
    pub(crate) fn is_kicked(&self, id: ConnectionId) -> bool {
        !self.kicks.is_empty() && self.kicks.iter().any(|(kicked, ..)| *kicked == id)
    }

    /// The code and reason with which a session is to be disconnected; the first that was asked for.
    pub(crate) fn take_kick(&mut self, id: ConnectionId) -> Option<(u16, String)> {
        let at = self.kicks.iter().position(|(kicked, ..)| *kicked == id)?;
        let (_, code, reason) = self.kicks.remove(at);
        Some((code, reason))
    }
}

impl Outlet for Ports {
    fn mail(&mut self, to: WorkerId, mail: Mail) {
        self.post.send(to, mail);
    }

    fn has_credit(&self, to: WorkerId, class: Class) -> bool {
        self.post.has_credit(to, class)
    }

    fn mail_done(&mut self, from: WorkerId, class: Class) {
        debug_assert_ne!(class, Class::Control);
        self.post.lanes[from.0 as usize].finished += 1;
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        self.outboxes.deliver(session, delivery);
    }

    fn answer(&mut self, session: ConnectionId, ticket: Ticket, answer: Answer) {
        self.answers.push_back((session, ticket, answer));
    }

    fn instruct(&mut self, session: ConnectionId, instruction: &Arc<Instruction>) {
        match &instruction.deed {
            Deed::Disconnect { code, reason } if instruction.means_all() => {
                self.kicks
                    .push((session, *code, reason.as_ref().to_owned()));
            }
            _ => self.instructions.push((session, Arc::clone(instruction))),
        }
    }

    fn lost(&mut self, session: ConnectionId, channel: &Arc<str>) {
        self.lost.push((session, Arc::clone(channel)));
    }

    fn instructed(&mut self, caller: ApiCaller, instruction: &Arc<Instruction>) {
        self.settling.push((caller, Arc::clone(instruction)));
    }
}

/// Mail of this turn for the other workers, and what they still let us send.
pub struct Post {
    /// By worker.
    pub lanes: Vec<Lane>,
    credits: u32,
}

/// The lane to one other worker.
#[derive(Debug, Default)]
pub struct Lane {
    /// To be sent at the end of the turn, in order.
    pub outgoing: VecDeque<Mail>,
    /// Data mail that was sent and that they have not finished yet.
    pub unfinished: u32,
    /// Data mail among `outgoing`.
    pub outgoing_data: u32,
    /// Data mail of theirs that is finished: credits to give back.
    pub finished: u32,
}

impl Post {
    /// Lanes to so many workers. Of each lane's `credits` one half is kept for deliveries, which wait for nothing but
    /// the receiver's own work: publications can't starve them, so workers that publish to each other never lock.
    pub fn new(workers: u16, credits: u32) -> Self {
        let lanes = std::iter::repeat_with(Lane::default)
            .take(workers as usize)
            .collect();
        Self { lanes, credits }
    }

    fn send(&mut self, to: WorkerId, mail: Mail) {
        let lane = &mut self.lanes[to.0 as usize];
        if mail.class() != Class::Control {
            // A yes to a delivery is good for two.
            debug_assert!(
                lane.unfinished + lane.outgoing_data <= self.credits,
                "data mail without credit"
            );
            lane.outgoing_data += 1;
        }
        lane.outgoing.push_back(mail);
    }

    fn has_credit(&self, to: WorkerId, class: Class) -> bool {
        let lane = &self.lanes[to.0 as usize];
        let unfinished = lane.unfinished + lane.outgoing_data;
        match class {
            Class::Control => true,
            Class::Publish => unfinished < self.credits / 2,
            Class::Deliver => unfinished < self.credits,
        }
    }
}

#[cfg(test)]
mod tests;
