//! `veche new`: a folder with an application to begin with.
//!
//! The files are those of `examples/` and `templates/`, as they stand there, and what editors know of Veche's modules.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, ValueEnum};
use rust_embed::Embed;

use veche_terminal::exit::{CommandFailure, Exit, print};
use veche_terminal::plain;

/// Where to make it, and of which kind.
#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The folder to create; it must not exist
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// The template
    #[arg(long, value_enum, default_value_t = Template::Echo)]
    template: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Template {
    /// Echoes every message; with a page
    Echo,
    /// Rooms with nicknames and a list of members; with a page
    Chat,
    /// HTTP and JSON: notes to list, add, change and delete
    Api,
    /// Relays another WebSocket server to every browser; with a source and a page
    Feed,
    /// A back end pushes to users: in PHP, Node and Python; with a page
    Push,
    /// Clients of Centrifugo's protocol, and a back end that publishes: in PHP, Node and Python; with a page
    Centrifuge,
}

/// A file's path in the new folder, and its text.
type TemplateFile = (&'static str, &'static str);

/// Files of a folder of the repository.
macro_rules! files {
    ($folder:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../../", $folder, "/", $name)))),+]
    };
}

/// What every folder has beside its application.
const COMMON: [TemplateFile; 2] = [
    (".gitignore", include_str!("../../templates/gitignore")),
    (".luarc.json", include_str!("../../templates/luarc.json")),
];

/// What editors know of the modules of scripts.
#[derive(Embed)]
#[folder = "../script/types"]
struct Types;

/// The folder of the types that `.luarc.json` names.
const TYPES_FOLDER: &str = ".veche/types";

/// Where the key of the API goes, and its length before it is encoded.
const KEY_FILE: &str = "api.key";
const KEY_BYTES: usize = 24;

impl Template {
    fn files(self) -> &'static [TemplateFile] {
        match self {
            Self::Echo => {
                files!("examples/echo": "veche.toml", "app.lua", "app_test.lua", "public/index.html")
            }
            Self::Chat => {
                files!("examples/rooms": "veche.toml", "app.lua", "app_test.lua", "public/index.html")
            }
            Self::Api => files!("examples/rest-api": "veche.toml", "app.lua", "app_test.lua"),
            Self::Feed => {
                files!("examples/feed": "veche.toml", "app.lua", "app_test.lua", "source.lua", "public/index.html")
            }
            Self::Push => {
                files!("crates/server/templates/push": "veche.toml", "push.php", "push.mjs", "push.py", "public/index.html")
            }
            Self::Centrifuge => {
                files!("crates/server/templates/centrifuge": "veche.toml", "publish.php", "publish.mjs", "publish.py", "public/index.html")
            }
        }
    }

    /// Whether a back end with a key is what it begins with, rather than an application in Lua.
    fn has_back_end(self) -> bool {
        matches!(self, Self::Push | Self::Centrifuge)
    }

    /// What to try when it runs.
    fn first_try(self) -> &'static str {
        match self {
            Self::Echo | Self::Feed => "open http://127.0.0.1:8080/ in a browser",
            Self::Chat => "open http://127.0.0.1:8080/?room=tea in two windows of a browser",
            Self::Api => {
                r#"say in another terminal: curl http://127.0.0.1:8080/notes -d '{"text":"tea"}'"#
            }
            Self::Push => {
                "open http://127.0.0.1:8080/?user=tester01 in a browser, and say in another terminal, in the same folder, \
                 one of:\n  php push.php tester01 \"hello\"\n  node push.mjs tester01 \"hello\"\n  python3 push.py tester01 \"hello\""
            }
            Self::Centrifuge => {
                "open http://127.0.0.1:8080/ in a browser, and say in another terminal, in the same folder, one of:\n  \
                 php publish.php chat:lobby \"hello\"\n  node publish.mjs chat:lobby \"hello\"\n  \
                 python3 publish.py chat:lobby \"hello\""
            }
        }
    }

    /// What to read and change.
    fn then(self) -> &'static str {
        match self.has_back_end() {
            true => {
                "veche.toml says who may do what. api.key is the key of your back end; .gitignore keeps it out of git.\n"
            }
            false => {
                "app.lua is the application. What you save runs at once under veche dev; under veche serve say in the same \
                 folder: veche reload\napp_test.lua tests it: veche test\n"
            }
        }
    }
}

/// Makes the folder and says what to do next.
pub(super) fn run(args: &NewArgs) -> Result<(), CommandFailure> {
    let NewArgs { folder, template } = args;
    // Also what is there and can't be seen into, and a link to nowhere.
    fs::create_dir(folder).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => "it exists already: choose another name".to_owned(),
            io::ErrorKind::NotFound => "the folder that it would be in does not exist".to_owned(),
            _ => plain(&error),
        };
        failed(folder, &why)
    })?;
    for (name, text) in template.files().iter().chain(&COMMON) {
        write(&folder.join(name), text.as_bytes())?;
    }
    for name in Types::iter() {
        let text = Types::get(&name).expect("it is listed");
        write(&folder.join(TYPES_FOLDER).join(&*name), &text.data)?;
    }
    let mut names: Vec<&str> = template.files().iter().map(|(name, _)| *name).collect();
    if template.has_back_end() {
        write_key(&folder.join(KEY_FILE))?;
        names.push(KEY_FILE);
    }
    print(format_args!(
        "made {}: {}\n\nNext:\n  cd {}\n  veche dev\n\nThen {}\n\n{}",
        folder.display(),
        names.join(", "),
        quoted(folder),
        template.first_try(),
        template.then(),
    ))
}

/// Writes a random key of the API, readable by the owner alone.
fn write_key(path: &Path) -> Result<(), CommandFailure> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key)
        .map_err(|error| failed(path, &format!("no random numbers: {error}")))?;
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o600);
    let line = format!("{}\n", URL_SAFE_NO_PAD.encode(key));
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| failed(path, &plain(&error)))
}

fn failed(path: &Path, why: &str) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("{}: {why}", path.display()))
}

fn write(path: &Path, text: &[u8]) -> Result<(), CommandFailure> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(path, text));
    written.map_err(|error| failed(path, &plain(&error)))
}

/// As a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if text.bytes().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
