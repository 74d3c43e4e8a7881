//! The kind of world that a seed produces: sizes, limits, and the weights of actions.

use fastrand::Rng;
use veche_worker::TurnLimits;

use crate::channels::Kind;
use crate::client_transport::{ClientTransport, HookRoute};

/// The sizes and limits of one world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) workers: u16,
    pub(crate) clients: usize,
    /// The number of clients of push routes, and of back ends with their own connections.
    pub(crate) listeners: usize,
    pub(crate) callers: usize,
    /// Unidirectional clients of Centrifugo's protocol.
    pub(crate) one_ways: usize,
    /// Bytes of publications that an outbox may hold.
    pub(crate) outbox_bytes: usize,
    /// Maximum bytes in flight to a client; further bytes wait in the server.
    pub(crate) pipe_bytes: usize,
    /// Credits of each lane between two workers.
    pub(crate) credits: u32,
    /// Maximum number of deliveries of queued publications in one turn of a worker.
    pub(crate) deliveries_max: usize,
    /// Maximum number of messages of other workers that a worker handles in one turn.
    pub(crate) messages_max: usize,
    /// Work limits of a turn: of one connection, of all connections for new events, and of all for input left over.
    pub(crate) connection_work: u64,
    pub(crate) event_work: u64,
    pub(crate) backlog_work: u64,
    /// The low-water mark of transports.
    pub(crate) low_water_bytes: usize,
    pub(crate) queue_publications_max: usize,
    /// History size of most channels.
    pub(crate) history_size: u32,
    /// Lifetime of publications in milliseconds.
    pub(crate) history_ttl_ms: u64,
    /// History limit of all channels in bytes.
    pub(crate) history_bytes_max: usize,
    /// Whether channels of kind [`Log`](crate::channels::Kind::Log) have their own, sufficient
    /// budget.
    pub(crate) has_reserve: bool,
    /// Maximum padding of a publication in bytes.
    pub(crate) pad_max: u16,
    /// Whether histories are stored on a disk.
    pub(crate) is_logged: bool,
    /// One bit per client: whether the client uses Protobuf.
    pub(crate) protobuf: u64,
    /// One bit per client: whether the client wants deltas.
    pub(crate) deltas: u64,
    /// Two bits per client, which select the hook that decides on its requests.
    pub(crate) decides: u64,
    /// Two bits per client, which select its transport.
    pub(crate) carriers: u64,
    /// Whether messages between workers are serialised if nodes exchange messages of the same kind.
    pub(crate) as_bytes: bool,
    pub(crate) weights: Weights,
}

/// The relative weight of each kind of action.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) round: u32,
    pub(crate) turn: u32,
    pub(crate) carry: u32,
    pub(crate) advance: u32,
    /// Weight of advancing the clock until idempotency keys have expired.
    pub(crate) pause: u32,
    pub(crate) connect: u32,
    pub(crate) listen: u32,
    pub(crate) call: u32,
    pub(crate) subscribe: u32,
    pub(crate) unsubscribe: u32,
    pub(crate) publish: u32,
    pub(crate) push: u32,
    pub(crate) ask: u32,
    pub(crate) clear: u32,
    pub(crate) read: u32,
    pub(crate) cut: u32,
    pub(crate) kick: u32,
    pub(crate) commit: u32,
    pub(crate) crash: u32,
    pub(crate) stall: u32,
    pub(crate) settle: u32,
    pub(crate) decide: u32,
    pub(crate) rpc: u32,
    pub(crate) drain: u32,
    pub(crate) dial: u32,
    pub(crate) say: u32,
    pub(crate) forge: u32,
}

/// A time in milliseconds that is longer than any world lasts.
pub(crate) const FOREVER_MS: u64 = 1 << 40;

/// A history limit in bytes that no world reaches.
const PLENTY_BYTES: usize = 1 << 30;

/// The history limit in worlds where memory is scarce.
const SCARCE_BYTES: usize = 8_000;

/// A history budget in bytes. Even divided among four workers, it exceeds all publications that
/// the channels keep.
pub(crate) const RESERVE_BYTES: usize = 4 << 18;

impl Setup {
    /// Returns the setup of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5e7_0b5e7);
        let random = &mut random;
        let more = &mut Rng::with_seed(seed ^ 0x061e_5eed);
        // In a busy world, connections often wait with input for a later turn.
        let busy = &mut Rng::with_seed(seed ^ 0x0b05_9eed);
        let usual = TurnLimits::default();
        let mut work = [usual.connection_work, usual.event_work, usual.backlog_work];
        if busy.u8(0..3) == 0 {
            work = [(); 3].map(|()| *pick(busy, &[1, 5_000, 20_000]));
        }
        let mut one_in = |count: u32| random.u32(0..count) == 0;
        let (is_short_lived, is_scarce, is_logged) = (one_in(5), one_in(6), one_in(2));
        let (is_calm, is_slow, is_crowded) = (one_in(4), one_in(3), one_in(5));
        // In a hasty world, lanes have few credits and clients often unsubscribe, so that lanes are
        // full while subscribers come and go.
        let is_hasty = one_in(5);
        let is_patient = one_in(4);
        let has_reserve = is_scarce && more.bool();
        let outbox_bytes = *pick(random, &[2_000, 6_000, 20_000]);
        let upset = u32::from(!is_calm);
        Self {
            seed,
            // Fan-outs to few subscribers of a worker are immediate, so some worlds have many
            // clients on few workers.
            workers: random.u16(if is_crowded { 1..=2 } else { 1..=4 }),
            clients: random.usize(if is_crowded { 20..=40 } else { 2..=7 }),
            listeners: random.usize(0..=6),
            callers: random.usize(0..=4),
            one_ways: random.usize(0..=3),
            outbox_bytes,
            pipe_bytes: *pick(random, &[300, 1_500, 6_000]),
            credits: match is_hasty {
                true => random.u32(4..8),
                false => *pick(random, &[2, 4, 8, 64, 1024]),
            },
            deliveries_max: *pick(random, &[1, 3, 512]),
            messages_max: *pick(more, &[2, 8, 4096]),
            connection_work: work[0],
            event_work: work[1],
            backlog_work: work[2],
            low_water_bytes: *pick(more, &[50, 400, 16_384]),
            queue_publications_max: *pick(random, &[1, 4, 1024]),
            history_size: *pick(random, &[1, 4, 12, 50]),
            history_ttl_ms: if is_short_lived { 4_000 } else { FOREVER_MS },
            history_bytes_max: match (is_scarce, has_reserve) {
                (true, false) => SCARCE_BYTES,
                (true, true) => SCARCE_BYTES + RESERVE_BYTES,
                (false, _) => PLENTY_BYTES,
            },
            has_reserve,
            pad_max: *pick(random, &[0, 40, 300, 900]),
            is_logged,
            protobuf: random.u64(..),
            deltas: random.u64(..),
            decides: random.u64(..),
            carriers: random.u64(..),
            as_bytes: false,
            weights: Weights {
                round: if is_hasty { 2 } else { random.u32(5..60) },
                turn: random.u32(5..60),
                carry: random.u32(5..60),
                advance: random.u32(if is_slow { 5..15 } else { 1..6 }),
                pause: u32::from(is_patient),
                connect: random.u32(if is_crowded { 30..60 } else { 5..20 }),
                listen: random.u32(4..16),
                call: random.u32(0..25),
                subscribe: random.u32(if is_crowded { 30..60 } else { 5..30 }),
                unsubscribe: random.u32(if is_hasty || is_crowded {
                    20..40
                } else {
                    0..10
                }),
                publish: random.u32(0..15),
                push: random.u32(5..60),
                ask: random.u32(0..12),
                clear: random.u32(0..3) / 2,
                read: if is_slow { random.u32(3..15) } else { 1 },
                cut: upset * random.u32(1..8),
                kick: random.u32(0..2),
                commit: if is_logged { random.u32(5..40) } else { 0 },
                crash: upset * random.u32(0..2),
                settle: random.u32(1..3),
                stall: random.u32(1..4),
                decide: random.u32(3..20),
                rpc: random.u32(0..8),
                drain: random.u32(0..3) / 2,
                dial: random.u32(0..4),
                say: random.u32(0..10),
                forge: random.u32(0..4),
            },
        }
    }

    pub(crate) fn is_protobuf(&self, client: usize) -> bool {
        self.protobuf >> (client % 64) & 1 == 1
    }

    pub(crate) fn wants_deltas(&self, client: usize) -> bool {
        self.deltas >> (client % 64) & 1 == 1
    }

    pub(crate) fn decides(&self, client: usize) -> HookRoute {
        match self.decides >> (client % 32 * 2) & 3 {
            2 => HookRoute::BackEnd,
            3 => HookRoute::App,
            _ => HookRoute::NoHook,
        }
    }

    pub(crate) fn carrier(&self, client: usize) -> ClientTransport {
        match self.carriers >> (client % 32 * 2) & 3 {
            2 => ClientTransport::Lines,
            3 => ClientTransport::Events,
            _ => ClientTransport::WebSocket,
        }
    }

    /// Returns whether streams are dropped to stay within the history budget.
    pub(crate) fn is_scarce(&self) -> bool {
        self.history_bytes_max < PLENTY_BYTES
    }

    /// Returns the maximum size of a publication as sent by its publisher.
    pub(crate) fn publication_bytes_max(&self) -> usize {
        usize::from(self.pad_max) + 40
    }

    /// Returns whether channels of this kind lose publications only because of the limit on their
    /// number.
    pub(crate) fn is_lasting(&self, kind: Kind) -> bool {
        let has_room = !self.is_scarce() || (self.has_reserve && kind == Kind::Log);
        self.history_ttl_ms == FOREVER_MS && has_room
    }
}

pub(crate) fn pick<'a, T>(random: &mut Rng, from: &'a [T]) -> &'a T {
    &from[random.usize(0..from.len())]
}
