//! Checks `[[app]]` and the scripts of routes, and which app a route uses.

use std::path::PathBuf;
use std::time::Duration;

use veche_terminal::{nearest_hint, shown};

use super::fastcgi::OF_FASTCGI;
use super::processes::OF_PROCESSES;
use super::{Checker, ServedFolder, text, word};
use crate::raw::RawTable;
use crate::types::AppConfig;
use crate::value::DirectiveValue;

/// All apps, in the order of [`Config::apps`](crate::Config::apps).
#[derive(Default)]
pub(super) struct CheckedApps {
    list: Vec<CheckedApp>,
    /// Whether an `[[app]]` has no valid name. An unknown app in a route is then no error, since
    /// the route may refer to that `[[app]]`.
    some_nameless: bool,
}

struct CheckedApp {
    /// The position in the configuration file where the app is first mentioned.
    at: Option<usize>,
    /// The name of the `[[app]]`; `None` for the script of a route, and for invalid names.
    name: Option<String>,
    /// The number of the route that names the script, from 1.
    route: Option<usize>,
    used: bool,
    /// The path of the script; `None` if it has a problem.
    script: Option<PathBuf>,
    app: Option<AppConfig>,
}

/// Directives of a route that configure the app created for the script in its `script`.
const BESIDE: [&str; 5] = [
    "memory",
    "cpu_budget",
    "request_timeout",
    "files",
    "options",
];

impl CheckedApps {
    /// Returns whether an `[[app]]` has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let mut names = self.list.iter().filter_map(|app| app.name.as_deref());
        names.any(|other| other == name)
    }

    /// Returns all apps. May be called only if no app had a problem.
    pub(super) fn into_list(self) -> Vec<AppConfig> {
        let apps = self.list.into_iter();
        apps.map(|checked| checked.app.expect("a problem otherwise"))
            .collect()
    }
}

impl Checker<'_> {
    pub(super) fn apps<'t>(&mut self, tables: impl Iterator<Item = &'t RawTable>) -> CheckedApps {
        let mut apps = CheckedApps::default();
        for table in tables {
            let name = self.name_of_app(table, &apps);
            apps.some_nameless |= name.is_none();
            if matches!(word(table, "runtime"), "fastcgi" | "php" | "worker") {
                let app = app_of(table, String::new(), PathBuf::new());
                let app = match word(table, "runtime") {
                    "fastcgi" => self.fastcgi(table, name.as_deref(), app),
                    _ => self.processes(table, name.as_deref(), app),
                };
                apps.list.push(CheckedApp {
                    at: table.at,
                    name,
                    route: None,
                    used: false,
                    script: None,
                    app,
                });
                continue;
            }
            self.of_another_runtime(table, &OF_FASTCGI, "lua");
            self.of_another_runtime(table, &OF_PROCESSES, "lua");
            let script = self.required(table, "script");
            let script = script.and_then(|script| self.script(table, &script));
            let files = self.files_of_app(table);
            let mut app = None;
            if let (Some(name), Some(script), Some(files)) = (&name, &script, files) {
                app = Some(AppConfig {
                    files,
                    ..app_of(table, name.clone(), script.clone())
                });
            }
            apps.list.push(CheckedApp {
                at: table.at,
                name,
                route: None,
                used: false,
                script,
                app,
            });
        }
        apps
    }

    fn name_of_app(&mut self, table: &RawTable, before: &CheckedApps) -> Option<String> {
        let name = self.name_of(table)?;
        if before.has(&name) {
            self.problems.add(
                table.value_at("name"),
                format!("name: another [[app]] is already called {name:?}"),
            );
        }
        Some(name)
    }

    /// Reads a name of letters, digits, "-" and "_".
    pub(super) fn name_of(&mut self, table: &RawTable) -> Option<String> {
        let name = self.required(table, "name")?;
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        {
            self.problems.add(
                table.value_at("name"),
                format!("name: expected letters, digits, \"-\" and \"_\", found {name:?}"),
            );
            return None;
        }
        Some(name)
    }

    pub(super) fn script(&mut self, table: &RawTable, script: &str) -> Option<PathBuf> {
        let path = self.base.join(script);
        if !(self.world.is_file)(&path) {
            self.problems.add(
                table.value_at("script"),
                format!("script: the file {} does not exist", shown(&path)),
            );
            return None;
        }
        Some(path)
    }

    /// Returns the folder of the files that an app may serve: `Some(None)` if none is set, `None`
    /// if the setting is invalid.
    pub(super) fn files_of_app(&mut self, table: &RawTable) -> Option<Option<PathBuf>> {
        let Some(folder) = text(table, "files") else {
            return table.is_sound("files").then_some(None);
        };
        let folder = self.base.join(folder);
        if !(self.world.is_folder)(&folder) {
            let why = format!("files: the folder {} does not exist", shown(&folder));
            self.problems.add(table.value_at("files"), why);
            return None;
        }
        self.served.push(ServedFolder {
            at: table.value_at("files"),
            name: "files",
            folder: folder.clone(),
        });
        Some(Some(folder))
    }

    /// Returns the index of the app that a route names in `app` or `script`; `None` if there is a problem.
    pub(super) fn app_of_route(
        &mut self,
        table: &RawTable,
        apps: &mut CheckedApps,
    ) -> Option<usize> {
        if table.has("app") && table.has("script") {
            let why = "script: \"app\" already names a script; use only one of them";
            self.problems.add(table.key_at("script"), why);
            return None;
        }
        if let Some(script) = text(table, "script") {
            return self.script_of_route(table, &script, apps);
        }
        let Some(name) = text(table, "app") else {
            if table.is_sound("app") && table.is_sound("script") {
                let why =
                    "[[route]] with handler \"lua\" or \"app\" has to have \"script\" or \"app\"";
                self.problems.add(table.at, why);
            }
            return None;
        };
        for beside in BESIDE {
            if table.has(beside) {
                let why =
                    format!("{beside}: can't be combined with \"app\"; set it in that [[app]]");
                self.problems.add(table.key_at(beside), why);
            }
        }
        self.called(table, &name, apps)
    }

    /// Returns the index of the `[[app]]` with the name in `app`.
    fn called(&mut self, table: &RawTable, name: &str, apps: &mut CheckedApps) -> Option<usize> {
        let called = |checked: &CheckedApp| checked.name.as_deref() == Some(name);
        let Some(index) = apps.list.iter().position(called) else {
            let some_unread = apps.list.is_empty() && !self.problems.is_empty();
            if !apps.some_nameless && !some_unread {
                let names = apps.list.iter().filter_map(|other| other.name.as_deref());
                let nearest = nearest_hint(name, names);
                self.problems.add(
                    table.value_at("app"),
                    format!("app: no [[app]] has the name {name:?}{nearest}"),
                );
            }
            return None;
        };
        apps.list[index].used = true;
        Some(index)
    }

    /// Returns the index of a route's optional app, `Some(None)` for a route without one; `None` if the app has a problem.
    pub(super) fn app_of_clients(
        &mut self,
        table: &RawTable,
        apps: &mut CheckedApps,
    ) -> Option<Option<usize>> {
        if table.has("app") || table.has("script") {
            return self.app_of_route(table, apps).map(Some);
        }
        for beside in BESIDE.into_iter().filter(|name| table.has(name)) {
            let why = format!("{beside}: has no effect without \"script\"");
            self.problems.add(table.key_at(beside), why);
        }
        Some(None)
    }

    /// Returns the index of the app that receives events, if there is one.
    pub(super) fn listener(&mut self, table: &RawTable, apps: &mut CheckedApps) -> Option<usize> {
        let name = text(table, "app")?;
        let index = self.called(table, &name, apps)?;
        let app = &apps.list[index].app;
        if app.as_ref().is_some_and(|app| app.own_script().is_none()) {
            let why = format!(
                "app: {name:?} is not a Lua app, and only Lua apps receive events; use url"
            );
            self.problems.add(table.value_at("app"), why);
            return None;
        }
        Some(index)
    }

    fn script_of_route(
        &mut self,
        table: &RawTable,
        script: &str,
        apps: &mut CheckedApps,
    ) -> Option<usize> {
        let path = self.script(table, script)?;
        let app = AppConfig {
            files: self.files_of_app(table)?,
            ..app_of(table, script.to_owned(), path.clone())
        };
        let same = |checked: &CheckedApp| {
            checked.route.is_some() && checked.script.as_deref() == Some(path.as_path())
        };
        let Some(index) = apps.list.iter().position(same) else {
            apps.list.push(CheckedApp {
                at: table.at,
                name: None,
                route: Some(table.index + 1),
                used: true,
                script: Some(path),
                app: Some(app),
            });
            return Some(apps.list.len() - 1);
        };
        // Routes with the same script share one app, so their values of its directives must be equal.
        if let CheckedApp {
            route: Some(route),
            app: Some(first),
            ..
        } = &apps.list[index]
        {
            let differs = [
                app.memory_bytes_max != first.memory_bytes_max,
                app.cpu_budget != first.cpu_budget,
                app.request_timeout != first.request_timeout,
                app.files != first.files,
                app.options != first.options,
            ];
            for (name, _) in BESIDE
                .into_iter()
                .zip(differs)
                .filter(|(name, differs)| *differs && table.has(name))
            {
                let why = format!(
                    "{name}: route {route} runs the same script with another value; configure two [[app]] sections to run it twice"
                );
                self.problems.add(table.value_at(name), why);
            }
        }
        Some(index)
    }

    /// Warns of apps without a route, which are allowed but probably a mistake.
    pub(super) fn unused_apps(&mut self, apps: &CheckedApps) {
        for checked in apps.list.iter().filter(|checked| !checked.used) {
            if let Some(name) = &checked.name {
                self.warn(checked.at, format!("[[app]] {name:?}: no route uses it"));
            }
        }
    }
}

/// Builds the app of a section with a script.
pub(super) fn app_of(table: &RawTable, name: String, script: PathBuf) -> AppConfig {
    AppConfig {
        name,
        script,
        memory_bytes_max: match table.value("memory") {
            Some(DirectiveValue::Size(bytes)) => bytes,
            _ => MEMORY_BYTES_MAX,
        },
        cpu_budget: match table.value("cpu_budget") {
            Some(DirectiveValue::Duration(budget)) => budget,
            _ => CPU_BUDGET,
        },
        request_timeout: match table.value_if_any("request_timeout") {
            Some(DirectiveValue::Duration(timeout)) => Some(timeout),
            Some(DirectiveValue::Off) => None,
            _ => Some(REQUEST_TIMEOUT),
        },
        files: None,
        processes: None,
        options: match table.value("options") {
            Some(DirectiveValue::Table(options)) => options,
            _ => toml::Table::new(),
        },
        fastcgi: None,
    }
}

/// The defaults for a script that a route names; a test checks that they equal the defaults of `[[app]]`.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
const CPU_BUDGET: Duration = Duration::from_millis(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
