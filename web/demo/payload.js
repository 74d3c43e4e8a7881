// Formats payloads for people, and parses payloads that people type. The functions have no side effects.

/** Maximum length of a message shown. */
const SHOWN_CHARS_MAX = 8_192;
const SHOWN_BYTES_MAX = 512;
const HEX_ROW_BYTES = 16;
const HEX_ROW_BYTES_NARROW = 8;

/** @returns {{kind: "text" | "json" | "binary", size: string, body: string, cut: boolean}} */
export function readable(data, isNarrow = false) {
  if (typeof data !== "string") return readableBytes(new Uint8Array(data), isNarrow ? HEX_ROW_BYTES_NARROW : HEX_ROW_BYTES);
  const size = count(new TextEncoder().encode(data).length, "byte");
  const pretty = prettyJson(data);
  const body = pretty ?? data;
  return { kind: pretty === null ? "text" : "json", size, ...cutTo(body, SHOWN_CHARS_MAX) };
}

/** Formats only objects and arrays: a bare `5` is more likely a text. */
function prettyJson(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function readableBytes(bytes, rowBytes) {
  const rows = [];
  for (let at = 0; at < Math.min(bytes.length, SHOWN_BYTES_MAX); at += rowBytes) {
    const row = [...bytes.subarray(at, at + rowBytes)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const ascii = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    rows.push(`${hex.padEnd(rowBytes * 3 - 1)}  ${ascii}`);
  }
  return { kind: "binary", size: count(bytes.length, "byte"), body: rows.join("\n"), cut: bytes.length > SHOWN_BYTES_MAX };
}

function cutTo(text, charsMax) {
  return text.length > charsMax ? { body: text.slice(0, charsMax), cut: true } : { body: text, cut: false };
}

/**
 * Converts the text that a visitor has typed into the content of a push. `word` is the key of the content in the push,
 * and `value` is the content.
 * @returns {{word: "data" | "binary", value: unknown}}
 * @throws {Error} with a message for the visitor
 */
export function typed(kind, text) {
  if (kind === "json") {
    try {
      return { word: "data", value: JSON.parse(text) };
    } catch (error) {
      throw new Error(`Not valid JSON: ${error.message}`);
    }
  }
  if (kind === "binary") {
    const digits = text.replace(/\s+|0x/gi, "");
    if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) throw new Error("Type bytes as pairs of hex digits, such as 0a ff 41.");
    const bytes = (digits.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16));
    return { word: "binary", value: btoa(String.fromCharCode(...bytes)) };
  }
  return { word: "data", value: text };
}

/** Formats a number with its noun, as in "1 byte" or "2 bytes". */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
