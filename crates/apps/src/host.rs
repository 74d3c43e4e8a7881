//! The implementation of the interface by which a worker drives its applications.

use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Context, RenewError};
use veche_hub::{ChannelEvent, ConnectionId};
use veche_runtime::Runtime;
use veche_worker::AppHost;

use super::app_hosts::AppHosts;
use super::remote_sends::AppWorkerMessage;
use super::requester::Requester;
use super::service::ServicePhase;

impl AppHost for AppHosts {
    type Message = AppWorkerMessage;

    fn requesting_app(session: ConnectionId) -> Option<AppId> {
        Requester::of(session).map(Requester::app)
    }

    fn handle_message(&mut self, message: AppWorkerMessage, shared: &mut Context) {
        self.receive_app_message(message, shared);
    }

    fn has_messages(&self) -> bool {
        self.has_app_messages()
    }

    fn next_message(&mut self, to: usize) -> Option<AppWorkerMessage> {
        self.next_app_message(to)
    }

    fn decide_hook(
        &mut self,
        app: AppId,
        timeout_ms: u64,
        request: &HookRequest,
        shared: &mut Context,
    ) {
        self.run_hook(app, timeout_ms, request, shared);
    }

    fn handle_renewed(
        &mut self,
        renewal: &TokenRenewal,
        result: Result<Option<u64>, RenewError>,
        shared: &mut Context,
    ) {
        self.deliver_refreshed(renewal, result, shared);
    }

    fn handle_channel_event(&mut self, events: &[ChannelEvent], lost: u64) -> bool {
        self.queue_events(events, lost)
    }

    fn stop(&mut self, shared: &mut Context) {
        self.stop_all(shared);
    }

    fn has_stopped(&self) -> bool {
        self.have_all_stopped()
    }

    fn has_clients(&self) -> bool {
        let apps = self.apps.iter().flatten();
        apps.filter(|app| !app.is_service())
            .any(|app| !app.runtime.has_no_clients())
    }

    fn stop_services(&mut self, until_ms: u64, shared: &mut Context) {
        self.shut_down_services(until_ms, shared);
    }

    fn have_services_ended(&self) -> bool {
        self.phase == ServicePhase::Over
    }
}
