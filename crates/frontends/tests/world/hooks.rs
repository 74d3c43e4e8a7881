//! Whoever decides on commands, played by the test: it sees the questions and gives the verdicts.

use veche_frontends::hooks::{Question, Verdict};

use super::World;

impl World {
    /// What sessions of a worker have asked since.
    pub fn questions(&mut self, worker: usize) -> Vec<Question> {
        let ports = &mut self.workers[worker].shared.ports;
        ports.questions.drain(..).collect()
    }

    /// Gives a verdict, which is handed over in the next turn.
    pub fn judge(&mut self, worker: usize, question: &Question, verdict: Verdict) {
        let ports = &mut self.workers[worker].shared.ports;
        let verdict = (question.session, question.id, verdict);
        ports.verdicts.push_back(verdict);
    }

    pub(super) fn hand_verdicts(&mut self, me: usize) {
        while let Some((id, question, verdict)) = self.workers[me].shared.ports.verdicts.pop_front()
        {
            if let Some(peer) = self.workers[me].client(id) {
                self.with(peer, |connection, id, shared| {
                    connection.judged(id, question, verdict, shared)
                });
            }
        }
    }
}
