//! Masks the command line in reports: the values of headers and cookies may be secrets.

const MASK: &str = "***";

/// Headers whose values are not secret.
const HARMLESS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "connection",
    "content-type",
    "host",
    "origin",
    "user-agent",
];

#[derive(Clone, Copy)]
enum MaskedFlag {
    Header,
    Cookie,
}

/// Masks the values of headers and cookies in arguments.
pub(super) fn mask(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut pending = None;
    let masked = arguments.map(|argument| {
        if let Some(kind) = pending.take() {
            return value(kind, &argument);
        }
        let flags = [
            ("--header", MaskedFlag::Header),
            ("--publish-header", MaskedFlag::Header),
            ("--cookie", MaskedFlag::Cookie),
            ("-H", MaskedFlag::Header),
        ];
        for (flag, kind) in flags {
            let Some(rest) = argument.strip_prefix(flag) else {
                continue;
            };
            if rest.is_empty() {
                pending = Some(kind);
                return argument;
            }
            if let Some(given) = rest.strip_prefix('=') {
                return format!("{flag}={}", value(kind, given));
            }
            if flag == "-H" {
                return format!("{flag}{}", value(kind, rest));
            }
        }
        argument
    });
    masked.collect()
}

fn value(kind: MaskedFlag, given: &str) -> String {
    match kind {
        MaskedFlag::Header => match given.split_once(':') {
            Some((name, _)) if HARMLESS.contains(&name.trim().to_ascii_lowercase().as_str()) => {
                given.to_owned()
            }
            Some((name, _)) => format!("{name}: {MASK}"),
            None => MASK.to_owned(),
        },
        MaskedFlag::Cookie => match given.split_once('=') {
            // One header may contain several cookies.
            Some((name, _)) if !name.contains(';') => format!("{name}={MASK}"),
            _ => MASK.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_and_nothing_else() {
        let given = [
            "echo",
            "ws://a/",
            "-H",
            "Authorization: Bearer x",
            "-HCookie: a=x",
            "--header=X-Key:x",
            "--publish-header",
            "X-Key: x",
            "--cookie",
            "sid=x; b=x",
            "--cookie=sid=x",
            "-H",
            "Origin: https://a",
            "--hold",
            "1s",
        ];
        let shown = [
            "echo",
            "ws://a/",
            "-H",
            "Authorization: ***",
            "-HCookie: ***",
            "--header=X-Key: ***",
            "--publish-header",
            "X-Key: ***",
            "--cookie",
            "sid=***",
            "--cookie=sid=***",
            "-H",
            "Origin: https://a",
            "--hold",
            "1s",
        ];
        assert_eq!(mask(given.map(str::to_owned).into_iter()), shown);
    }
}
