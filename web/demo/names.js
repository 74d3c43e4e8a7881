// Names for visitors: people who wrote, or are named in, Novgorod's birch-bark letters.

const NAMES = [
  "onfim", "danilo", "gostyata", "nastasya", "mikita", "ulyana", "zhiznomir", "yakim", "milusha", "marena",
  "boris", "tverdyata", "petr", "fevronya", "stepan", "ofimya", "grigoriy", "matvey", "nezhka", "zavid",
];

/**
 * Maximum length of a user's name. Any text is valid, as a query parameter and as a JSON string.
 */
export const NAME_CHARS_MAX = 64;

/** Returns a new random name such as "onfim27". */
export function randomName() {
  const name = NAMES[Math.floor(Math.random() * NAMES.length)];
  return `${name}${Math.floor(10 + Math.random() * 90)}`;
}

/** Returns the name in `?user=`. If there is none, writes a new name into the page's address, so
 * that a reload keeps it. */
export function nameFromAddress() {
  const given = new URLSearchParams(location.search).get("user")?.trim().slice(0, NAME_CHARS_MAX);
  if (given) return given;
  const fresh = randomName();
  history.replaceState(null, "", addressOf(fresh));
  return fresh;
}

/** Returns the address of this page for `user`; keeps the other query parameters. */
export function addressOf(user) {
  const address = new URL(location.href);
  address.searchParams.set("user", user);
  return address.pathname + address.search;
}
