// How long to wait before the next attempt to connect. The module uses no clock, no timer and no
// DOM. Ten thousand pages that lose one server should reconnect spread over time, not at once.

/** The upper bound of the wait after a connection that lasted, in milliseconds. Each failure doubles it. */
export const FIRST_MS = 2_000;
/** No wait is longer than this. */
export const LONGEST_MS = 30_000;
/** A connection that lasted this long resets the count of failures. A shorter one counts as a failure. */
export const STEADY_MS = 5_000;
/** After `online`, or when a tab becomes visible, the next attempt follows within this many milliseconds. */
export const SOON_MS = 1_500;

/** The share of a wait that is not random, so that no wait is 0. */
const FIXED_SHARE = 0.2;

/**
 * A random wait in milliseconds after `failures` consecutive failures. For close codes that ask for
 * a longer delay (see `closing.js`), its upper bound is at least `leastCeilingMs`.
 */
export function waitMs(failures, leastCeilingMs = 0, random = Math.random) {
  const doubled = FIRST_MS * 2 ** Math.min(failures, 10);
  const ceiling = Math.min(LONGEST_MS, Math.max(doubled, leastCeilingMs));
  return Math.round(ceiling * (FIXED_SHARE + (1 - FIXED_SHARE) * random()));
}

/** A short wait with jitter: thousands of laptops can come online in the same second. */
export function soonMs(random = Math.random) {
  return Math.round(SOON_MS * (FIXED_SHARE + (1 - FIXED_SHARE) * random()));
}
