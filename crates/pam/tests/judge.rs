//! Runs the real libpam with service files made by the tests.

use std::fs;
use std::path::PathBuf;

use veche_pam::library::PamLibrary;
use veche_pam::{PamReply, PamRequest, PamService};

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

    fn authenticate(&self, library: &PamLibrary, service: &str, password: &[u8]) -> PamReply {
        let service = self.0.join(service).to_string_lossy().into_owned();
        library.authenticate(&PamRequest {
            service: PamService::parse(&service).expect("a service"),
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
    let library = match PamLibrary::load() {
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
    let authenticate = |service| rules.authenticate(&library, service, b"secret");
    assert_eq!(authenticate("open"), PamReply::Accepted("ann".to_owned()));
    assert!(matches!(authenticate("shut"), PamReply::Refused(_)));
    assert!(matches!(authenticate("ended"), PamReply::Refused(_)));
    assert!(matches!(authenticate("broken"), PamReply::Failed(_)));
    let PamReply::Failed(why) = authenticate("missing") else {
        panic!("there is no such service");
    };
    assert!(why.contains("does not exist"), "{why}");
    let nul = rules.authenticate(&library, "open", b"sec\0ret");
    assert!(matches!(nul, PamReply::Refused(_)), "{nul:?}");
}
