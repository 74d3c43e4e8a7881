// Explains the end of a connection to the visitor: a sentence, whether to try again, and the
// minimum delay. The functions have no side effects.

/** The server is full or stopping: reconnects are spread over at least this time. */
const PATIENT_MS = 10_000;
const RESTART_MS = 4_000;

const BY_CODE = {
  1000: { text: "The server closed the connection normally.", again: false },
  1001: { text: "The server is going away: it is stopping or being replaced.", again: true, leastCeilingMs: RESTART_MS },
  1002: { text: "This page violated the protocol.", again: true },
  1003: { text: "The server does not accept this kind of message.", again: true },
  1007: { text: "The server got text that is not valid UTF-8.", again: true },
  1008: { text: "The server refused this connection by its rules.", again: false },
  1009: { text: "A message was larger than the server allows.", again: true },
  1010: { text: "The server did not agree to an extension.", again: true },
  1011: { text: "Something failed inside the server.", again: true, leastCeilingMs: RESTART_MS },
  1012: { text: "The server is restarting.", again: true, leastCeilingMs: RESTART_MS },
  1013: {
    text: "The server asks to try again later: it is overloaded, or this page read too slowly and its outbox was full.",
    again: true,
    leastCeilingMs: PATIENT_MS,
  },
};

/**
 * @param {{code: number, reason: string, wasOpen: boolean}} end
 * @returns {{text: string, again: boolean, leastCeilingMs: number}}
 */
export function explain({ code, reason, wasOpen }) {
  const known = BY_CODE[code] ?? byRange(code, wasOpen);
  const detail = code === 1006 ? "" : ` Close code ${code}${reason ? `, “${reason}”` : ""}.`;
  return {
    text: known.text + detail,
    again: known.again,
    leastCeilingMs: known.leastCeilingMs ?? 0,
  };
}

/**
 * 1006 is the browser's own code: the TCP connection ended without a Close frame or was never
 * established.
 */
function byRange(code, wasOpen) {
  if (code === 1006) {
    return wasOpen
      ? { text: "The connection was lost: the server process or the network failed.", again: true }
      : { text: "The server did not answer, or refused the connection.", again: true };
  }
  // 3500 to 3999 and 4500 to 4999 tell clients not to reconnect, 3000 to 3499 and 4000 to 4499 tell
  // them to.
  if (code >= 3000) {
    const again = code % 1000 < 500;
    return { text: again ? "The server ended the connection." : "The back end disconnected this user.", again };
  }
  return { text: "The server ended the connection.", again: true };
}
