// In pages under `veche dev`: shows errors and warnings of scripts, and reloads the page when its files have changed.
// The server adds this file to the HTML that it serves; `veche serve` never does.

const RETRY_MS = 1000;
const SHOWN_MAX = 5;

const STYLE = `
  :host { all: initial }
  section {
    position: fixed; inset: auto 12px 12px 12px; max-height: 60vh; overflow: auto; z-index: 2147483647;
    box-sizing: border-box; padding: 14px 16px; border-radius: 8px; border-left: 6px solid #e5484d;
    background: #1c1c1f; color: #ededef; box-shadow: 0 6px 30px rgb(0 0 0 / .45);
    font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  }
  header { display: flex; gap: 12px; align-items: baseline }
  h2 { flex: 1; margin: 0; font: 600 14px/1.4 system-ui, sans-serif; color: #ff9592 }
  button {
    font: 13px/1 system-ui, sans-serif; color: inherit; background: #2e2e33; border: 0; border-radius: 5px;
    padding: 6px 10px; cursor: pointer;
  }
  article + article { margin-top: 12px; border-top: 1px solid #38383d; padding-top: 12px }
  h3 { margin: 8px 0 2px; font: 600 13px/1.4 system-ui, sans-serif; color: #b4b4bb }
  pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; tab-size: 2 }
`;

const seen = new Set();
let errors = [];
let warnings = [];
let refusal = null;
let panel = null;

// Creates an element. Its text is never parsed as HTML, because an error message may contain data of a client.
function make(name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

function show() {
  const all = [...(refusal ? [refusal] : []), ...errors, ...warnings];
  panel?.remove();
  panel = null;
  if (all.length === 0) return;
  panel = document.createElement("veche-dev");
  const root = panel.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet(); // a page's policy may forbid style elements
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  const section = make("section");
  section.setAttribute("role", "alert");
  const header = make("header");
  const close = make("button", "Close");
  close.addEventListener("click", dismiss);
  header.append(make("h2", heading()), close);
  section.append(header);
  for (const { title, text } of all) {
    const article = make("article");
    article.append(make("h3", title), make("pre", text));
    section.append(article);
  }
  root.append(section);
  document.documentElement.append(panel);
}

function heading() {
  if (refusal) return "Not reloaded: the old code keeps running";
  return errors.length > 0 ? "A script has failed" : "A script has warnings";
}

function dismiss() {
  errors = [];
  warnings = [];
  refusal = null;
  show();
}

function hear(notice) {
  if (seen.has(notice.id)) return;
  seen.add(notice.id);
  if (notice.kind === "files") return location.reload();
  if (notice.kind === "reloaded") {
    // Earlier errors belong to replaced code.
    errors = [];
    warnings = [];
    refusal = null;
  } else if (notice.kind === "refused") {
    refusal = notice;
  } else if (notice.kind === "warning") {
    warnings = [...warnings, notice];
  } else {
    errors = [notice, ...errors].slice(0, SHOWN_MAX);
  }
  show();
}

function connect() {
  const url = new URL("/_veche/dev?channel=veche-dev", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url);
  socket.addEventListener("message", ({ data }) => hear(JSON.parse(data)));
  socket.addEventListener("close", () => setTimeout(connect, RETRY_MS));
}

addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && panel) dismiss();
});
connect();
