// The form that publishes to a channel or pushes to a user.

import { call } from "./api.js";
import { make, say } from "./dom.js";
import { count } from "./format.js";

/**
 * Creates the form. `target` is `{ channel }` or `{ user }`; `done` is called after each success.
 */
export function sender(target, done = () => {}) {
  const method = "channel" in target ? "publish" : "push";
  const data = make("textarea", { rows: "3", spellcheck: "false", required: true, "aria-label": "Data" });
  const isText = make("input", { type: "checkbox" });
  const button = make("button", { type: "submit", class: "primary" }, method === "publish" ? "Publish" : "Push");
  const said = make("p", { class: "said", role: "status" });
  const form = make("form", { class: "sender" },
    make("label", { class: "field grow" }, "JSON, or any other text", data),
    make("div", { class: "bar" }, button, make("label", { class: "check" }, isText, " As text, even if it is JSON"), said));
  data.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    say(said, "");
    try {
      const { handed, offset } = await call(method, { ...target, data: isText.checked ? data.value : readAs(data.value) });
      // With the engine on Redis the number of connections is unknown.
      const outcome = handed === undefined ? "Published" : `Handed to ${count(handed, "connection")}`;
      say(said, `${outcome}${offset === undefined ? "" : `, at offset ${offset}`}.`);
      done();
    } catch (trouble) {
      say(said, `Not sent: ${trouble.message}`);
    }
    button.disabled = false;
  });
  return form;
}

/** Returns the parsed value if the text is JSON, else the text. */
function readAs(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
