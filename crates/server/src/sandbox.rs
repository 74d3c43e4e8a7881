//! The sandbox of the server process: Landlock restricts it to the files named in its configuration.
//!
//! The process enters the sandbox once, before it has a second thread, and permanently: other folders of a later
//! configuration stay inaccessible until a restart. No program can be executed. As far as the kernel supports it, the
//! process binds no TCP port (its sockets come from the supervisor), connects only to the ports of configured back ends
//! (unless scripts may connect anywhere), and neither signals processes outside of the sandbox nor uses their abstract
//! sockets.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags,
};

use veche_config::{
    Config, EngineConfig, IdentitySource, JwtConfig, KeySource, RedisEngine, RouteHandler,
    StaticRoot,
};
use veche_logging as logging;

/// The newest version of Landlock that is requested; older kernels enforce what they support. The
/// next version (V9, path sockets) would prevent scripts from connecting to local databases.
const KERNEL: ABI = ABI::V8;

/// The operations permitted in writable folders. The process can't create symbolic links, devices, FIFOs or sockets
/// there, and can't control devices with ioctl.
const WRITES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
});

/// DNS uses TCP for long answers.
const DNS_PORT: u16 = 53;

/// The restrictions, each with the first version of Landlock that enforces it. Their names are reported at the start.
const PARTS: [(ABI, &str); 7] = [
    (ABI::V1, "files"),
    (ABI::V2, "links between folders"),
    (ABI::V3, "truncation"),
    (ABI::V4, "TCP"),
    (ABI::V5, "device commands"),
    (ABI::V6, "abstract sockets"),
    (ABI::V6, "signals"),
];

/// Paths from which libraries read host names, time zones, certificates, the number of cores and random bytes.
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

/// The reason why the sandbox can't be entered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("server.sandbox: {0}")]
    Rules(#[from] RulesetError),
    /// The configuration requires a sandbox, which this kernel can't provide.
    #[error(
        "server.sandbox: this kernel has no Landlock, or it is disabled (see the kernel parameter lsm=)"
    )]
    NoLandlock,
}

/// The restrictions in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SandboxState {
    abi: ABI,
    /// The ports to which the process may connect; `None` if it may connect to all ports.
    ports: Option<BTreeSet<u16>>,
}

impl SandboxState {
    /// Returns the ports that a later configuration requires but to which the process can't connect before a restart.
    pub(crate) fn out_of_reach(&self, config: &Config) -> Vec<u16> {
        let Some(ports) = self.ports.as_ref().filter(|_| self.abi >= ABI::V4) else {
            return Vec::new();
        };
        let named = config_ports(config);
        named.difference(ports).copied().collect()
    }

    /// Describes the restrictions that this kernel does not enforce.
    pub(crate) fn missing(&self) -> String {
        let parts = PARTS.iter().filter(|(since, _)| self.abi < *since);
        let parts: Vec<&str> = parts.map(|(_, part)| *part).collect();
        parts.join(", ")
    }
}

/// Describes the enforced restrictions.
impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (_, part)) in (0..).zip(PARTS.iter().filter(|(since, _)| self.abi >= *since)) {
            if place > 0 {
                f.write_str(", ")?;
            }
            f.write_str(part)?;
            if *part == "TCP" {
                f.write_str(" (binds no port, connects to ")?;
                match &self.ports {
                    None => f.write_str("all ports)")?,
                    Some(ports) => {
                        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                        write!(f, "ports {})", ports.join(" "))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Restricts the calling thread, and all threads that it starts, to the paths in `config`.
pub(crate) fn enter(config: &Config) -> Result<SandboxState, SandboxError> {
    let reads = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let ports = connects_to(config);
    let mut net = BitFlags::from(AccessNet::BindTcp);
    if ports.is_some() {
        net |= AccessNet::ConnectTcp;
    }
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KERNEL))?
        .handle_access(net)?
        .scope(Scope::from_all(KERNEL))?
        .create()?;
    for path in read_by(config) {
        rules = allow(rules, &path, reads)?;
    }
    for path in written_paths(config) {
        rules = allow(rules, &path, WRITES)?;
    }
    for port in ports.iter().flatten() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    let status = rules.restrict_self()?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(SandboxError::NoLandlock),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(SandboxState {
            abi: effective_abi,
            ports,
        }),
        (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => {
            Err(SandboxError::NoLandlock)
        }
    }
}

/// Returns the ports that the process connects to; `None` if they are not known in advance, because applications may
/// connect anywhere, or because a Redis Sentinel or a certificate authority chooses ports.
fn connects_to(config: &Config) -> Option<BTreeSet<u16>> {
    // Sentinels return the ports of the Redis servers, so the ports are not known here.
    let has_sentinels = |redis: &RedisEngine| redis.sentinels.is_some();
    let is_found = matches!(&config.engine, EngineConfig::Redis(redis) if has_sentinels(redis));
    let is_free = is_found || !config.apps.is_empty() || !config.services.is_empty();
    match is_free || !config.ordered().is_empty() {
        true => None,
        false => Some(config_ports(config)),
    }
}

/// Returns the ports of the configured URLs, and the DNS port.
fn config_ports(config: &Config) -> BTreeSet<u16> {
    let routes = config.routes.iter();
    let identities = routes.filter_map(|route| route.handler.identity());
    let identities = identities.filter_map(|identity| match identity {
        IdentitySource::Hook(url) => Some(url.expose()),
        _ => None,
    });
    let keys = config.tokens().filter_map(|jwt| match &jwt.keys {
        KeySource::Published(set) => Some(set.url.expose()),
        _ => None,
    });
    let hooks = config.hook_urls().map(|(.., url)| url.expose());
    let events = config.events.iter().map(|events| events.url.expose());
    let urls = identities.chain(keys).chain(hooks).chain(events);
    urls.filter_map(|url| url::Url::parse(url).ok()?.port_or_known_default())
        .chain(engine_port(config))
        .chain([DNS_PORT])
        .collect()
}

/// Returns the port of an engine outside the process.
fn engine_port(config: &Config) -> Option<u16> {
    match &config.engine {
        EngineConfig::Redis(redis) => Some(redis.keyspace.server.port),
        EngineConfig::Memory => None,
    }
}

/// Adds a rule that allows `access` to `path`. No rule is added for a missing path.
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
        // The kernel rejects folder rights on files.
        false => access & AccessFs::from_file(KERNEL),
    };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

/// Returns the paths that the process reads: folders rather than files, since files may be replaced by new ones.
fn read_by(config: &Config) -> BTreeSet<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    let mut folder_of = |file: &Path| {
        paths.extend(file.parent().map(Path::to_owned));
    };
    folder_of(&config.file);
    for script in config
        .apps
        .iter()
        .filter_map(veche_config::AppConfig::own_script)
    {
        folder_of(script);
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
    for file in config.tokens().flat_map(JwtConfig::files) {
        folder_of(file);
    }
    for file in [&config.identity_hook.ca, &config.acme.ca]
        .into_iter()
        .flatten()
    {
        folder_of(file);
    }
    paths.extend(config.apps.iter().filter_map(|app| app.files.clone()));
    for route in &config.routes {
        if let RouteHandler::Static {
            root: StaticRoot::Folder(root),
            ..
        } = &route.handler
        {
            paths.insert(root.clone());
        }
    }
    paths
}

/// Returns the folders of logs, ordered certificates, history, saved tables and bans, in which files are created and
/// renamed.
fn written_paths(config: &Config) -> BTreeSet<PathBuf> {
    let access = config.access_log.as_ref().map(|log| &log.file);
    let files = config.server.log.file.iter().chain(access);
    let files = files.chain(&config.api.blocks);
    let files = files.filter(|file| logging::standard(file).is_none());
    let folders = files.filter_map(|file| file.parent());
    folders
        .map(Path::to_owned)
        .chain(config.history.iter().map(|history| history.path.clone()))
        .chain(config.server.snapshots.clone())
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

    /// Enters the sandbox of the configuration named in the environment, and prints what it can still access.
    #[test]
    #[ignore = "not a test: a process that locks itself up, for the test"]
    fn apply_for_test() {
        let Some(folder) = std::env::var_os(TELLS).map(PathBuf::from) else {
            return;
        };
        let config = veche_config::load(&folder.join("in/veche.toml")).expect("a config");
        match enter(&config) {
            Ok(confined) => println!("enforced: {confined}; missing: {}", confined.missing()),
            Err(SandboxError::NoLandlock) => return println!("no landlock"),
            Err(error) => panic!("{error}"),
        }
        let report = |what: &str, works: bool| println!("{what}: {works}");
        let reads = |path: &str| fs::read(folder.join(path)).is_ok();
        report("config", reads("in/veche.toml"));
        report("page", reads("site/index.html"));
        report("secret", reads("out/secret"));
        report("passwd", fs::read("/etc/passwd").is_ok());
        report("write log", fs::write(folder.join("log/new"), "").is_ok());
        report(
            "rename log",
            fs::rename(folder.join("log/new"), folder.join("log/old")).is_ok(),
        );
        report(
            "write page",
            fs::write(folder.join("site/index.html"), "").is_ok(),
        );
        report("run", Command::new("/bin/true").status().is_ok());
        let supervisor = i32::try_from(std::os::unix::process::parent_id()).expect("a pid");
        let supervisor = rustix::process::Pid::from_raw(supervisor).expect("a pid");
        report(
            "truncate page",
            rustix::fs::open(
                folder.join("site/index.html"),
                rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC,
                rustix::fs::Mode::empty(),
            )
            .is_ok(),
        );
        report(
            "link in logs",
            std::os::unix::fs::symlink(folder.join("out/secret"), folder.join("log/link")).is_ok(),
        );
        report(
            "hard link out of logs",
            fs::hard_link(folder.join("site/index.html"), folder.join("log/hard")).is_ok(),
        );
        report("bind", std::net::TcpListener::bind("127.0.0.1:0").is_ok());
        let connects = |name: &str| {
            let port = fs::read_to_string(folder.join("in").join(name)).expect("a port");
            let port: u16 = port.parse().expect("a port");
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        report("connect to the back end", connects("named"));
        report("connect elsewhere", connects("other"));
        report(
            "signal",
            rustix::process::test_kill_process(supervisor).is_ok(),
        );
        let name = fs::read(folder.join("in/abstract")).expect("a name");
        let address = rustix::net::SocketAddrUnix::new_abstract_name(&name).expect("short");
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        );
        let socket = socket.expect("a socket");
        report(
            "abstract socket",
            rustix::net::connect(&socket, &address).is_ok(),
        );
        // A thread started later is restricted too.
        let path = folder.join("out/secret");
        let elsewhere = std::thread::spawn(move || fs::read(path).is_ok());
        report("thread", elsewhere.join().expect("it ends"));
    }

    #[test]
    fn enforced_restrictions_are_logged() {
        let confined = |abi, ports: Option<&[u16]>| SandboxState {
            abi,
            ports: ports.map(|ports| ports.iter().copied().collect()),
        };
        let all = confined(ABI::V6, None);
        assert_eq!(
            all.to_string(),
            "files, links between folders, truncation, TCP (binds no port, connects to all ports), device commands, \
             abstract sockets, signals"
        );
        assert_eq!(all.missing(), "");
        let some = confined(ABI::V4, Some(&[53, 443]));
        assert!(
            some.to_string()
                .ends_with("(binds no port, connects to ports 53 443)")
        );
        assert_eq!(some.missing(), "device commands, abstract sockets, signals");
        let first = confined(ABI::V1, Some(&[53]));
        assert_eq!(first.to_string(), "files");
    }

    #[test]
    fn nothing_is_in_reach_but_what_the_config_names() {
        let folder = std::env::temp_dir().join(format!("veche-sandbox-{}", std::process::id()));
        let listener = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
            let port = listener.local_addr().expect("bound").port().to_string();
            (listener, port)
        };
        let ((_named, named_port), (_other, other_port)) = (listener(), listener());
        let abstract_name = format!("veche-sandbox-{}", std::process::id());
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&abstract_name);
        let _abstract =
            std::os::unix::net::UnixListener::bind_addr(&address.expect("short")).expect("bound");
        let config = format!(
            "[server]\nlog_file = \"../log/veche.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"../site\"\n\
             [events]\nurl = \"http://127.0.0.1:{named_port}/\"\n"
        );
        for inner in ["in", "site", "log", "out"] {
            fs::create_dir_all(folder.join(inner)).expect("a folder");
        }
        for (path, text) in [
            ("site/index.html", "hello"),
            ("out/secret", "secret"),
            ("in/veche.toml", &config),
            ("in/named", &named_port),
            ("in/other", &other_port),
            ("in/abstract", &abstract_name),
        ] {
            fs::write(folder.join(path), text).expect("written");
        }
        let output = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "sandbox::tests::apply_for_test",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(TELLS, &folder)
            .output()
            .expect("it runs");
        let _ = fs::remove_dir_all(&folder);
        let printed = String::from_utf8_lossy(&output.stdout);
        if printed.contains("no landlock") {
            eprintln!("this kernel has no Landlock: nothing tested");
            return;
        }
        let enforced = printed.lines().find(|line| line.starts_with("enforced: "));
        let enforced = enforced.expect("said");
        let (enforced, missing) = enforced.split_once("; missing: ").expect("two parts");
        // Restrictions that this kernel does not support are not tested.
        let has = |part: &str| {
            assert_ne!(enforced.contains(part), missing.contains(part), "{part}");
            enforced.contains(part)
        };
        for (part, what) in [
            ("truncation", "truncate page"),
            ("TCP", "bind"),
            ("TCP", "connect elsewhere"),
            ("signals", "signal"),
            ("abstract sockets", "abstract socket"),
        ] {
            if has(part) {
                let line = format!("{what}: false");
                assert!(printed.contains(&line), "{line} not in\n{printed}");
            } else {
                // Written past the test harness, which hides the output of passing tests.
                let line = format!("\nSKIPPED in part: {part}: this kernel does not enforce it\n");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            }
        }
        for (what, works) in [
            ("connect to the back end", true),
            ("link in logs", false),
            ("hard link out of logs", false),
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
            assert!(printed.contains(&line), "{line} not in\n{printed}");
        }
    }
}
