//! Generates docs/reference/config.md from the table of directives.
//!
//! A test fails if the file differs; `VECHE_BLESS=1 cargo test -p veche-config reference` writes it.

use std::fmt::Write as _;

use crate::generated_page::assert_page_is_current;

use super::directives::{DefaultValue, Directive, ReloadEffect, Section};

/// Returns the whole page.
pub(super) fn page() -> String {
    let mut page = String::from(HEAD);
    for section in Section::ALL {
        let _ = write!(page, "\n## {}\n\n{}\n", section.header(), section.doc());
        let _ = write!(
            page,
            "\n| directive | default | change needs |\n|---|---|---|\n"
        );
        for directive in section.directives() {
            let name = directive.name;
            let _ = writeln!(
                page,
                "| [`{name}`](#{}) | {} | {} |",
                anchor(directive),
                default_of(directive),
                change_of(directive)
            );
        }
        for directive in section.directives() {
            entry(&mut page, directive);
        }
    }
    page
}

fn entry(page: &mut String, directive: &Directive) {
    let Directive {
        section, name, doc, ..
    } = directive;
    let _ = write!(page, "\n### {}.{name}\n\n{doc}\n\n", section.name());
    let _ = writeln!(page, "- Takes: {}.", directive.kind.expected());
    let _ = writeln!(page, "- Default: {}.", default_of(directive));
    if !directive.handlers.is_empty() {
        let handlers: Vec<String> = directive
            .handlers()
            .map(|handler| format!("`\"{handler}\"`"))
            .collect();
        let _ = writeln!(page, "- For handler: {}.", handlers.join(", "));
    }
    let _ = writeln!(page, "- A change needs: {}.", change_of(directive));
}

fn default_of(directive: &Directive) -> String {
    match directive.default {
        DefaultValue::Required => "none, required".to_owned(),
        DefaultValue::Unset(meaning) => format!("not set: {meaning}"),
        DefaultValue::Toml(text) => format!("`{text}`"),
    }
}

fn change_of(directive: &Directive) -> &'static str {
    match directive.change {
        ReloadEffect::Reload => "reload",
        ReloadEffect::Restart => "restart",
    }
}

/// Returns the anchor that GitHub derives from the heading.
fn anchor(directive: &Directive) -> String {
    format!("{}{}", directive.section.name(), directive.name)
}

const HEAD: &str = r#"<!-- Written by `VECHE_BLESS=1 cargo test -p veche-config reference` from crates/config/src/directives.rs; a test compares. -->
# Configuration

One TOML file, by default `./veche.toml`; every command takes another with `-c FILE`. A small one:

```toml
[[listen]]
address = "0.0.0.0:8080"

[[listen]]
address = "127.0.0.1:8081"
role = "internal"

[[route]]
path = "/events"
handler = "push"
identity = "cookie:user"
channels = ["news"]
```

`veche check` reads the file and reports every problem with its line. `veche config` prints every effective value and its source: the file or the default. Unknown names are errors.

- **Durations** are whole numbers with a unit: `"500ms"`, `"10s"`, `"1m"`, `"2h"`, `"1d"`.
- **Sizes** are numbers of bytes, or have a unit: `65536`, `"64KiB"`, `"1MiB"`, `"1GiB"` (powers of 1,024), `"64kB"`, `"1MB"`, `"1GB"` (powers of 1,000).
- **Off**: an option that can be switched off takes `"off"` or `0`. Where neither is listed, it can't be switched off.
- **Relative paths** start at the folder of the file that has them.
- **A change needs** a reload (`veche reload` or SIGHUP, no connection is dropped) or a restart. A reload of a file with errors changes nothing.
"#;

#[test]
fn reference_of_the_configuration_is_current() {
    assert_page_is_current("config.md", &page());
}
