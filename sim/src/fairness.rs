//! Checks the order in which a home serves publications that wait for one lane: at most one later
//! publication, of the home itself or of another worker, may overtake each of them.

use std::collections::BTreeSet;

use veche_hub::HubMessage;
use veche_worker::WorkerMessage;

use crate::channels;
use crate::data::number_in_text;
use crate::failure::{PromiseResult, promise};
use crate::worker_driver::WorldMessage;

/// A publication by its channel and number.
type Publication = (usize, u64);

/// Checks the order of the publications that are to be sent to one worker.
pub(crate) struct FairnessCheck {
    to: usize,
    /// The channels to check: those of which the worker must get every publication, and whose
    /// publications no log delays.
    channels: BTreeSet<usize>,
    waiting: Vec<Waiting>,
    served: BTreeSet<Publication>,
    /// The publication that was overtaken twice, and the one that overtook it last.
    passed: Option<(Publication, Publication)>,
}

struct Waiting {
    home: usize,
    publication: Publication,
    /// Whether the publication arrived in the home's current turn. In that turn, the home may first
    /// send earlier publications of its own.
    is_new: bool,
    /// The number of later publications that the home has sent before this one.
    passes: u32,
}

impl FairnessCheck {
    pub(crate) fn new(to: usize, channels: BTreeSet<usize>) -> Self {
        Self {
            to,
            channels,
            waiting: Vec::new(),
            served: BTreeSet::new(),
            passed: None,
        }
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records that a home has processed a message of another worker.
    pub(crate) fn taken(&mut self, home: usize, message: &WorldMessage) {
        match message {
            WorkerMessage::Hub(HubMessage::Publish { payload, .. }) => {
                if let Some(publication) = self.find(&payload.bytes) {
                    self.waiting.push(Waiting {
                        home,
                        publication,
                        is_new: true,
                        passes: 0,
                    });
                }
            }
            // If this was the worker's last subscriber, the home drops publications that wait for the worker, so the
            // channel is no longer checked.
            WorkerMessage::Hub(HubMessage::Unsubscribe { channel, .. }) => {
                let left = channels::find(channel);
                let is_wildcard = channel.ends_with('*');
                self.channels
                    .retain(|one| Some(*one) != left && !is_wildcard);
                let channels = &self.channels;
                self.waiting
                    .retain(|one| channels.contains(&one.publication.0));
            }
            _ => {}
        }
    }

    /// Records that a home sends a message to another worker.
    pub(crate) fn posted(&mut self, home: usize, to: usize, message: &WorldMessage) {
        let WorkerMessage::Hub(HubMessage::Deliver { publication, .. }) = message else {
            return;
        };
        let found = self.find(&publication.payload.bytes);
        let Some(publication) = found.filter(|_| to == self.to) else {
            return;
        };
        // The publication was sent before, and is sent again for wildcard subscribers.
        if !self.served.insert(publication) {
            return;
        }
        let place = self
            .waiting
            .iter()
            .position(|one| one.publication == publication);
        if let Some(place) = place {
            self.waiting.remove(place);
        }
        let earlier = place.unwrap_or(self.waiting.len());
        for one in self.waiting[..earlier].iter_mut() {
            let is_passed = one.home == home && !(one.is_new && place.is_none());
            one.passes += u32::from(is_passed);
            if one.passes > 1 {
                self.passed.get_or_insert((one.publication, publication));
            }
        }
    }

    /// Records that a home has ended its turn.
    pub(crate) fn turned(&mut self, home: usize) {
        for one in self.waiting.iter_mut().filter(|one| one.home == home) {
            one.is_new = false;
        }
    }

    pub(crate) fn check(&self) -> PromiseResult {
        promise!(
            self.passed.is_none(),
            "no waiting publication is overtaken twice",
            "{:?}, the channel and the number of both",
            self.passed
        );
        Ok(())
    }

    fn find(&self, bytes: &[u8]) -> Option<Publication> {
        let text = std::str::from_utf8(bytes).ok()?;
        let publication = number_in_text(text).ok()?;
        self.channels
            .contains(&publication.0)
            .then_some(publication)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use veche_hub::{Payload, PayloadKind, Publication};

    use super::*;

    const HOME: usize = 0;
    const SLOW: usize = 1;

    fn payload(number: u64) -> Payload {
        let text = crate::data::data(0, number, 0).to_string();
        Payload {
            kind: PayloadKind::Json,
            bytes: text.into_bytes().into(),
        }
    }

    fn taken(watch: &mut FairnessCheck, number: u64) {
        let mail = HubMessage::Publish {
            channel: "chat:1".into(),
            payload: payload(number),
            terms: None,
            reply: None,
        };
        watch.taken(HOME, &WorkerMessage::Hub(mail));
    }

    fn posted(watch: &mut FairnessCheck, number: u64) {
        let publication = Publication {
            payload: payload(number),
            position: None,
            at_ms: 0,
            event: veche_hub::FeedEvent::Published,
            info: None,
        };
        let mail = HubMessage::Deliver {
            channel: Arc::from("chat:1"),
            publication,
            previous: None,
        };
        watch.posted(HOME, SLOW, &WorkerMessage::Hub(mail));
    }

    #[test]
    fn one_that_came_later_may_be_served_once_and_not_twice() {
        let watch = || FairnessCheck::new(SLOW, BTreeSet::from([0]));
        let mut own = watch();
        taken(&mut own, 0);
        // The home itself made these publications before the messages of its turn arrived.
        posted(&mut own, 1);
        posted(&mut own, 2);
        own.turned(HOME);
        posted(&mut own, 3);
        assert_eq!(own.check(), Ok(()));
        posted(&mut own, 4);
        assert!(own.check().is_err());

        let mut others = watch();
        (0..4).for_each(|number| taken(&mut others, number));
        (0..2).for_each(|number| posted(&mut others, number));
        assert_eq!(others.check(), Ok(()));
        posted(&mut others, 3);
        assert_eq!(others.check(), Ok(()));
        taken(&mut others, 4);
        posted(&mut others, 4);
        assert!(others.check().is_err());
        assert!(others.is_waited_for());
    }
}
