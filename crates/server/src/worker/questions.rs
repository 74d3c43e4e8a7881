//! What sessions of this worker want decided, on its way to whoever decides, and what was decided on this thread.

use std::sync::Arc;

use veche_frontends::hooks::Decider;
use veche_net::Driver;

use super::Rest;

impl Rest {
    /// Takes the turn's questions to whoever decides, and hands over verdicts that are there. What these bring about in turn
    /// is taken up next turn, so that a client whose commands are all refused at once can't hold the worker.
    pub(super) fn ask_questions<D: Driver>(&mut self, driver: &mut D) {
        self.hand_in();
        if self.shared.ports.verdicts.is_empty() {
            return;
        }
        for _ in 0..self.shared.ports.verdicts.len() {
            if let Some((id, question, verdict)) = self.shared.ports.verdicts.pop_front() {
                self.with(driver, id, |connection, shared| {
                    connection.judged(id, question, verdict, shared)
                });
            }
        }
        self.hand_in();
        // They may have published, or have been decided on.
        self.busy = true;
    }

    fn hand_in(&mut self) {
        while let Some(question) = self.shared.ports.questions.pop_front() {
            let (session, id) = (question.session, question.id);
            let verdict = match question.decider {
                Decider::App { app, timeout_ms } => {
                    self.with_here(|here, shared| here.decide(app, timeout_ms, &question, shared));
                    // It may have published, or begun something.
                    self.busy = true;
                    None
                }
                Decider::BackEnd => {
                    let findings = Arc::clone(&self.findings);
                    let done = move |verdict| findings.judge(session, id, verdict);
                    self.common.hooks.ask(&question, done)
                }
            };
            if let Some(verdict) = verdict {
                let verdicts = &mut self.shared.ports.verdicts;
                verdicts.push_back((session, id, verdict));
            }
        }
    }
}
