//! The sandbox of the server process: by Landlock it sees the files that its configuration names, and no others.
//!
//! Entered once, before the process has a second thread, and for good: what a later configuration names in other
//! folders stays out of reach until a restart. Sockets are not restricted by it. Nothing may be run from then on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use crate::config::{Config, Handler, StaticRoot};

/// What the kernel has to know of; newer kernels know more, which we don't need.
const KERNEL: ABI = ABI::V1;

/// What libraries read: names, zones, authorities; the number of cores; random bytes.
const SYSTEM: [&str; 13] = [
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/run/systemd/resolve",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/proc/self",
    "/sys/fs/cgroup",
    "/dev/urandom",
];

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("server.sandbox: {0}")]
    Rules(#[from] RulesetError),
    /// Whoever asks for one should not be left without.
    #[error(
        "server.sandbox: this kernel has no Landlock, or it is switched off (see lsm= of the kernel)"
    )]
    NoLandlock,
}

/// The calling thread, and all that it starts from now on, sees only what `config` names.
pub(crate) fn enter(config: &Config) -> Result<(), SandboxError> {
    let reads = AccessFs::from_read(KERNEL) & !BitFlags::from(AccessFs::Execute);
    let writes = AccessFs::from_all(KERNEL) & !BitFlags::from(AccessFs::Execute);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KERNEL))?
        .create()?;
    for path in read_by(config) {
        rules = allow(rules, &path, reads)?;
    }
    for path in written_by(config) {
        rules = allow(rules, &path, writes)?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
        _ => Ok(()),
    }
}

/// What is not there can't be read either way.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(rules);
    };
    let access = match path.is_dir() {
        true => access,
        // The kernel refuses what makes sense for folders only.
        false => access & AccessFs::from_file(KERNEL),
    };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

/// Folders rather than files: files that are replaced are other files.
fn read_by(config: &Config) -> BTreeSet<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    let mut folder_of = |file: &Path| {
        paths.extend(file.parent().map(Path::to_owned));
    };
    folder_of(&config.file);
    for app in &config.apps {
        folder_of(&app.script);
    }
    for service in &config.services {
        folder_of(&service.app.script);
    }
    for tls in config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref())
    {
        for file in tls.certificates.iter().flat_map(|from| from.files()) {
            folder_of(file);
        }
        if let Some(clients) = &tls.clients {
            folder_of(&clients.ca);
        }
    }
    for file in config.api.files.iter().chain(&config.admin.files) {
        folder_of(file);
    }
    if let Some(events) = &config.events {
        for file in events.files.iter().chain(&events.ca) {
            folder_of(file);
        }
    }
    if let Some(hooks) = &config.hooks {
        for file in hooks.files.iter().chain(&hooks.ca) {
            folder_of(file);
        }
    }
    if let Some(file) = config.jwt.as_ref().and_then(|jwt| jwt.keys.file()) {
        folder_of(file);
    }
    for file in [&config.hook.ca, &config.acme.ca].into_iter().flatten() {
        folder_of(file);
    }
    paths.extend(config.apps.iter().filter_map(|app| app.files.clone()));
    for route in &config.routes {
        if let Handler::Static {
            root: StaticRoot::Folder(root),
        } = &route.handler
        {
            paths.insert(root.clone());
        }
    }
    paths
}

/// Logs are made and renamed, and certificates that were ordered; what channels remember, and who is not let in.
fn written_by(config: &Config) -> BTreeSet<PathBuf> {
    let access = config.access_log.as_ref().map(|log| &log.file);
    let files = config.server.log.file.iter().chain(access);
    let files = files.chain(&config.api.blocks);
    let folders = files.filter_map(|file| file.parent());
    folders
        .map(Path::to_owned)
        .chain(config.history.iter().map(|history| history.path.clone()))
        .chain((!config.ordered().is_empty()).then(|| config.acme.folder()))
        .chain([PathBuf::from("/dev/null")])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    const TELLS: &str = "VECHE_TEST_SANDBOX";

    /// Enters the sandbox of the config that the environment names, and says what it can still do.
    #[test]
    #[ignore = "not a test: a process that locks itself up, for the test"]
    fn act_as_sandboxed() {
        let Some(folder) = std::env::var_os(TELLS).map(PathBuf::from) else {
            return;
        };
        let config = crate::config::load(&folder.join("in/veche.toml")).expect("a config");
        match enter(&config) {
            Ok(()) => {}
            Err(SandboxError::NoLandlock) => return println!("no landlock"),
            Err(error) => panic!("{error}"),
        }
        let told = |what: &str, works: bool| println!("{what}: {works}");
        let reads = |path: &str| fs::read(folder.join(path)).is_ok();
        told("config", reads("in/veche.toml"));
        told("page", reads("site/index.html"));
        told("secret", reads("out/secret"));
        told("passwd", fs::read("/etc/passwd").is_ok());
        told("write log", fs::write(folder.join("log/new"), "").is_ok());
        told(
            "rename log",
            fs::rename(folder.join("log/new"), folder.join("log/old")).is_ok(),
        );
        told(
            "write page",
            fs::write(folder.join("site/index.html"), "").is_ok(),
        );
        told("run", Command::new("/bin/true").status().is_ok());
        // What is started later is in it as well.
        let path = folder.join("out/secret");
        let elsewhere = std::thread::spawn(move || fs::read(path).is_ok());
        told("thread", elsewhere.join().expect("it ends"));
    }

    #[test]
    fn nothing_is_in_reach_but_what_the_config_names() {
        let folder = std::env::temp_dir().join(format!("veche-sandbox-{}", std::process::id()));
        for inner in ["in", "site", "log", "out"] {
            fs::create_dir_all(folder.join(inner)).expect("a folder");
        }
        for (path, text) in [
            ("site/index.html", "hello"),
            ("out/secret", "secret"),
            (
                "in/veche.toml",
                "[server]\nlog_file = \"../log/veche.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                 [[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"../site\"\n",
            ),
        ] {
            fs::write(folder.join(path), text).expect("written");
        }
        let output = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "sandbox::tests::act_as_sandboxed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(TELLS, &folder)
            .output()
            .expect("it runs");
        let _ = fs::remove_dir_all(&folder);
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("no landlock") {
            eprintln!("this kernel has no Landlock: nothing tested");
            return;
        }
        for (what, works) in [
            ("config", true),
            ("page", true),
            ("secret", false),
            ("passwd", false),
            ("write log", true),
            ("rename log", true),
            ("write page", false),
            ("run", false),
            ("thread", false),
        ] {
            let line = format!("{what}: {works}");
            assert!(said.contains(&line), "{line} not in\n{said}");
        }
    }
}
