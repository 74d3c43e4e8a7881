//! Implements the interface that the worker uses to drive its applications.

use veche_frontends::hooks::Question;
use veche_frontends::shared::Renewal;
use veche_frontends::{AppId, NotRenewed, Shared};
use veche_hub::{ConnectionId, Happening};
use veche_runtime::Runtime;
use veche_worker::AppHost;

use super::commands;
use super::far::AppMail;
use super::here::Here;
use super::inquire::asker;
use super::service::Phase;

impl AppHost for Here {
    type Message = AppMail;

    fn requester(session: ConnectionId) -> Option<AppId> {
        asker(session).or_else(|| commands::caller(session))
    }

    fn receive(&mut self, message: AppMail, shared: &mut Shared) {
        self.mail(message, shared);
    }

    fn has_messages(&self) -> bool {
        self.has_mail()
    }

    fn next_message(&mut self, to: usize) -> Option<AppMail> {
        self.next_mail(to)
    }

    fn decide(&mut self, app: AppId, timeout_ms: u64, question: &Question, shared: &mut Shared) {
        self.decide_on(app, timeout_ms, question, shared);
    }

    fn renewed(
        &mut self,
        renewal: &Renewal,
        result: Result<Option<u64>, NotRenewed>,
        shared: &mut Shared,
    ) {
        self.tell_renewed(renewal, result, shared);
    }

    fn happened(&mut self, events: &[Happening], lost: u64) -> bool {
        self.queue_events(events, lost)
    }

    fn stop(&mut self, shared: &mut Shared) {
        self.stop_all(shared);
    }

    fn has_stopped(&self) -> bool {
        self.have_all_stopped()
    }

    fn has_clients(&self) -> bool {
        let apps = self.apps.iter().flatten();
        apps.filter(|app| !app.is_service())
            .any(|app| !app.runtime.is_deserted())
    }

    fn stop_services(&mut self, until_ms: u64, shared: &mut Shared) {
        self.tell_services(until_ms, shared);
    }

    fn have_services_ended(&self) -> bool {
        self.phase == Phase::Over
    }
}
