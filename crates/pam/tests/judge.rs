//! Runs the real libpam with service files made by the tests.

use std::fs;
use std::path::PathBuf;

use veche_pam::library::Library;
use veche_pam::{Answer, Question, Service};

/// A folder of service files, removed when the test ends.
struct Rules(PathBuf);

impl Rules {
    fn new(rules: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("veche-pam-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in rules {
            fs::write(folder.join(name), text).expect("written");
        }
        Self(folder)
    }

    fn judged(&self, library: &Library, service: &str, password: &[u8]) -> Answer {
        let service = self.0.join(service).to_string_lossy().into_owned();
        library.judge(&Question {
            service: Service::parse(&service).expect("a service"),
            user: "ann".to_owned(),
            password: password.to_vec().into(),
            client: "192.0.2.1".to_owned(),
        })
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn rules_decide() {
    let library = match Library::load() {
        Ok(library) => library,
        Err(why) => return eprintln!("{why}: nothing tested"),
    };
    let rules = Rules::new(&[
        (
            "open",
            "auth required pam_permit.so\naccount required pam_permit.so\n",
        ),
        (
            "shut",
            "auth required pam_deny.so\naccount required pam_permit.so\n",
        ),
        (
            "ended",
            "auth required pam_permit.so\naccount required pam_deny.so\n",
        ),
        (
            "broken",
            "auth required pam_not_there.so\naccount required pam_permit.so\n",
        ),
    ]);
    let judged = |service| rules.judged(&library, service, b"secret");
    assert_eq!(judged("open"), Answer::Named("ann".to_owned()));
    assert!(matches!(judged("shut"), Answer::Refused(_)));
    assert!(matches!(judged("ended"), Answer::Refused(_)));
    assert!(matches!(judged("broken"), Answer::Failed(_)));
    let Answer::Failed(why) = judged("missing") else {
        panic!("there is no such service");
    };
    assert!(why.contains("there is no file"), "{why}");
    let nul = rules.judged(&library, "open", b"sec\0ret");
    assert!(matches!(nul, Answer::Refused(_)), "{nul:?}");
}
