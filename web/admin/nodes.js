// The nodes of the cluster, as known to this node.

import { fill, find, heads, say } from "./dom.js";
import { lasted, whole } from "./format.js";
import { pulse } from "./pulse.js";

/** For each column: the heading, and a function that returns the value for a node. */
const COLUMNS = [
  ["Node", (node) => node.name],
  ["Id", (node) => node.id],
  ["Version", (node) => node.version],
  ["State", state],
  ["Sessions", (node) => whole(node.sessions)],
  ["Users", (node) => whole(node.users)],
  ["Channels", (node) => whole(node.channels)],
  ["Subscriptions", (node) => whole(node.subscriptions)],
  ["Up for", (node) => lasted(node.uptime_s * 1_000)],
];
const KINDS = ["", "", "", "", "number", "number", "number", "number", "number"];

export function begin() {
  heads(find("nodes"), ...COLUMNS.map(([heading], at) => (KINDS[at] ? [heading, "number"] : heading)));
  pulse.addEventListener("figures", ({ detail }) => take(detail.figures.cluster));
}

function state(node) {
  const said = [];
  if (node.is_own) said.push("this node");
  if (node.is_draining) said.push("draining");
  if (node.disagrees) said.push(`conflicting ${node.disagrees}`);
  return said.join(", ") || "connected";
}

function take(cluster) {
  find("nodes").hidden = !cluster;
  if (!cluster) {
    say(find("nodes-note"), "This server is not a node of a cluster: type in [engine] is \"memory\".");
    return;
  }
  const partial = `Queries to all nodes: ${whole(cluster.questions)}, of which ${whole(cluster.partial_answers)} were answered in part.`;
  const link = cluster.is_current ? "" : "This node has no connection to the engine. ";
  say(find("nodes-note"), link + partial);
  fill(find("nodes"), cluster.nodes.map((node) => COLUMNS.map(([, value]) => value(node))), KINDS);
}
