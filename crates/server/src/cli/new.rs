//! `veche new`: creates a folder with an example application.
//!
//! The files are those of `examples/` and `templates/`, unchanged, and the type files of Veche's modules for editors.

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

/// The name and the template of the application.
#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The folder to create; it must not exist
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// The example to start from
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
    /// Echoes every message, in PHP; with a page
    Php,
    /// A chat with login, in PHP; with a page
    PhpChat,
}

/// A file's path in the new folder, and its content.
type TemplateFile = (&'static str, &'static str);

/// Embeds files of a folder of the repository.
macro_rules! files {
    ($folder:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../../", $folder, "/", $name)))),+]
    };
}

/// The `.gitignore` file, written for every application.
const GITIGNORE: TemplateFile = (".gitignore", include_str!("../../templates/gitignore"));

/// Editor settings, written for applications in Lua.
const LUA_SETTINGS: TemplateFile = (".luarc.json", include_str!("../../templates/luarc.json"));

/// The PHP SDK, written for applications in PHP.
const PHP_SDK: TemplateFile = ("veche.php", include_str!("../../../../sdk/php/veche.php"));

/// The type files of script modules, for editors.
#[derive(Embed)]
#[folder = "../script/types"]
struct Types;

/// The folder of types that `.luarc.json` refers to.
const TYPES_FOLDER: &str = ".veche/types";

/// The length of a generated key in bytes, before Base64 encoding.
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
            Self::Php => {
                files!("crates/server/templates/php": "veche.toml", "app.php", "public/index.html")
            }
            Self::PhpChat => {
                files!("crates/server/templates/php-chat": "veche.toml", "app.php", "accounts.php", "public/index.html")
            }
        }
    }

    fn is_php(self) -> bool {
        matches!(self, Self::Php | Self::PhpChat)
    }

    /// Returns the name of the file with a generated key, if the template needs one.
    fn key_file(self) -> Option<&'static str> {
        match self {
            Self::Push | Self::Centrifuge => Some("api.key"),
            Self::PhpChat => Some("token.key"),
            Self::Echo | Self::Chat | Self::Api | Self::Feed | Self::Php => None,
        }
    }

    /// Returns a suggestion for a first try.
    fn first_try(self) -> &'static str {
        match self {
            Self::Echo | Self::Feed | Self::Php => "open http://127.0.0.1:8080/ in a browser",
            Self::Chat => "open http://127.0.0.1:8080/?room=tea in two windows of a browser",
            Self::PhpChat => "open http://127.0.0.1:8080/ in two browsers, and register two users",
            Self::Api => {
                r#"run in another terminal: curl http://127.0.0.1:8080/notes -d '{"text":"tea"}'"#
            }
            Self::Push => {
                "open http://127.0.0.1:8080/?user=tester01 in a browser, and run in another terminal, in the same folder, \
                 one of:\n  php push.php tester01 \"hello\"\n  node push.mjs tester01 \"hello\"\n  python3 push.py tester01 \"hello\""
            }
            Self::Centrifuge => {
                "open http://127.0.0.1:8080/ in a browser, and run in another terminal, in the same folder, one of:\n  \
                 php publish.php chat:lobby \"hello\"\n  node publish.mjs chat:lobby \"hello\"\n  \
                 python3 publish.py chat:lobby \"hello\""
            }
        }
    }

    /// Returns a description of the most important files, and of how changes take effect.
    fn then(self) -> &'static str {
        match self {
            Self::Push | Self::Centrifuge => {
                "veche.toml is the configuration. api.key is the key of your back end; .gitignore keeps it out of git.\n"
            }
            Self::Php => {
                "app.php is the application, for PHP 8.1 or newer; veche.php is the SDK. Changes take effect at once under \
                 veche dev; under veche serve run in the same folder: veche reload\n"
            }
            Self::PhpChat => {
                "app.php is the application, for PHP 8.1 or newer; veche.php is the SDK. Changes take effect at once under \
                 veche dev; under veche serve run in the same folder: veche reload\ntoken.key signs logins; .gitignore keeps it \
                 out of git.\n"
            }
            Self::Echo | Self::Chat | Self::Api | Self::Feed => {
                "app.lua is the application. Changes take effect at once under veche dev; under veche serve run in the same \
                 folder: veche reload\napp_test.lua has its tests: veche test\n"
            }
        }
    }
}

/// Creates the folder and prints the next steps.
pub(super) fn run(args: &NewArgs) -> Result<(), CommandFailure> {
    let NewArgs { folder, template } = args;
    // This also fails for existing folders without access, and for dangling links.
    fs::create_dir(folder).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => "it already exists: choose another name".to_owned(),
            io::ErrorKind::NotFound => "its parent folder does not exist".to_owned(),
            _ => plain(&error),
        };
        failed(folder, &why)
    })?;
    let language = if template.is_php() {
        PHP_SDK
    } else {
        LUA_SETTINGS
    };
    for (name, text) in template.files().iter().chain(&[GITIGNORE, language]) {
        write(&folder.join(name), text.as_bytes())?;
    }
    let mut names: Vec<&str> = template.files().iter().map(|(name, _)| *name).collect();
    if template.is_php() {
        names.push(PHP_SDK.0);
    } else {
        write_types(folder)?;
    }
    if let Some(key) = template.key_file() {
        write_key(&folder.join(key))?;
        names.push(key);
    }
    print(format_args!(
        "created {}: {}\n\nNext:\n  cd {}\n  veche dev\n\nThen {}\n\n{}",
        folder.display(),
        names.join(", "),
        quoted(folder),
        template.first_try(),
        template.then(),
    ))
}

/// Writes the type files of script modules.
fn write_types(folder: &Path) -> Result<(), CommandFailure> {
    for name in Types::iter() {
        let text = Types::get(&name).expect("it is listed");
        write(&folder.join(TYPES_FOLDER).join(&*name), &text.data)?;
    }
    Ok(())
}

/// Writes a random key with access for the owner only.
fn write_key(path: &Path) -> Result<(), CommandFailure> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| {
        failed(
            path,
            &format!("can't get random numbers from the system: {error}"),
        )
    })?;
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

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if text.bytes().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
