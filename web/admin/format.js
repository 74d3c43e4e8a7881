// Formats numbers, sizes and times for people. All functions are pure.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const FEW = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Returns a formatter that shows `–` for unknown values. */
const known = (show) => (value) => (value === null || value === undefined || Number.isNaN(value) ? "–" : show(value));

export const whole = known((value) => WHOLE.format(Math.round(value)));
/** Formats a number with at most three digits and a unit letter. */
export const short = known((value) => (Math.abs(value) < 1000 ? FEW.format(value) : SHORT.format(value)));
export const bytes = known((value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${FEW.format(value)} ${units[unit]}`;
});
export const perSecond = (show) => known((value) => `${show(value)}/s`);
export const milliseconds = known((value) => (value < 1 ? `${FEW.format(value * 1000)} µs` : `${FEW.format(value)} ms`));
export const percent = known((value) => `${value < 10 ? FEW.format(value) : Math.round(value)} %`);

/** Formats a duration with its two largest units: `3 d 4 h`, `2 min 5 s`. */
export const lasted = known((ms) => {
  let rest = Math.floor(ms / 1000);
  const parts = [];
  for (const [unit, length] of [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0 || (unit === "s" && parts.length === 0)) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
});

const two = (number) => String(number).padStart(2, "0");

/** Formats milliseconds since 1970 as a time of day. */
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Formats a time with its date, unless that is today. */
export function moment(ms, nowMs = Date.now()) {
  const at = new Date(ms);
  const isToday = at.toDateString() === new Date(nowMs).toDateString();
  return isToday ? clock(ms) : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

/** Formats a count with its noun: `1 connection`, `2 connections`. */
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;
