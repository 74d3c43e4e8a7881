// Pushes a message to all connections of a user, with Node 18 or later: node push.mjs tester01 "hello"

import { readFile } from "node:fs/promises";

const API = process.env.VECHE_API ?? "http://127.0.0.1:8081/api";
const [user, data] = process.argv.slice(2);
if (data === undefined) {
  console.error("usage: node push.mjs USER MESSAGE");
  process.exit(2);
}

/** Returns the number of connections to which Veche passed the message; undefined with the engine on Redis, where it is unknown. */
async function push(user, data) {
  const key = await readFile(new URL("api.key", import.meta.url), "utf8");
  const response = await fetch(`${API}/push`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-API-Key": key.trim() },
    body: JSON.stringify({ user, data }),
    signal: AbortSignal.timeout(2000),
  });
  const { result, error } = await response.json();
  if (error) throw new Error(error.message);
  return result.handed;
}

try {
  const handed = await push(user, data);
  console.log(handed === undefined ? "published" : `handed to ${handed}`);
} catch (error) {
  console.error(`not pushed: ${error.cause ?? error.message}`);
  process.exitCode = 1;
}
