//! Performs the worker's requests to the process, and passes channel events on.

use std::sync::Arc;

use veche_worker::Request;

use super::{Host, Rest};

impl<A: Host> Rest<A> {
    pub(super) fn perform_requests(&mut self) {
        while let Some(request) = self.worker.poll_request() {
            match request {
                Request::Hook(question) => {
                    let (session, id) = (question.session, question.id);
                    let completions = Arc::clone(&self.completions);
                    let done = Box::new(move |verdict| completions.judge(session, id, verdict));
                    let decider = self.decider.as_deref().unwrap_or(&self.common.hooks);
                    if let Some(verdict) = decider.ask(question, done) {
                        self.worker.handle_verdict(session, id, verdict);
                    }
                }
                Request::AppsStopped => self.common.apps_stopped(),
                Request::ClientsGone => self.common.clients_gone(),
                Request::ServicesEnded => self.common.services_ended(),
            }
        }
        if self.worker.is_draining() {
            if self.common.have_apps_stopped() {
                self.worker.handle_apps_stopped();
            }
            if self.common.are_clients_gone() {
                self.worker.handle_clients_gone();
            }
            if self.common.have_services_ended() {
                self.worker.handle_services_ended();
            }
        }
    }

    pub(super) fn note_events(&mut self) {
        let (events, lost) = self.worker.poll_channel_events();
        if lost > 0 || !events.is_empty() {
            self.common.events.note(events, lost);
        }
    }
}
