// Computes the shown figures from the server's counters each second: sums, rates and shares, in total and by worker.
// Uses neither the clock nor the DOM.

/** The number of stored points: a quarter of an hour. */
export const POINTS_MAX = 900;
/** The maximum number of workers that have their own lines in charts; the table shows all workers. */
export const WORKERS_DRAWN_MAX = 16;

const added = (object) => Object.values(object ?? {}).reduce((sum, value) => sum + value, 0);

/** Values that are shown directly rather than as rates. */
const GAUGES = {
  connections: (worker) => worker.connections,
  sessions: (worker) => worker.sessions,
  users: (worker) => worker.users,
  channels: (worker) => worker.channels,
  subscriptions: (worker) => worker.subscriptions,
  history: (worker) => worker.history_bytes,
  apps: (worker) => worker.app_memory_bytes,
  mailbox: (worker) => worker.mailbox_depth,
};

/** Counters, shown as rates per second. */
const COUNTERS = {
  in: (worker) => worker.messages.in,
  out: (worker) => worker.messages.out,
  messages: (worker) => worker.messages.in + worker.messages.out,
  fanout: (worker) => worker.push_fan_out,
  pushes: (worker) => worker.pushes,
  received: (worker) => worker.received_bytes,
  sent: (worker) => worker.sent_bytes,
  traffic: (worker) => worker.received_bytes + worker.sent_bytes,
  slow: (worker) => worker.slow_consumers,
  dropped: (worker) => added(worker.publications_dropped),
  broken: (worker) => worker.protocol_errors,
  refused: (worker) => added(worker.turned_away),
};

/**
 * Returns the duration in milliseconds below which this share of the turns lies; `null` without
 * turns.
 */
export function quantile(bounds, counts, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let rest = all * share;
  for (let at = 0; at < counts.length; at += 1) {
    if (rest <= counts[at] && counts[at] > 0) {
      const low = at === 0 ? 0 : bounds[at - 1];
      // The last bucket has no upper bound.
      const high = bounds[at] ?? low;
      return (low + (high - low) * (rest / counts[at])) / 1000;
    }
    rest -= counts[at];
  }
  return bounds.at(-1) / 1000;
}

/** Returns the figures of one worker between two readings; without `before` there are no rates. */
function ofWorker(now, before, seconds, bounds) {
  const figures = {};
  for (const [name, read] of Object.entries(GAUGES)) figures[name] = read(now);
  figures.memory = figures.history + figures.apps;
  for (const [name, read] of Object.entries(COUNTERS)) {
    figures[name] = before ? Math.max(0, read(now) - read(before)) / seconds : null;
  }
  const turns = before ? now.turns.map((count, at) => Math.max(0, count - before.turns[at])) : [];
  figures.turns = turns;
  figures.p50 = quantile(bounds, turns, 0.5);
  figures.p99 = quantile(bounds, turns, 0.99);
  figures.busy = before ? Math.min(100, (now.turn_us - before.turn_us) / seconds / 10_000) : null;
  return figures;
}

/**
 * Returns the figures of the time from `before` to `now`. `before` may be missing or from another process.
 */
export function compare(now, before) {
  const seconds = before ? (now.uptime_ms - before.uptime_ms) / 1000 : 0;
  const isSame = before?.uid === now.uid && before.workers.length === now.workers.length && seconds > 0;
  const bounds = now.turn_bounds_us;
  const workers = now.workers.map((worker, at) => ofWorker(worker, isSame ? before.workers[at] : null, seconds, bounds));
  const all = {};
  for (const name of [...Object.keys(GAUGES), ...Object.keys(COUNTERS)]) {
    const values = workers.map((worker) => worker[name]);
    all[name] = values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0);
  }
  const turns = bounds.concat(0).map((_, at) => workers.reduce((sum, worker) => sum + (worker.turns[at] ?? 0), 0));
  all.p50 = quantile(bounds, turns, 0.5);
  all.p99 = quantile(bounds, turns, 0.99);
  all.busy = isSame ? workers.reduce((sum, worker) => sum + worker.busy, 0) / workers.length : null;
  all.process = now.memory_bytes;
  return { workers, all, isSame };
}

/** The lines of the charts: a column of values for each, as long as the column of times. */
export class Lines {
  times = [];
  columns = new Map();

  /** Adds a point at a time in seconds. Earlier points of a new column are `null`. */
  add(time, { all, workers }) {
    const point = new Map(Object.entries(all));
    workers.slice(0, WORKERS_DRAWN_MAX).forEach((worker, at) => {
      for (const [name, value] of Object.entries(worker)) if (name !== "turns") point.set(`${name}@${at}`, value);
    });
    const length = this.times.push(time);
    for (const name of new Set([...point.keys(), ...this.columns.keys()])) {
      if (!this.columns.has(name)) this.columns.set(name, Array(length - 1).fill(null));
      this.columns.get(name).push(point.get(name) ?? null);
    }
    if (length > POINTS_MAX) {
      this.times.shift();
      for (const column of this.columns.values()) column.shift();
    }
  }

  /** Adds a gap for a time without a reading. */
  gap(time) {
    this.add(time, { all: {}, workers: [] });
  }

  /** Returns the column with this name, which has one value for each point in time. */
  of(name) {
    return this.columns.get(name) ?? Array(this.times.length).fill(null);
  }
}
