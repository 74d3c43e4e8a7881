// Calls the server's API: each call is a POST with the key in a header. The page shows the texts of errors.

const KEY = "veche-admin-key";
const PATIENCE_MS = 8_000;

/**
 * Why a call failed. `kind`: "key" (rejected key), "lost" (no response), "said" (an error
 * response).
 */
export class Trouble extends Error {
  constructor(kind, message, code = 0) {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

let key = sessionStorage.getItem(KEY) ?? "";

export const hasKey = () => key !== "";

export function setKey(text) {
  key = text;
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Calls a method; resolves with its result, or throws `Trouble`. */
export async function call(method, parameters = {}) {
  let answer, body;
  try {
    answer = await fetch(`api/${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-API-Key": key },
      body: JSON.stringify(parameters),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    body = await answer.text();
  } catch {
    throw new Trouble("lost", "no response");
  }
  if (answer.status === 401) throw new Trouble("key", "The server does not accept this key.");
  let said;
  try {
    said = JSON.parse(body);
  } catch {
    // 404 comes from a server without an admin page, 502 from a proxy without a server.
    const kind = answer.status >= 500 ? "lost" : "said";
    throw new Trouble(kind, `the server answers ${answer.status}: ${body.slice(0, 200).trim()}`);
  }
  if (said.error) throw new Trouble("said", said.error.message, said.error.code);
  return said.result ?? said;
}
