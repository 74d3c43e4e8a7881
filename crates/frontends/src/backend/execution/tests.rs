//! Tests of the execution of back ends' commands.

use veche_hub::Position;

use super::*;

/// A publication's result is written as one JSON object, whichever of its fields are known.
#[test]
fn results_of_publications_are_json_whatever_is_known() {
    let position = Position {
        epoch: "9x3kd07f".parse().expect("an epoch"),
        offset: 17,
    };
    for choice in 0..16 {
        let has = |bit: u32| choice & 1 << bit != 0;
        let outcome = PublishOutcome {
            receivers: has(0).then_some(2),
            nodes: has(1).then_some(3),
            position: has(2).then_some(position),
            is_skipped: has(3),
        };
        let fields = [
            (0, "\"handed\":2"),
            (1, "\"nodes\":3"),
            (2, "\"offset\":17,\"epoch\":\"9x3kd07f\""),
            (3, "\"taken\":false"),
        ];
        let known = fields.into_iter().filter(|(bit, _)| has(*bit));
        let known: Vec<&str> = known.map(|(_, field)| field).collect();
        let result = known.join(",");
        for (shape, expected) in [
            (AnswerShape::Sum, format!("{{\"result\":{{{result}}}}}")),
            (
                AnswerShape::Each,
                format!("{{\"result\":{{\"responses\":[{{\"result\":{{{result}}}}}]}}}}"),
            ),
        ] {
            let mut backend = Backend::default();
            let content = ExchangeState::Published(shape, None, vec![Some(outcome)]);
            backend.begin_exchange(None, 0, content);
            let mut out = Vec::new();
            assert!(backend.write_answer(&mut out, "result"));
            assert_eq!(String::from_utf8_lossy(&out), expected, "{outcome:?}");
        }
    }
}

/// The result for several targets contains the total number of receiving connections. If the number of one target is
/// unknown, the total is left out.
#[test]
fn the_result_for_several_targets_may_be_empty() {
    let known = PublishOutcome {
        receivers: Some(2),
        ..PublishOutcome::default()
    };
    let unknown = PublishOutcome {
        receivers: None,
        nodes: Some(1),
        ..known
    };
    for (targets, expected) in [
        ([known, known], r#"{"result":{"handed":4}}"#),
        ([known, unknown], r#"{"result":{}}"#),
        ([unknown, unknown], r#"{"result":{}}"#),
    ] {
        let mut backend = Backend::default();
        let targets = targets.map(Some).to_vec();
        let content = ExchangeState::Published(AnswerShape::Sum, Some("nobody"), targets);
        backend.begin_exchange(None, 0, content);
        let mut out = Vec::new();
        assert!(backend.write_answer(&mut out, "result"));
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}

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
