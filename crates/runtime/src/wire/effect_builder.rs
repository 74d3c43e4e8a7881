//! Converts the output of a worker process into effects. The server then executes them with the same code as the
//! effects of any other runtime.

use veche_types::{ConnectionId, WorkerId};

use super::from_worker::{CallRequest, HandlerEnd, HandlerOutput, WorkerCall, WorkerEffect};
use super::head::AttributeValue;
use crate::effects::{BYTES_MAX, COUNT_MAX};
use crate::hooks::HookResponse;
use crate::{
    Attribute, Credential, Effect, Effects, HandshakeReply, Level, PositionRequest, Token,
};
use veche_calls::WorkerConnection;

/// The event whose handler produced the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOrigin {
    /// A handshake that has not been answered.
    Handshake(ConnectionId),
    /// A message or the close of a WebSocket.
    Connection(ConnectionId),
    /// An HTTP request that has not been answered.
    Request(ConnectionId),
    /// A hook request, by its number.
    Hook(u64),
    /// An event that needs no answer, or no event at all.
    Worker,
}

/// The parts of a runtime that are needed to convert the output of a worker process into effects.
pub trait CallBridge {
    /// Returns a token that is not in use.
    fn token(&mut self) -> Token;

    /// Stores an attribute of a connection. Attributes are the runtime's own state, not effects.
    fn set_attribute(&mut self, of: WorkerConnection, name: &str, value: Option<Attribute>);
}

/// The limit of recorded effects is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handlers' output exceeds {mib} MiB or {COUNT_MAX} effects at once", mib = BYTES_MAX >> 20)]
pub struct EffectsFull;

/// Converts a handler's output into effects.
///
/// A connection that is being opened accepts no effects before [`Event::Open`](crate::Event::Open). So for an accepted
/// handshake the runtime first converts only the handler's end, which contains the answer, and holds the handler's effects back
/// until the connection is open.
#[derive(Clone, Copy, Debug)]
pub struct EffectBuilder {
    /// The worker that owns the connections.
    pub worker: WorkerId,
    /// The event whose handler produced the output.
    pub origin: EventOrigin,
}

impl EffectBuilder {
    /// Adds the effects of a handler, and the answer if the handler has ended.
    ///
    /// # Errors
    /// The limit of recorded effects is reached. The effects up to the limit have been added.
    pub fn add_effects(
        self,
        handled: HandlerOutput<'_>,
        bridge: &mut impl CallBridge,
        into: &mut Effects,
    ) -> Result<(), EffectsFull> {
        for effect in handled.effects {
            self.effect(effect, bridge, into)?;
        }
        match handled.end {
            Some(end) => self.end(end, into),
            None => Ok(()),
        }
    }

    /// Adds a call as an effect; the result of the effect will contain `token`. Returns `false` if the runtime has to
    /// handle the call itself.
    ///
    /// # Errors
    /// The limit of recorded effects is reached.
    pub fn add_call(
        self,
        call: WorkerCall<'_>,
        token: Token,
        into: &mut Effects,
    ) -> Result<bool, EffectsFull> {
        let effect = match call.request {
            // The runtime answers queries about connections itself, and passes external calls to its pools.
            CallRequest::Connection { .. } | CallRequest::Outside(_) => return Ok(false),
            CallRequest::Api { method, body } => Effect::Command {
                method: method.into_owned(),
                body: into.store(body).ok_or(EffectsFull)?,
                token,
            },
            CallRequest::Connections { user, limit } => Effect::Find {
                user: user.into_owned(),
                limit,
                token,
            },
            CallRequest::Subscribe {
                connection,
                channel,
                since,
            } => {
                let Some(connection) = self.local_connection(connection) else {
                    return Ok(false);
                };
                Effect::Subscribe {
                    connection,
                    channel: channel.into_owned(),
                    place: Some(PositionRequest {
                        since: since.map(Into::into),
                    }),
                    token,
                }
            }
            CallRequest::Renew {
                connection,
                token: secret,
            } => {
                let Some(connection) = self.local_connection(connection) else {
                    return Ok(false);
                };
                let credential = Credential(secret.into_owned());
                Effect::Renew {
                    connection,
                    credential,
                    token,
                }
            }
            CallRequest::Part { data } => {
                let EventOrigin::Request(to) = self.origin else {
                    return Ok(false);
                };
                Effect::Part {
                    to,
                    data: into.store(data).ok_or(EffectsFull)?,
                    token: Some(token),
                }
            }
        };
        into.list.push(effect);
        Ok(true)
    }

    /// Returns the addressed connection, if it belongs to this worker.
    fn local_connection(self, place: Option<WorkerConnection>) -> Option<ConnectionId> {
        let place = self.place(place)?;
        (place.worker == self.worker).then_some(place.connection)
    }

    fn place(self, place: Option<WorkerConnection>) -> Option<WorkerConnection> {
        place.or(match self.origin {
            EventOrigin::Handshake(id) | EventOrigin::Connection(id) | EventOrigin::Request(id) => {
                Some(WorkerConnection {
                    worker: self.worker,
                    connection: id,
                })
            }
            EventOrigin::Hook(_) | EventOrigin::Worker => None,
        })
    }

    fn effect(
        self,
        effect: WorkerEffect<'_>,
        bridge: &mut impl CallBridge,
        into: &mut Effects,
    ) -> Result<(), EffectsFull> {
        let effect = match effect {
            WorkerEffect::Send { to, kind, data } => {
                let Some(place) = self.place(to) else {
                    return Ok(());
                };
                let data = into.store(data).ok_or(EffectsFull)?;
                let (to, worker) = (place.connection, place.worker);
                match worker == self.worker {
                    true => Effect::Send { to, kind, data },
                    false => Effect::SendFar {
                        worker,
                        to,
                        kind,
                        data,
                    },
                }
            }
            WorkerEffect::Publish {
                channel,
                kind,
                data,
            } => Effect::Publish {
                channel: channel.into_owned(),
                kind,
                data: into.store(data).ok_or(EffectsFull)?,
            },
            // This worker can't subscribe a connection of another worker, so the effect is dropped.
            WorkerEffect::Subscribe {
                connection,
                channel,
            } => match self.local_connection(connection) {
                Some(connection) => Effect::Subscribe {
                    connection,
                    channel: channel.into_owned(),
                    place: None,
                    token: bridge.token(),
                },
                None => return Ok(()),
            },
            WorkerEffect::Unsubscribe {
                connection,
                channel,
            } => match self.local_connection(connection) {
                Some(connection) => Effect::Unsubscribe {
                    connection,
                    channel: channel.into_owned(),
                },
                None => return Ok(()),
            },
            WorkerEffect::Close { of, code, reason } => {
                let Some(place) = self.place(of) else {
                    return Ok(());
                };
                let (of, worker, reason) = (place.connection, place.worker, reason.into_owned());
                match worker == self.worker {
                    true => Effect::Close { of, code, reason },
                    false => Effect::CloseFar {
                        worker,
                        of,
                        code,
                        reason,
                    },
                }
            }
            WorkerEffect::Attributes { of, set } => {
                if let Some(place) = self.place(of) {
                    for (name, value) in set {
                        let value = value.map(|value: AttributeValue| value.into());
                        bridge.set_attribute(place, &name, value);
                    }
                }
                return Ok(());
            }
            WorkerEffect::Begin { status, headers } => match self.origin {
                EventOrigin::Request(to) => Effect::Begin {
                    to,
                    status,
                    headers,
                },
                _ => return Ok(()),
            },
            WorkerEffect::Part { data } => match self.origin {
                EventOrigin::Request(to) => Effect::Part {
                    to,
                    data: into.store(data).ok_or(EffectsFull)?,
                    token: None,
                },
                _ => return Ok(()),
            },
            WorkerEffect::End { is_whole } => match self.origin {
                EventOrigin::Request(to) => Effect::End { to, is_whole },
                _ => return Ok(()),
            },
            WorkerEffect::Log { level, text } => {
                into.log(level, text.into_owned(), None);
                return Ok(());
            }
        };
        into.list.push(effect);
        Ok(())
    }

    fn end(self, end: HandlerEnd<'_>, into: &mut Effects) -> Result<(), EffectsFull> {
        let effect = match (self.origin, end) {
            (origin, HandlerEnd::Failed(text)) => {
                into.log(Level::Error, text.into_owned(), None);
                match origin {
                    EventOrigin::Handshake(of) => {
                        refuse(of, 500, text_headers(), b"internal error\n")
                    }
                    EventOrigin::Request(to) => Effect::Respond {
                        to,
                        status: 500,
                        headers: text_headers(),
                        body: into.store(b"internal error\n").ok_or(EffectsFull)?,
                    },
                    EventOrigin::Connection(of) => Effect::Failed { of },
                    EventOrigin::Hook(number) => Effect::Hook {
                        number,
                        response: HookResponse::Failed,
                    },
                    EventOrigin::Worker => return Ok(()),
                }
            }
            (EventOrigin::Handshake(of), HandlerEnd::Accept { user, protocol }) => {
                Effect::Handshake {
                    of,
                    reply: HandshakeReply::Accept {
                        user: user.map(Into::into),
                        protocol: protocol.map(Into::into),
                    },
                }
            }
            (
                EventOrigin::Handshake(of),
                HandlerEnd::Response {
                    status,
                    headers,
                    body,
                },
            ) => refuse(of, status, headers, body),
            (
                EventOrigin::Request(to),
                HandlerEnd::Response {
                    status,
                    headers,
                    body,
                },
            ) => Effect::Respond {
                to,
                status,
                headers,
                body: into.store(body).ok_or(EffectsFull)?,
            },
            (
                EventOrigin::Request(to),
                HandlerEnd::File {
                    status,
                    headers,
                    path,
                },
            ) => Effect::RespondFile {
                to,
                status,
                headers,
                path: path.into_owned(),
            },
            (EventOrigin::Hook(number), HandlerEnd::Hook(response)) => Effect::Hook {
                number,
                response: *response,
            },
            (EventOrigin::Connection(of), _) => Effect::Ready { of },
            _ => return Ok(()),
        };
        into.list.push(effect);
        Ok(())
    }
}

fn text_headers() -> Vec<(String, String)> {
    vec![("Content-Type".into(), "text/plain; charset=utf-8".into())]
}

fn refuse(of: ConnectionId, status: u16, headers: Vec<(String, String)>, body: &[u8]) -> Effect {
    Effect::Handshake {
        of,
        reply: HandshakeReply::Refuse {
            status,
            headers,
            body: body.to_vec(),
        },
    }
}
