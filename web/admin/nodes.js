// The nodes of the cluster, as this one knows them.

import { fill, find, heads, say } from "./dom.js";
import { lasted, whole } from "./format.js";
import { pulse } from "./pulse.js";

/** Heading, value of a node. */
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
  if (node.disagrees) said.push(`other ${node.disagrees}`);
  return said.join(", ");
}

function take(cluster) {
  find("nodes").hidden = !cluster;
  if (!cluster) {
    say(find("nodes-note"), "This server is not a node of a cluster: type in [engine] is \"memory\".");
    return;
  }
  const partial = `${whole(cluster.partial_answers)} of ${whole(cluster.questions)} answers did not cover all nodes.`;
  const link = cluster.is_current ? "" : "This node is cut off from the others. ";
  say(find("nodes-note"), link + partial);
  fill(find("nodes"), cluster.nodes.map((node) => COLUMNS.map(([, value]) => value(node))), KINDS);
}
