//! Publications to several targets, and those that wait for credit. Each publication is stored until it was published
//! to all of its targets.

use std::sync::Arc;

use veche_hub::{
    ChannelName, ConnectionId, Payload, PayloadRef, PublishOptions, PublishOutcome, RequestOutcome,
};

use super::exchange::{AnswerShape, ExchangeState};
use super::{Backend, CommandProgress, ticket};
use crate::backend::command::PublishCommand;
use crate::context::worker_context::Context;

/// A publication that still has to be published to some of its targets, because credit was used up. It is parsed and
/// owned, so that a retry parses and copies nothing.
#[derive(Debug)]
pub(super) struct UnfinishedPublish {
    targets: Vec<Box<str>>,
    next: usize,
    payload: Payload,
    terms: Option<Arc<PublishOptions>>,
    exchange: Option<u32>,
}

impl Backend {
    /// Publishes to several targets, as far as credit allows.
    #[expect(clippy::too_many_arguments, reason = "as publish_one")]
    pub(super) fn publish_many(
        &mut self,
        targets: Vec<Box<str>>,
        payload: PayloadRef<'_>,
        command: &PublishCommand<'_>,
        shape: AnswerShape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Context,
    ) -> CommandProgress {
        self.begin(targets, payload, command, shape, answered, shared);
        if self.resume(session, shared) {
            CommandProgress::Done
        } else {
            CommandProgress::Unfinished
        }
    }

    /// Stores a publication; [`resume`](Self::resume) then publishes it to its targets.
    pub(super) fn begin(
        &mut self,
        targets: Vec<Box<str>>,
        payload: PayloadRef<'_>,
        command: &PublishCommand<'_>,
        shape: AnswerShape,
        answered: bool,
        shared: &mut Context,
    ) -> CommandProgress {
        let exchange = answered.then(|| self.next_number());
        if answered {
            let published = vec![Some(PublishOutcome::default()); targets.len()];
            let content = ExchangeState::Published(shape, command.target.absence(), published);
            self.begin_exchange(command.id, 1, content);
        }
        shared.stats.pushes.add(1);
        self.unfinished = Some(UnfinishedPublish {
            targets,
            next: 0,
            payload: payload.to_payload(),
            terms: command.options.clone(),
            exchange,
        });
        CommandProgress::Unfinished
    }

    /// Publishes to the targets that waited for credit. Returns whether no target is left.
    pub fn resume(&mut self, session: ConnectionId, shared: &mut Context) -> bool {
        let Some(mut job) = self.unfinished.take() else {
            return true;
        };
        if self.advance(&mut job, session, shared) {
            if let Some(exchange) = job.exchange.and_then(|number| self.exchange(number)) {
                exchange.open -= 1;
            }
            return true;
        }
        self.unfinished = Some(job);
        false
    }

    /// Publishes to the remaining targets until credit is used up. Returns whether no target is
    /// left.
    fn advance(
        &mut self,
        job: &mut UnfinishedPublish,
        session: ConnectionId,
        shared: &mut Context,
    ) -> bool {
        while let Some(target) = job.targets.get(job.next) {
            let from = job
                .exchange
                .map(|number| (session, ticket(number, job.next)));
            let Ok(channel) = ChannelName::new(target) else {
                unreachable!("the channel's name was checked when the job was created")
            };
            let (hub, ports) = (&mut shared.hub, &mut shared.requests);
            match hub.publish(
                from,
                channel,
                job.payload.borrow(),
                job.terms.as_ref(),
                ports,
            ) {
                Err(_) => {
                    shared.stats.credits_refused.add(1);
                    return false;
                }
                Ok(outcome) => {
                    if let Some(exchange) = job.exchange.and_then(|number| self.exchange(number)) {
                        match (outcome, &mut exchange.content) {
                            (
                                RequestOutcome::Done(published),
                                ExchangeState::Published(_, _, targets),
                            ) => {
                                targets[job.next] = Some(published);
                            }
                            _ => exchange.open += 1,
                        }
                    }
                }
            }
            job.next += 1;
        }
        true
    }
}
