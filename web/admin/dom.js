// Creates and fills elements. Data of servers and clients is always inserted as text, never parsed
// as HTML.

/** Returns the element with an id. */
export const find = (id) => document.getElementById(id);

/**
 * Creates an element. An attribute whose name begins with `on` is an event listener. The value
 * `true` stands for an empty attribute, `false` and `undefined` for none.
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets text only if it differs, so that a selection or a screen reader is not disturbed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets the row of headings; each is a text, or a text and a class. */
export function heads(table, ...columns) {
  const cells = columns.map((column) => {
    const [text, kind] = [column].flat();
    return make("th", { scope: "col", class: kind }, text);
  });
  table.tHead.replaceChildren(make("tr", {}, cells));
}

/** Fills a table's body with rows of texts, reusing existing rows and cells. */
export function fill(table, rows, kinds = []) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((texts, at) => {
    const row = body.rows[at] ?? body.appendChild(make("tr"));
    texts.forEach((text, column) => {
      const cell = row.cells[column] ?? row.appendChild(make("td", { class: kinds[column] }));
      say(cell, text);
    });
  });
}

/** Creates an empty table. */
export const table = (attributes = {}) => make("table", attributes, make("thead"), make("tbody"));

/** Creates a button that asks for confirmation with the text `sure`: a second press within a few
 * seconds confirms. Without that text it acts at once. */
export function careful(label, sure, act) {
  let timer = 0;
  const calm = () => {
    clearTimeout(timer);
    button.classList.remove("armed");
    button.textContent = label;
  };
  const button = make("button", { type: "button", class: sure ? "danger" : "", onblur: calm }, label);
  button.addEventListener("click", () => {
    if (sure && !button.classList.contains("armed")) {
      button.classList.add("armed");
      button.textContent = sure;
      timer = setTimeout(calm, 5_000);
      return;
    }
    calm();
    act();
  });
  return button;
}
