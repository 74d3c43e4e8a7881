//! Hook decisions on the commands of one client, and checks that the decisions take effect.

use serde_json::{Value, json};
use veche_frontends::hooks::HookKind;

use crate::channels::{self, CHANNELS};
use crate::client::SimulatedClient;
use crate::client_commands::SentCommand;
use crate::client_transport::HookRoute;
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::hook_outcome::{CommandDecision, HookOutcome};
use crate::ledger::Ledger;
use crate::phase::Phase;

/// The error code of a grant that has expired before it is used.
const EXPIRED: u32 = 110;

/// Maximum time that an expired connection or subscription continues while the hook is asked.
const GRACE_MS: u64 = 25_000;

/// The error code of a command that the client may not send.
const PERMISSION_DENIED: u32 = 103;

/// The error code of a command whose hook failed.
const INTERNAL: u32 = 100;

impl SimulatedClient {
    pub(crate) fn is_of_app(&self) -> bool {
        self.hook_route == HookRoute::App
    }

    /// Sends an RPC that the application decides on.
    pub(crate) fn call(&mut self) {
        if self.hook_route == HookRoute::NoHook || !self.has_room() {
            return;
        }
        let number = u64::from(self.next_id);
        self.send(
            SentCommand::Rpc(number),
            json!({ "rpc": { "method": "echo", "data": { "rpc": number } } }),
        );
    }

    /// Checks a reply against the decision. Returns whether the command succeeded.
    pub(crate) fn check_decision(
        &mut self,
        command: &SentCommand,
        line: &Value,
        ledger: &mut Ledger,
    ) -> Result<bool, crate::Failure> {
        let (kind, channel, number) = match *command {
            SentCommand::Connect(_) => (HookKind::Connect, None, 0),
            SentCommand::Subscribe(channel, _) => (HookKind::Subscribe, Some(channel), 0),
            SentCommand::Publish(channel, number) => (HookKind::Publish, Some(channel), number),
            SentCommand::Rpc(number) => (HookKind::Rpc, None, number),
            // Only subscribers may read the history or the presence, and the client is not
            // subscribed: the subscription was refused or has ended.
            SentCommand::History(channel, ..) | SentCommand::Presence(channel)
                if self.is_out_of(channel) =>
            {
                return Ok(line["error"]["code"].as_u64() != Some(u64::from(PERMISSION_DENIED)));
            }
            _ => return Ok(true),
        };
        let is_asked = channel.is_none_or(|channel| CHANNELS[channel].kind.is_hooked());
        if self.hook_route == HookRoute::NoHook || !is_asked {
            return Ok(true);
        }
        let name = channel.map_or("", |channel| CHANNELS[channel].name);
        let mut commands = self.decisions.iter();
        let place =
            commands.position(|one| !matches!(one.kind, HookKind::Refresh | HookKind::SubRefresh));
        let decided = place.map(|place| self.decisions.remove(place));
        let is_it = |one: &CommandDecision| {
            (one.kind, &*one.channel) == (kind, name)
                && (one.number == number || matches!(kind, HookKind::Connect | HookKind::Subscribe))
        };
        promise!(
            decided.as_ref().is_some_and(is_it),
            "no reply precedes its decision",
            "{line} to {command:?}, and {decided:?}"
        );
        let code = line["error"]["code"].as_u64();
        let is_notified = match decided.map(|one| one.fate) {
            Some(HookOutcome::Granted(0)) => code.is_none(),
            Some(HookOutcome::Granted(_)) => code.is_none_or(|code| code == u64::from(EXPIRED)),
            Some(HookOutcome::Denied(expected)) => code == Some(expected.into()),
            Some(HookOutcome::Failed) => code == Some(INTERNAL.into()),
            _ => false,
        };
        promise!(
            is_notified,
            "a client receives the decision",
            "{line} to {command:?} of {}",
            self.number
        );
        if code.is_none() {
            if kind == HookKind::Rpc {
                let data = &line["rpc"]["data"];
                // Data that was sent as bytes arrives as text.
                let read = data.as_str().map(serde_json::from_str::<Value>);
                let reported = match &read {
                    Some(read) => read.as_ref().ok().and_then(|data| data["rpc"].as_u64()),
                    None => data["rpc"].as_u64(),
                };
                promise!(
                    reported == Some(number),
                    "an RPC is answered with its own result",
                    "{line} to {number}"
                );
                ledger.seen.note(CoverageEvent::Rpc);
            }
            return Ok(true);
        }
        ledger.trace.note(&[self.number as u64, code.unwrap_or(0)]);
        match (kind, channel) {
            // The client closes and connects again.
            (HookKind::Connect, _) => self.close(),
            (HookKind::Subscribe, Some(channel)) => {
                self.wants.remove(&channel);
                self.subscriptions.remove(&channel);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Returns whether a hooked subscription was refused or has ended, even if the client has subscribed again after the
    /// command that is being answered.
    fn is_out_of(&self, channel: usize) -> bool {
        let subscribes_again = self.pending.iter().any(
            |later| matches!(later.command, SentCommand::Subscribe(other, _) if other == channel),
        );
        self.hook_route != HookRoute::NoHook
            && CHANNELS[channel].kind.is_hooked()
            && (!self.subscriptions.contains_key(&channel) || subscribes_again)
    }

    /// Returns whether a decision closes the client with this code.
    pub(crate) fn is_ended_by(&self, code: Option<u16>, now_ms: u64) -> bool {
        if code == Some(3005) {
            return self.is_over("", now_ms);
        }
        let mut all = self.decisions.iter();
        all.any(|one| matches!(one.fate, HookOutcome::Ended(ended) if code == Some(ended)))
    }

    /// Returns whether a subscription, or the connection, has expired.
    fn is_over(&self, channel: &str, now_ms: u64) -> bool {
        let until_ms = self.expiries.get(channel);
        until_ms.is_some_and(|until_ms| *until_ms <= now_ms)
    }

    /// Records a decision for this connection at the given time.
    pub(crate) fn note_decided(&mut self, decided: CommandDecision, now_ms: u64) {
        let channel = match decided.kind {
            HookKind::Connect | HookKind::Refresh => Some(Box::default()),
            HookKind::Subscribe | HookKind::SubRefresh => Some(decided.channel.clone()),
            _ => None,
        };
        // The decision comes too late for a subscription that has already ended.
        let channel =
            channel.filter(|channel| !self.is_over(channel, now_ms.saturating_sub(GRACE_MS)));
        match (channel, decided.fate) {
            (Some(channel), HookOutcome::Granted(0)) => drop(self.expiries.remove(&channel)),
            (Some(channel), HookOutcome::Granted(for_s)) => {
                // Expiries are in whole seconds.
                let until_ms = (now_ms / 1_000 + u64::from(for_s)) * 1_000;
                self.expiries.insert(channel, until_ms);
            }
            (Some(channel), HookOutcome::Over) => drop(self.expiries.insert(channel, now_ms)),
            _ => {}
        }
        self.decisions.push(decided);
    }

    /// Handles the expiry of a subscription.
    pub(crate) fn unsubscribed(&mut self, name: &str, ledger: &mut Ledger) -> PromiseResult {
        promise!(
            self.is_over(name, ledger.now_ms),
            "subscriptions end for a reason",
            "{name} of {}: {:?}",
            self.number,
            self.expiries
        );
        ledger.seen.note(CoverageEvent::Unsubscribed);
        if let Some(channel) = channels::find(name) {
            self.subscriptions.remove(&channel);
            self.wants.remove(&channel);
        }
        self.decisions
            .retain(|one| &*one.channel != name || one.kind != HookKind::SubRefresh);
        Ok(())
    }

    /// Checks that every decision on the client's commands took effect, once the world is at rest.
    pub(crate) fn check_decided(&self) -> PromiseResult {
        if self.phase != Phase::Online || !self.reads {
            return Ok(());
        }
        let is_open = |one: &&CommandDecision| match one.kind {
            HookKind::Refresh => matches!(one.fate, HookOutcome::Over | HookOutcome::Ended(_)),
            // The subscription may have ended before the decision.
            HookKind::SubRefresh => false,
            _ => true,
        };
        let left = self.decisions.iter().find(is_open);
        promise!(
            left.is_none(),
            "decisions take effect",
            "{left:?} of {}",
            self.number
        );
        Ok(())
    }
}
