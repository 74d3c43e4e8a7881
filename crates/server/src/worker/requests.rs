//! Executes the worker's requests to the process, and queues channel events for the back end.

use std::sync::Arc;

use veche_worker::ExternalRequest;

use super::{WorkerApps, WorkerState};

impl<A: WorkerApps> WorkerState<A> {
    pub(super) fn perform_requests(&mut self) {
        while let Some(request) = self.worker.poll_request() {
            match request {
                ExternalRequest::Hook(hook) => {
                    let (session, id) = (hook.session, hook.id);
                    let completions = Arc::clone(&self.completions);
                    let done = Box::new(move |decision| completions.decide(session, id, decision));
                    let hook_executor = self.hook_executor.as_deref().unwrap_or(&self.common.hooks);
                    if let Some(decision) = hook_executor.ask(hook, done) {
                        self.worker.handle_hook_decision(session, id, decision);
                    }
                }
                ExternalRequest::AppsStopped => self.common.mark_apps_stopped(),
                ExternalRequest::ClientsGone => self.common.mark_clients_gone(),
                ExternalRequest::ServicesEnded => self.common.mark_services_ended(),
            }
        }
        if self.worker.is_draining() {
            let progress = self.common.drain_progress();
            self.worker.handle_drain_progress(progress);
        }
    }

    pub(super) fn note_events(&mut self) {
        let (events, lost) = self.worker.poll_channel_events();
        if lost > 0 || !events.is_empty() {
            self.common.events.enqueue(events, lost);
        }
    }
}
