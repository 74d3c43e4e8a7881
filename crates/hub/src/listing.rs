//! Which channels there are.

use std::sync::Arc;

use crate::{Answer, ConnectionId, Hub, Mail, Outlet, Ticket, WorkerId};

/// The most channels that are listed at once.
pub const LISTED_MAX: usize = 10_000;

/// Channels with subscribers, and how many each has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    channels: Vec<(Arc<str>, u32)>,
    is_too_long: bool,
}

impl Listing {
    /// Those of another worker as well.
    pub fn add(&mut self, more: Self) {
        self.channels.extend(more.channels);
        self.is_too_long |= more.is_too_long || self.channels.len() > LISTED_MAX;
    }

    /// All of them, in no order; `None` if there are more than [`LISTED_MAX`].
    pub fn channels(&self) -> Option<&[(Arc<str>, u32)]> {
        (!self.is_too_long).then_some(&self.channels)
    }
}

impl Hub {
    /// Lists channels with subscribers whose names fit a pattern, in which `*` is any text and `?` any character. Returns
    /// those with their home here, and how many [`Answer::Channels`] of others will come. Takes longer the more there
    /// are.
    pub fn list(
        &self,
        (session, ticket): (ConnectionId, Ticket),
        pattern: &str,
        outlet: &mut impl Outlet,
    ) -> (Listing, u32) {
        let shared: Arc<str> = Arc::from(pattern);
        let others = (0..self.workers).map(WorkerId);
        for worker in others.filter(|worker| *worker != self.me) {
            let mail = Mail::List {
                pattern: Arc::clone(&shared),
                session,
                ticket,
            };
            outlet.mail(worker, mail);
        }
        (self.list_here(pattern), u32::from(self.workers) - 1)
    }

    pub(crate) fn receive_list(
        &self,
        from: WorkerId,
        pattern: &str,
        (session, ticket): (ConnectionId, Ticket),
        outlet: &mut impl Outlet,
    ) {
        let answer = Answer::Channels(self.list_here(pattern));
        let mail = Mail::Answer {
            session,
            ticket,
            answer,
        };
        outlet.mail(from, mail);
    }

    fn list_here(&self, pattern: &str) -> Listing {
        let mut listing = Listing::default();
        for channel in self.channels.iter() {
            let is_listed = channel.home.is_here() && fits(&channel.name, pattern);
            let clients = channel.subscribers_all();
            if !is_listed || clients == 0 {
                continue;
            }
            if listing.channels.len() == LISTED_MAX {
                listing.is_too_long = true;
                break;
            }
            listing.channels.push((Arc::clone(&channel.name), clients));
        }
        listing
    }
}

/// Whether a text fits a pattern. Takes at most their lengths' product.
fn fits(text: &str, pattern: &str) -> bool {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    // Behind the last `*`, and from where its text is taken to begin there.
    let mut again = None;
    loop {
        let at = (text.clone(), pattern.clone());
        match (text.next(), pattern.next()) {
            (_, Some('*')) => {
                text = at.0;
                again = Some((text.clone(), pattern.clone()));
            }
            (Some(_), Some('?')) => {}
            (Some(found), Some(wanted)) if found == wanted => {}
            (None, None) => return true,
            _ => {
                let Some((mut rest, behind)) = again else {
                    return false;
                };
                if rest.next().is_none() {
                    return false;
                }
                text = rest.clone();
                pattern = behind.clone();
                again = Some((rest, behind));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_patterns() {
        for (pattern, those, others) in [
            ("*", &["", "a", "вече"][..], &[][..]),
            ("chat:*", &["chat:", "chat:1"], &["chat", "xchat:1"]),
            ("*:1", &["chat:1", ":1", ":1:1"], &["chat:12", "1"]),
            ("a*b*c", &["abc", "axbxbyc", "abcc"], &["ab", "acb", "xabc"]),
            ("в?че", &["вече", "вxче"], &["вче", "вееече"]),
            ("", &[""], &["a"]),
            ("**", &["", "ab"], &[]),
            ("a", &["a"], &["", "aa"]),
        ] {
            for text in those {
                assert!(fits(text, pattern), "{text} {pattern}");
            }
            for text in others {
                assert!(!fits(text, pattern), "{text} {pattern}");
            }
        }
        // A pattern that is slow for those who try everything.
        let (text, pattern) = ("a".repeat(250), "*a".repeat(100) + "b");
        assert!(!fits(&text, &pattern));
    }
}
