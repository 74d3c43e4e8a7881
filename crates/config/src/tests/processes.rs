//! Tests of `[[app]]` sections with worker processes: the account of the processes, also in a sandboxed server.

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::account::{Account, AccountError};

const APP: &str = "[[app]]\nname = \"chat\"\nruntime = \"php\"\ncommand = [\"php\", \"app.php\"]\n\
    [[route]]\npath = \"/ws\"\nhandler = \"app\"\napp = \"chat\"\n";

#[test]
fn worker_processes_have_an_account_beside_a_sandboxed_server() {
    let own = APP.replace("[[route]]", "user = \"65534\"\ngroup = \"1\"\n[[route]]");
    let config = good(&format!("[server]\nsandbox = true\n{LISTEN}{own}"));
    assert!(config.server.sandbox);
    let app = &config.apps[0];
    let run_as = app.processes.as_ref().and_then(|one| one.run_as.as_ref());
    let run_as = run_as.expect("an account");
    assert_eq!(
        (run_as.user.as_str(), run_as.group.as_deref()),
        ("65534", Some("1"))
    );
    let again = good(&config.effective.to_string());
    assert_eq!(again.apps, config.apps);
    match Account::of_app(app, None) {
        Ok(account) => assert_eq!(
            account,
            Some(Account {
                uid: 65_534,
                gid: 1
            })
        ),
        Err(error) => assert_eq!(
            error.to_string(),
            "app \"chat\": user: only root can run its processes as 65534; start veche as root or as that user"
        ),
    }
    // Without a configured account, the processes have that of the server process.
    let server = Account { uid: 5, gid: 6 };
    let config = good(&format!("{LISTEN}{APP}"));
    let account = Account::of_app(&config.apps[0], Some(&server));
    assert_eq!(account.expect("known"), Some(server));
}

#[test]
fn an_unknown_user_names_the_application() {
    let own = APP.replace("[[route]]", "user = \"veche-has-none\"\n[[route]]");
    let config = good(&format!("{LISTEN}{own}"));
    let error = Account::of_app(&config.apps[0], None).expect_err("unknown");
    assert!(matches!(error, AccountError::Unknown { .. }));
    assert_eq!(
        error.to_string(),
        "app \"chat\": user: this machine has no user \"veche-has-none\"; if the user has no local entry, configure its number"
    );
}

#[test]
fn accounts_are_for_worker_processes_only() {
    says_after_listen(
        "[[app]]\nname = \"a\"\nscript = \"chat/app.lua\"\nuser = \"www-data\"\n\
         [[app]]\nname = \"b\"\nruntime = \"worker\"\ncommand = [\"x\"]\ngroup = \"www-data\"\n",
        &[
            "6:1: user: has no effect with runtime = \"lua\"",
            "11:1: group: requires user, which is not set",
        ],
    );
}
