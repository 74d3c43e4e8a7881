//! Tests of the execution of back ends' commands.

use super::*;

#[test]
fn exchanges_are_complete_in_any_order_and_stay_so() {
    let mut backend = Backend::default();
    let asked = |open| (open, ExchangeState::Queried(None));
    for (open, content) in [asked(0), asked(1), asked(0), asked(1)] {
        backend.begin_exchange(None, open, content);
    }
    assert!(!backend.is_answered());
    backend.answered(ticket(3, 0), HubReply::CommandAcknowledged);
    assert!(!backend.is_answered());
    assert!(backend.write_answer(&mut Vec::new(), "result"));
    assert!(!backend.write_answer(&mut Vec::new(), "result"), "it waits");
    assert!(!backend.is_answered());
    backend.answered(ticket(1, 0), HubReply::CommandAcknowledged);
    assert!(backend.is_answered());
    backend.begin_exchange(None, 1, ExchangeState::Commanded);
    assert!(!backend.is_answered() && backend.take_answers().is_none());
    backend.answered(ticket(4, 0), HubReply::CommandAcknowledged);
    assert_eq!(backend.take_answers().map(|taken| taken.len()), Some(4));
    assert!(backend.is_answered(), "nothing is asked");
    backend.begin_exchange(None, 1, ExchangeState::Commanded);
    assert!(!backend.is_answered());
    backend.answered(ticket(5, 0), HubReply::CommandAcknowledged);
    assert!(backend.is_answered());
}
