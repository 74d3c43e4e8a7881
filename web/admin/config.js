// The configuration in force: each directive, its value, and the source of the value.

import { call } from "./api.js";
import { find, make, say } from "./dom.js";

let said = null;

export function begin() {
  find("config-find").addEventListener("input", draw);
  find("config-set").addEventListener("change", draw);
}

export async function enter() {
  try {
    said = await call("config");
    say(find("config-note"), `The effective values of ${said.file} as of the last start or reload. Secrets and the options of apps are not shown.`);
  } catch (trouble) {
    say(find("config-note"), `Not read: ${trouble.message}`);
  }
  draw();
}

function draw() {
  const text = find("config-find").value.trim().toLowerCase();
  const isSetOnly = find("config-set").checked;
  const fits = (header, { name, value, line }) =>
    (!isSetOnly || line !== null) && `${header} ${name} ${value ?? ""}`.toLowerCase().includes(text);
  const sections = (said?.sections ?? []).map(({ header, settings }) => [header, settings.filter((setting) => fits(header, setting))]);
  const shown = sections.filter(([, settings]) => settings.length > 0);
  const row = ({ name, value, line }) =>
    make("tr", { class: line === null ? "default" : undefined },
      make("td", {}, name), make("td", { class: "mono" }, value ?? "not set"), make("td", { class: "small" }, line === null ? "default" : `line ${line}`));
  find("config").replaceChildren(...shown.map(([header, settings]) =>
    make("table", { class: "config" }, make("caption", {}, header), make("tbody", {}, settings.map(row)))));
  if (said && shown.length === 0) find("config").append(make("p", { class: "empty" }, "Nothing matches."));
}
