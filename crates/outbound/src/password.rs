//! Password hashing with Argon2id: few hashes at a time, on blocking threads, with a bounded queue.

use std::sync::Arc;
use std::thread::available_parallelism;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{Error, PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use veche_calls::password::{PasswordAction, PasswordReply};
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply, PasswordCall};

use crate::metrics::ClientMetrics;

/// The memory of a new hash in KiB, and the number of passes over it: the first option of OWASP's Password Storage Cheat Sheet
/// that needs less than 32 MiB.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// The maximum memory, in KiB, of a hash that is verified. Other programs may have created it with other parameters.
const MEMORY_KIB_MAX: u32 = 64 * 1024;
/// The maximum work (passes times memory) of a hash that is verified: four times the work of a new hash.
const WORK_MAX: u64 = 4 * MEMORY_KIB as u64 * PASSES as u64;

/// The maximum number of concurrent hashes. It is low because each hash takes much memory. With few cores the maximum
/// is one hash per `CORES_PER_HASH` cores, so that cores are left to the workers.
const RUNNING_MAX: usize = 4;
const CORES_PER_HASH: usize = 2;

/// The maximum number of waiting calls for each call that may run at the same time.
const WAITING_PER_RUNNING: usize = 32;

/// The work of a new hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// 19 MiB and two passes.
    Usual,
    /// The least memory and work that Argon2 permits, for tests.
    Least,
}

/// Performs a call on the calling thread.
///
/// # Errors
/// [`CallErrorKind::Invalid`]: the hash is not a PHC string of Argon2, or needs more than 64 MiB or four times the usual work.
/// [`CallErrorKind::Broken`]: memory or random numbers are not available.
pub fn run(call: &PasswordCall, cost: Cost) -> Result<PasswordReply, CallError> {
    let (memory_kib, passes) = match cost {
        Cost::Usual => (MEMORY_KIB, PASSES),
        Cost::Least => (Params::MIN_M_COST, Params::MIN_T_COST),
    };
    let params = Params::new(memory_kib, passes, LANES, None).map_err(|error| broken(&error))?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let password = &call.password;
    let hash = match &call.action {
        PasswordAction::Verify { hash: Some(hash) } => hash,
        PasswordAction::Verify { hash: None } => {
            argon2
                .hash_password(password)
                .map_err(|error| broken(&error))?;
            return Ok(PasswordReply::IsRight(false));
        }
        PasswordAction::Hash => {
            let hash = argon2
                .hash_password(password)
                .map_err(|error| broken(&error))?;
            return Ok(PasswordReply::Hash(hash.to_string()));
        }
    };
    match argon2.verify_password(password, &parse(hash)?) {
        Ok(()) => Ok(PasswordReply::IsRight(true)),
        Err(Error::PasswordInvalid) => Ok(PasswordReply::IsRight(false)),
        Err(error) => Err(broken(&error)),
    }
}

/// Parses a hash, and refuses one that exceeds the limits for verification.
fn parse(hash: &str) -> Result<PasswordHash, CallError> {
    let invalid = |why: &str| CallError::new(CallErrorKind::Invalid, format!("password: {why}"));
    let hash = PasswordHash::new(hash)
        .ok()
        .filter(|hash| hash.salt.is_some() && hash.hash.is_some())
        .ok_or_else(|| invalid("the hash is not a PHC string with a salt and a digest"))?;
    Algorithm::try_from(hash.algorithm.as_str())
        .map_err(|_| invalid("the hash is not an Argon2 hash"))?;
    let params = Params::try_from(&hash)
        .map_err(|_| invalid("the hash has parameters that Argon2 does not allow"))?;
    let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
    if params.m_cost() > MEMORY_KIB_MAX || work > WORK_MAX {
        return Err(invalid(
            "the hash requires more memory or work than allowed",
        ));
    }
    Ok(hash)
}

fn broken(error: &dyn std::fmt::Display) -> CallError {
    CallError::new(CallErrorKind::Broken, format!("password: {error}"))
}

/// Performs calls on other threads.
#[derive(Debug)]
pub(crate) struct Hasher {
    /// One permit for each running or queued call.
    places: Arc<Semaphore>,
    /// One permit for each running call.
    turns: Arc<Semaphore>,
    figures: Arc<ClientMetrics>,
}

impl Hasher {
    pub(crate) fn new(figures: Arc<ClientMetrics>) -> Self {
        let cores = available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_turns((cores / CORES_PER_HASH).clamp(1, RUNNING_MAX), figures)
    }

    fn with_turns(running: usize, figures: Arc<ClientMetrics>) -> Self {
        let places = running * (1 + WAITING_PER_RUNNING);
        Self {
            places: Arc::new(Semaphore::new(places)),
            turns: Arc::new(Semaphore::new(running)),
            figures,
        }
    }

    /// Performs a call, or refuses it if too many are queued. If a call is cancelled while it waits, its place in the
    /// queue is free at once. A running hash can't be stopped, so a call that is cancelled later keeps its permit until
    /// its hash is complete.
    pub(crate) async fn perform(&self, call: PasswordCall) -> CallOutcome {
        let too_many = |_| {
            CallError::new(
                CallErrorKind::Refused,
                "password: too many hashes are queued",
            )
        };
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(too_many)?;
        let waits = self.turns.available_permits() == 0;
        let waits = waits.then(|| self.figures.wait());
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        drop(waits);
        let held = (place, turn, self.figures.used());
        let work = spawn_blocking(move || {
            let reply = run(&call, Cost::Usual);
            drop(held);
            reply
        });
        work.await
            .map_err(|error| broken(&error))?
            .map(CallReply::Password)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{Either, join_all, select};
    use futures_util::stream::{FuturesUnordered, StreamExt as _};

    use super::*;

    fn hash(password: &str) -> PasswordCall {
        PasswordCall {
            password: password.into(),
            action: PasswordAction::Hash,
        }
    }

    fn verify(password: &str, hash: Option<&str>) -> PasswordCall {
        PasswordCall {
            password: password.into(),
            action: PasswordAction::Verify {
                hash: hash.map(str::to_owned),
            },
        }
    }

    #[test]
    fn a_hash_is_as_owasp_says_and_fits_its_password_only() {
        let Ok(PasswordReply::Hash(first)) = run(&hash("correct horse"), Cost::Usual) else {
            panic!("no hash");
        };
        assert!(
            first.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{first}"
        );
        assert_ne!(
            run(&hash("correct horse"), Cost::Usual),
            Ok(PasswordReply::Hash(first.clone())),
            "the salt is new each time"
        );
        for (password, hash, is_right) in [
            ("correct horse", Some(first.as_str()), true),
            ("correct horse!", Some(&first), false),
            ("", Some(&first), false),
            ("correct horse", None, false),
        ] {
            let reply = run(&verify(password, hash), Cost::Usual);
            assert_eq!(reply, Ok(PasswordReply::IsRight(is_right)), "{password}");
        }
    }

    /// The hashes are from the tests of Argon2's reference implementation (`src/test.c`).
    #[test]
    fn hashes_of_other_programs_are_known() {
        for known in [
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA",
        ] {
            for (password, is_right) in [("password", true), ("passwort", false)] {
                let reply = run(&verify(password, Some(known)), Cost::Least);
                assert_eq!(reply, Ok(PasswordReply::IsRight(is_right)), "{known}");
            }
        }
    }

    #[test]
    fn invalid_and_expensive_hashes_are_rejected_first() {
        let digest = "c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let of = |head: &str| format!("${head}${digest}");
        for (bad, why) in [
            (String::new(), "not a PHC string"),
            ("secret".to_owned(), "not a PHC string"),
            (
                "$argon2id$v=19$m=19456,t=2,p=1".to_owned(),
                "not a PHC string",
            ),
            (of("scrypt$ln=4,r=8,p=1"), "not an Argon2 hash"),
            (of("argon2id$v=19$m=1,t=2,p=1"), "does not allow"),
            (of("argon2id$v=19$m=65537,t=1,p=1"), "more memory or work"),
            (of("argon2id$v=19$m=4194304,t=1,p=1"), "more memory or work"),
            (of("argon2id$v=19$m=19456,t=9,p=1"), "more memory or work"),
            (
                of("argon2id$v=19$m=8,t=4294967295,p=1"),
                "more memory or work",
            ),
        ] {
            let fault = run(&verify("x", Some(&bad)), Cost::Usual).expect_err(&bad);
            assert_eq!(fault.kind, CallErrorKind::Invalid, "{bad}");
            assert!(fault.words.contains(why), "{bad}: {}", fault.words);
        }
    }

    #[tokio::test]
    async fn running_and_queued_checks_are_limited() {
        let figures = Arc::new(ClientMetrics::default());
        let hasher = Hasher::with_turns(1, Arc::clone(&figures));
        let calls = (0..100).map(|_| hasher.perform(verify("x", Some("no hash"))));
        // No hash may run until all calls have arrived: the first to finish would make room for
        // another call.
        let turn = Arc::clone(&hasher.turns).acquire_owned().await;
        let begun = select(join_all(calls), std::future::ready(())).await;
        let Either::Right((_, calls)) = begun else {
            panic!("calls ended without a turn");
        };
        drop(turn);
        let outcomes = calls.await;
        let of = |kind| {
            let is =
                |outcome: &&CallOutcome| outcome.as_ref().is_err_and(|fault| fault.kind == kind);
            outcomes.iter().filter(is).count()
        };
        assert_eq!(of(CallErrorKind::Invalid), 1 + WAITING_PER_RUNNING);
        assert_eq!(of(CallErrorKind::Refused), 100 - 1 - WAITING_PER_RUNNING);
        assert_eq!((figures.busy(), figures.waiting()), (0, 0));
        assert!(hasher.perform(hash("x")).await.is_ok(), "places come back");
    }

    #[tokio::test]
    async fn calls_that_are_cancelled_give_up_their_places() {
        let hasher = Hasher::with_turns(1, Arc::default());
        for _ in 0..5 {
            let calls = (0..1 + WAITING_PER_RUNNING).map(|_| Box::pin(hasher.perform(hash("x"))));
            let mut calls: FuturesUnordered<_> = calls.collect();
            // All calls have started; then they are cancelled.
            select(calls.next(), std::future::ready(())).await;
        }
        let outcomes = join_all((0..10).map(|_| hasher.perform(hash("x")))).await;
        let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(done, 10);
    }
}
