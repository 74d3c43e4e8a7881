// The ready-to-copy lines: one push, in each language that a back end may use. This module does not
// access the page. Every value is quoted by its language's rules: a visitor's input must survive
// the paste exactly, and must never become code.

/** The host and port of the push listener in examples/push/veche.toml. */
export const PUSH_HOST = "127.0.0.1";
export const PUSH_PORT = 1234;

/**
 * @typedef {{to: "user" | "channel", name: string, word: "data" | "binary", value: unknown}} Push
 *   `value` is any JSON value; for "binary" it is base64.
 */

/** The push as the JSON object that the back end sends. */
export function pushObject({ to, name, word, value }) {
  return { [to]: name, [word]: value };
}

/** The API method that takes this push. */
export function methodOf({ to }) {
  return to === "user" ? "push" : "publish";
}

/** Name, explanation and code of each way to push. */
export const LINES = [
  {
    id: "curl",
    label: "curl",
    note: "HTTP. Answers with the number of connections.",
    code: (push, { origin, key }) =>
      `curl ${shell(`${origin}/api/${methodOf(push)}`)} \\\n  -H ${shell(`X-API-Key: ${key}`)} \\\n  -d ${shell(JSON.stringify(pushObject(push)))}`,
  },
  {
    id: "veche",
    label: "veche",
    note: "The server’s own command, run beside its veche.toml.",
    code: vecheLine,
  },
  {
    id: "php",
    label: "PHP",
    note: "A plain socket, no extension.",
    code: (push) =>
      `$veche = stream_socket_client('tcp://${PUSH_HOST}:${PUSH_PORT}');\n` +
      `fwrite($veche, json_encode(${php(pushObject(push))}) . "\\n");\n` +
      `fclose($veche);`,
  },
  {
    id: "python",
    label: "Python",
    note: "The standard library alone.",
    code: (push) =>
      `import json, socket\n` +
      `with socket.create_connection(("${PUSH_HOST}", ${PUSH_PORT})) as veche:\n` +
      `    veche.sendall(json.dumps(${python(pushObject(push))}).encode() + b"\\n")`,
  },
  {
    id: "shell",
    label: "shell",
    note: "One JSON object a line, over TCP.",
    code: (push) => `printf '%s\\n' ${shell(JSON.stringify(pushObject(push)))} \\\n  | nc -w 1 ${PUSH_HOST} ${PUSH_PORT}`,
  },
];

/** Returns a `veche push` command. It takes text as an argument, but JSON and binary data by an option. */
function vecheLine(push) {
  const target = push.name.startsWith("-") ? `--${push.to}=${word(push.name)}` : `--${push.to} ${word(push.name)}`;
  if (push.word === "binary") return `printf '%s' ${shell(push.value)} | base64 -d \\\n  | veche push ${target} --binary -`;
  if (typeof push.value !== "string") return `veche push ${target} --json ${argument(JSON.stringify(push.value))}`;
  // A lone dash would make `veche push` read standard input, where each line is a push.
  return push.value === "-" ? `echo - | veche push ${target} -` : `veche push ${target} ${argument(push.value)}`;
}

/** Quotes an argument, so that it is not taken for an option. */
function argument(text) {
  return text.startsWith("-") ? `-- ${shell(text)}` : shell(text);
}

/** Quotes a text only if a shell would not take it unchanged. */
function word(text) {
  return /^[\w.:@/-]+$/.test(text) ? text : shell(text);
}

/** Quotes a text for a POSIX shell: inside single quotes, only the single quote itself is special. */
export function shell(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Returns a PHP literal. In single quotes only the backslash and the quote are special. */
export function php(value) {
  if (value === null) return "null";
  if (typeof value === "string") return `'${value.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  if (Array.isArray(value)) return `[${value.map(php).join(", ")}]`;
  if (typeof value === "object") {
    const rows = Object.entries(value).map(([key, item]) => `${php(key)} => ${php(item)}`);
    // PHP encodes an empty array, and one with the keys 0, 1, 2, as a JSON array.
    const isAmbiguous = Object.keys(value).every((key) => /^\d+$/.test(key));
    return `${isAmbiguous ? "(object) " : ""}[${rows.join(", ")}]`;
  }
  return JSON.stringify(value);
}

/** Returns a Python literal. A string in JSON is also valid in Python. */
export function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, item]) => `${python(key)}: ${python(item)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
