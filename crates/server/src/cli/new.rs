//! `veche new`: a folder with an application to begin with.
//!
//! The files are those of `examples/`, as they stand there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::{Exit, Failure, print};
use crate::config::plain;

/// Where to make it, and of which kind.
#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The folder to make; it must not exist
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// What to begin with
    #[arg(long, value_enum, default_value_t = Template::Echo)]
    template: Template,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Template {
    /// Every message comes back; with a page to try it
    Echo,
    /// Rooms with nicknames and who is here; with a page
    Chat,
    /// HTTP and JSON: notes to list, add, change and delete
    Api,
    /// What another WebSocket server tells reaches every browser; with a source and a page
    Feed,
}

/// A file's path in the new folder, and its text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../../examples/", $folder, "/", $name)))),+]
    };
}

impl Template {
    fn files(self) -> &'static [File] {
        match self {
            Self::Echo => {
                files!("echo": "veche.toml", "app.lua", "app_test.lua", "public/index.html")
            }
            Self::Chat => {
                files!("rooms": "veche.toml", "app.lua", "app_test.lua", "public/index.html")
            }
            Self::Api => files!("rest-api": "veche.toml", "app.lua", "app_test.lua"),
            Self::Feed => {
                files!("feed": "veche.toml", "app.lua", "app_test.lua", "source.lua", "public/index.html")
            }
        }
    }

    /// What to try when it runs.
    fn first_try(self) -> &'static str {
        match self {
            Self::Echo | Self::Feed => "open http://127.0.0.1:8080/ in a browser",
            Self::Chat => "open http://127.0.0.1:8080/?room=tea in two windows of a browser",
            Self::Api => {
                r#"say in another terminal: curl http://127.0.0.1:8080/notes -d '{"text":"tea"}'"#
            }
        }
    }
}

/// Makes the folder and says what to do next.
pub(super) fn run(args: &NewArgs) -> Result<(), Failure> {
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
    for (name, text) in template.files() {
        let path = folder.join(name);
        write(&path, text).map_err(|error| failed(&path, &plain(&error)))?;
    }
    let names: Vec<&str> = template.files().iter().map(|(name, _)| *name).collect();
    print(format_args!(
        "made {}: {}\n\nNext:\n  cd {}\n  veche serve\n\nThen {}\n\n\
         app.lua is the application. When you have changed it, say in the same folder: veche reload\n\
         app_test.lua tests it: veche test\n",
        folder.display(),
        names.join(", "),
        quoted(folder),
        template.first_try(),
    ))
}

fn failed(path: &Path, why: &str) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {why}", path.display()))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
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
