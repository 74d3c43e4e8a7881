// The page's requests to app.lua, by HTTP.

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/** Returns the server's response. Throws `Refused` on an error response, and another error without a response. */
export async function ask(method, path, body) {
  const answer = await fetch(`api/${path}`, {
    method,
    headers: body && { "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const said = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, said?.error ?? `The server answers ${answer.status}.`);
  return said;
}
