//! Checks before a run begins whether this machine has enough descriptors and memory.

use crate::memory::{self, MessageMemory};
use crate::plan::Plan;

use veche_net::descriptors;
use veche_terminal::exit::{CommandFailure, Exit};

/// Descriptors that a process needs in addition to its connections.
const DESCRIPTORS_BESIDE: u64 = 64;

/// Raises the descriptor limit to its maximum. Fails if the limit or the available memory is
/// insufficient for these concurrent plans.
pub(super) fn check(plans: &[&Plan]) -> Result<(), CommandFailure> {
    let raised = descriptors::raise().map_err(|error| {
        CommandFailure::new(
            Exit::Failed,
            format!("can't raise the limit of file descriptors: {error}"),
        )
    })?;
    if let Some(maximum) = raised.to {
        descriptors_for(plans, maximum).map_err(|words| CommandFailure::new(Exit::Usage, words))?;
    }
    let weights: Vec<MessageMemory> = plans.iter().map(|plan| MessageMemory::of(plan)).collect();
    memory::check(&weights).map_err(|words| CommandFailure::new(Exit::Usage, words))
}

/// Fails if a process would need more than `maximum` descriptors. All plans with a single process
/// run in this process, so they share its descriptors.
fn descriptors_for(plans: &[&Plan], maximum: u64) -> Result<(), String> {
    let room = maximum.saturating_sub(DESCRIPTORS_BESIDE).max(1);
    for plan in plans {
        let clients = u64::from(plan.clients());
        if clients.div_ceil(plan.processes.max(1).into()) > room {
            return Err(format!(
                "{clients} connections are too many for {} process{}: a process may have {maximum} file descriptors; use --processes {}",
                plan.processes,
                if plan.processes == 1 { "" } else { "es" },
                clients.div_ceil(room)
            ));
        }
    }
    let ours = plans.iter().filter(|plan| plan.processes <= 1);
    let ours: u64 = ours.map(|plan| u64::from(plan.clients())).sum();
    if ours > room {
        return Err(format!(
            "{ours} connections of phases that run together in one process: a process may have {maximum} descriptors; \
             give a phase --processes 2 or more"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::loads::LoadPlan;
    use crate::loads::storm::StormPlan;
    use crate::payload::PayloadPlan;
    use crate::plan::Endpoint;
    use crate::target::Target;

    use super::*;

    fn plan(clients: u32, processes: u32) -> Plan {
        let target = Target::parse("ws://127.0.0.1:1/").expect("a URL");
        Plan {
            endpoints: vec![Endpoint::new(target, clients)],
            load: LoadPlan::Storm(StormPlan {
                payload: PayloadPlan::default(),
            }),
            duration_ns: None,
            warmup_ns: 0,
            timeout_ns: 1,
            opening_max: 1,
            connect_rate: None,
            sources: Vec::new(),
            seed: 0,
            threads: 1,
            processes,
        }
    }

    #[test]
    fn plans_at_the_same_time_share_a_process() {
        let check = |plans: &[(u32, u32)]| {
            let plans: Vec<Plan> = plans.iter().map(|one| plan(one.0, one.1)).collect();
            descriptors_for(&plans.iter().collect::<Vec<_>>(), 1064)
        };
        assert_eq!(check(&[(1000, 1)]), Ok(()));
        assert!(
            check(&[(1001, 1)])
                .unwrap_err()
                .ends_with("use --processes 2")
        );
        // Each phase alone would stay within the limit, but the phases run at the same time.
        let words = check(&[(600, 1), (401, 1)]).unwrap_err();
        assert!(
            words.starts_with("1001 connections of phases that run together"),
            "{words}"
        );
        assert_eq!(check(&[(600, 1), (400, 1)]), Ok(()));
        assert_eq!(check(&[(600, 1), (2000, 2)]), Ok(()));
        assert!(check(&[(600, 1), (2001, 2)]).is_err());
    }
}
