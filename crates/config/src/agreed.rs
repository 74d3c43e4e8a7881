//! The settings that all nodes of a cluster have to share.

use super::directives::{Directive, Section};
use super::effective::EffectiveConfig;

/// The sections and directives that [`EffectiveConfig::agreed`] covers, for people.
pub const AGREED: &str = "[engine] prefix and on_failover, and all of [[namespace]]";

fn is_agreed(directive: &Directive) -> bool {
    match directive.section {
        Section::Namespace => true,
        Section::Engine => matches!(directive.name, "prefix" | "on_failover"),
        _ => false,
    }
}

impl EffectiveConfig {
    /// Returns a number that is the same for configurations that can belong to nodes of one cluster (FNV-1a, 64 bits).
    #[must_use]
    pub fn agreed(&self) -> u64 {
        let settings = self.settings.iter();
        let lines = settings
            .filter(|setting| is_agreed(setting.directive))
            .filter_map(|setting| {
                let (section, name) = (setting.directive.section.name(), setting.directive.name);
                let value = setting.value.as_ref()?;
                Some(format!("{section}.{}.{name}={value}\n", setting.index))
            });
        let bytes = lines.flat_map(String::into_bytes);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}
