//! The settings that all nodes of a cluster have to share.

use super::directives::{Directive, Section};
use super::effective::EffectiveConfig;

/// A readable list of the sections and directives that [`EffectiveConfig::agreed`] covers.
pub const AGREED: &str =
    "[engine] prefix and on_failover, all of [[namespace]], and whether [events] has url and app";

/// Which part of a setting has to be equal on all nodes.
enum Agreement {
    Value,
    /// Only whether the setting is present. Nodes may send events to different URLs, for example to a back end on
    /// the same machine.
    Presence,
    Nothing,
}

fn agreed(directive: &Directive) -> Agreement {
    match (directive.section, directive.name) {
        (Section::Namespace, _) | (Section::Engine, "prefix" | "on_failover") => Agreement::Value,
        // Only one node of the cluster reports some events, such as the first subscriber of a
        // channel, so all nodes or none must send events.
        (Section::Events, "url" | "app") => Agreement::Presence,
        _ => Agreement::Nothing,
    }
}

impl EffectiveConfig {
    /// Returns a hash (FNV-1a, 64 bits) of the settings that all nodes of a cluster have to share. A node warns about
    /// other nodes whose hash differs.
    #[must_use]
    pub fn agreed(&self) -> u64 {
        let settings = self.settings.iter();
        let lines = settings.filter_map(|setting| {
            let (section, name) = (setting.directive.section.name(), setting.directive.name);
            let value = setting.value.as_ref()?;
            let value = match agreed(setting.directive) {
                Agreement::Value => value.to_string(),
                Agreement::Presence => "set".to_owned(),
                Agreement::Nothing => return None,
            };
            Some(format!("{section}.{}.{name}={value}\n", setting.index))
        });
        let bytes = lines.flat_map(String::into_bytes);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}
