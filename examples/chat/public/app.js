// The page begins here: the login, then the chat.

import { Chat } from "./chat.js";
import { show } from "./page.js";
import { ask, Refused } from "./server.js";

const [door, fault] = ["door-form", "door-fault"].map((id) => document.getElementById(id));

const view = (name) => (document.body.dataset.view = name);

function knock(why = "") {
  view("door");
  fault.textContent = why;
  document.getElementById("name").focus();
}

function enter(name) {
  const chat = new Chat(name);
  const hide = show(chat);
  chat.addEventListener("end", () => {
    hide();
    knock();
  });
  view("chat");
}

door.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, password] = ["name", "password"].map((id) => document.getElementById(id).value);
  door.inert = true;
  try {
    enter((await ask("POST", event.submitter?.value ?? "login", { name, password })).name);
    door.reset();
  } catch (error) {
    knock(error instanceof Refused ? error.message : "The server can't be reached.");
  } finally {
    door.inert = false;
  }
});

if (!globalThis.Centrifuge) {
  knock("vendor/centrifuge.js is missing: in the repository, say tests/setup/centrifuge_page.sh.");
  door.querySelectorAll("input, button").forEach((each) => (each.disabled = true));
} else {
  // An earlier session may still be valid.
  ask("GET", "token").then(({ name }) => enter(name), () => knock());
}
