//! `[[listen]] tls` and its related settings.

use super::bad::says;
use super::{checked, good};
use crate::{CertificateOrigin, ClientCertificates, IdentitySource, ListenerTls, PairFiles};

/// Returns a `[[listen]]` section with an address and these lines.
fn listener(lines: &str) -> String {
    format!("[[listen]]\naddress = \"0.0.0.0:443\"\n{lines}\n")
}

fn files(name: &str) -> CertificateOrigin {
    CertificateOrigin::Files(PairFiles {
        certificate: format!("/etc/veche/{name}.pem").into(),
        key: format!("/etc/veche/{name}.key").into(),
    })
}

#[test]
fn one_certificate_several_and_those_of_clients() {
    let config = good(&listener(
        "tls = { certificate = \"good.pem\", key = \"good.key\" }",
    ));
    let expected = ListenerTls {
        certificates: vec![files("good")],
        clients: None,
    };
    assert_eq!(config.listeners[0].tls, Some(expected));
    assert_eq!(config.warnings, []);

    // A `[listen.tls]` table has the same meaning as an inline table.
    let table = good(&listener(
        "[listen.tls]\ncertificate = \"good.pem\"\nkey = \"good.key\"",
    ));
    assert_eq!(table.listeners[0].tls, config.listeners[0].tls);

    let several = good(&listener(
        "tls = [\n  { certificate = \"good.pem\", key = \"good.key\" },\n  \
         { certificate = \"/etc/veche/good.pem\", key = \"/etc/veche/other.key\" },\n]\n\
         client_ca = \"ca.pem\"\nclient_certificate = \"optional\"",
    ));
    let tls = several.listeners[0].tls.as_ref().expect("TLS");
    assert_eq!(tls.certificates.len(), 2);
    let clients = ClientCertificates {
        ca: "/etc/veche/ca.pem".into(),
        is_required: false,
    };
    assert_eq!(tls.clients, Some(clients));
}

#[test]
fn invalid_settings_are_reported() {
    let certificate = "{ certificate = \"good.pem\", key = \"good.key\" }";
    let bad: &[(&str, &[&str])] = &[
        (
            "tls = true",
            &[
                "3:7: tls: expected { certificate = \"FILE\", key = \"FILE\" }, { acme = [\"NAME\"] } or a list of these, found true",
            ],
        ),
        (
            "tls = []",
            &[
                "3:7: tls: expected { certificate = \"FILE\", key = \"FILE\" }, { acme = [\"NAME\"] } or a list of these, found an empty list",
            ],
        ),
        (
            "tls = { certificate = \"good.pem\" }",
            &["3:7: tls: \"key\" is missing: the PEM file of the private key"],
        ),
        (
            "tls = { certificat = \"good.pem\", key = \"good.key\" }",
            &[
                "3:7: tls: unknown name \"certificat\"; expected { certificate = \"FILE\", key = \"FILE\" }, { acme = [\"NAME\"] } or a list of these; did you mean \"certificate\"?",
            ],
        ),
        (
            "tls = { certificate = \"good.pem\", key = 1 }",
            &["3:7: tls: key: expected the path of a PEM file, found 1"],
        ),
        (
            "tls = [{ certificate = \"good.pem\", key = \"good.key\" },\n { key = \"x\" }]",
            &[
                "3:7: tls: certificate 2: \"certificate\" is missing: the PEM file of the certificate and its chain",
            ],
        ),
        (
            "tls = [\n{ certificate = \"good.pem\", key = \"good.key\" },\n{ certificate = \"lost.pem\", key = \"good.key\" }]",
            &["5:1: tls: /etc/veche/lost.pem: there is no such file"],
        ),
        (
            "client_ca = \"ca.pem\"",
            &["3:1: client_ca: has no effect without \"tls\""],
        ),
        (
            &format!("tls = {certificate}\nclient_certificate = \"optional\""),
            &["4:1: client_certificate: has no effect without \"client_ca\""],
        ),
        (
            &format!("tls = {certificate}\nclient_ca = \"lost.pem\""),
            &["4:13: client_ca: /etc/veche/lost.pem: there is no such file"],
        ),
    ];
    for (lines, expected) in bad {
        says(&listener(lines), expected);
    }
}

#[test]
fn what_should_be_known_of_them() {
    let cases: &[(&str, &[&str])] = &[
        (
            "certificate = \"old.pem\", key = \"good.key\"",
            &[
                "3:7: tls: the certificate in /etc/veche/old.pem expired 10 days ago, so clients refuse it",
            ],
        ),
        (
            "certificate = \"soon.pem\", key = \"good.key\"",
            &["3:7: tls: the certificate in /etc/veche/soon.pem expires in 13 days"],
        ),
        (
            "certificate = \"early.pem\", key = \"exposed.key\"",
            &[
                "3:7: tls: the certificate in /etc/veche/early.pem is not valid yet, or the clock of this machine is wrong, so clients refuse it",
                "3:7: tls: every user of this machine can read the key in /etc/veche/exposed.key; run chmod o= /etc/veche/exposed.key",
            ],
        ),
    ];
    for (files, expected) in cases {
        let config = good(&listener(&format!("tls = {{ {files} }}")));
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|line| format!("/etc/veche/veche.toml:{line}"))
            .collect();
        assert_eq!(warnings, expected);
    }
}

#[test]
fn users_by_their_certificates() {
    let route = "[[route]]\npath = \"/\"\nhandler = \"push\"\nidentity = \"mtls:email\"\n";
    let tls = "tls = { certificate = \"good.pem\", key = \"good.key\" }\n";
    says(
        &format!("{}{route}", listener(tls)),
        &[
            "8:12: identity: \"mtls:email\" needs client certificates, but none of this route's listeners has \"client_ca\"",
        ],
    );
    says(
        &format!(
            "{}{}",
            listener(tls),
            route.replace("email", "mail").replace("/\"", "/x\"")
        ),
        &[
            "8:12: identity: expected \"mtls:cn\", \"mtls:email\", \"mtls:dns\" or \"mtls:uri\", found \"mtls:mail\"",
        ],
    );
    let config = good(&format!(
        "{}{route}",
        listener(&format!("{tls}client_ca = \"ca.pem\""))
    ));
    let Some(identity) = config.routes[0].handler.identity() else {
        panic!("{:?}", config.routes[0]);
    };
    assert_eq!(
        *identity,
        IdentitySource::Certificate(crate::CertificateField::Email)
    );
    assert_eq!(identity.to_string(), "mtls:email");
}

/// A listener for back ends needs no keys if clients have to present certificates.
#[test]
fn client_certificates_replace_api_keys() {
    let internal =
        "role = \"internal\"\ntls = { certificate = \"good.pem\", key = \"good.key\" }\n";
    let warned = checked(&listener(internal)).expect_err("no keys");
    assert!(warned.to_string().contains("without [api] keys"));
    let required = good(&listener(&format!("{internal}client_ca = \"ca.pem\"")));
    assert_eq!(required.warnings, []);
    let push = internal.replace("internal", "push");
    let warnings = good(&listener(&push)).warnings;
    assert!(warnings[0].message.contains("requires no key"));
    let required = good(&listener(&format!("{push}client_ca = \"ca.pem\"")));
    assert_eq!(required.warnings, []);
}

/// A reload may change TLS settings, but not the set of listeners.
#[test]
fn a_reload_takes_tls_over() {
    let plain = good(&listener(""));
    let with_tls = good(&listener(
        "tls = { certificate = \"good.pem\", key = \"good.key\" }",
    ));
    let changes = plain.effective.changes(&with_tls.effective);
    assert_eq!(changes.reload, ["listen[1].tls"]);
    let new = with_tls.clone().on_top_of(&plain);
    assert_eq!(new.listeners, with_tls.listeners);
    let moved = good("[[listen]]\naddress = \"0.0.0.0:80\"").on_top_of(&with_tls);
    assert_eq!(moved.listeners, with_tls.listeners);
}

#[test]
fn certificates_that_are_ordered() {
    let config = good(
        "[acme]\ncontact = [\"ops@example.org\", \"mailto:b@example.org\"]\nca = \"ca.pem\"\n\
         directory = \"https://127.0.0.1:14000/dir\"\n\
         [[listen]]\naddress = \"0.0.0.0:443\"\n\
         tls = [\n{ acme = [\"Push.Example.org\", \"example.org\"] },\n{ certificate = \"good.pem\", key = \"good.key\" }]\n\
         [[listen]]\naddress = \"[::]:443\"\ntls = { acme = [\"push.example.org\", \"example.org\"] }\n",
    );
    assert_eq!(config.warnings, []);
    let acme = &config.acme;
    assert_eq!(
        acme.contact,
        ["mailto:ops@example.org", "mailto:b@example.org"]
    );
    assert_eq!(acme.cache.to_str(), Some("/etc/veche/acme"));
    let [ordered] = &config.ordered()[..] else {
        panic!("one for both: {:?}", config.ordered());
    };
    assert_eq!(ordered.names, ["push.example.org", "example.org"]);
    let file = "/etc/veche/acme/127.0.0.1-14000-dir/push.example.org-d9540cb2.pem";
    assert_eq!(ordered.file.to_str(), Some(file));
    let tls = config.listeners[0].tls.as_ref().expect("TLS");
    assert_eq!(tls.certificates[1], files("good"));
    assert!(
        config
            .effective
            .to_string()
            .contains("tls = { acme = [\"push.example.org\", \"example.org\"] }")
    );

    // Two certificates may begin with the same name; their files nevertheless have different names.
    let config = good(
        "[[listen]]\naddress = \"0.0.0.0:443\"\ntls = [\n{ acme = [\"a.example\"] },\n{ acme = [\"a.example\", \"b.example\"] }]",
    );
    let [one, other] = &config.ordered()[..] else {
        panic!("two: {:?}", config.ordered());
    };
    assert_ne!(one.file, other.file);

    // Without an `[acme]` section the authority is Let's Encrypt. A listener to which the authority
    // can't connect causes a warning.
    let config = good(
        "[[listen]]\naddress = \"0.0.0.0:8443\"\nallow = [\"10.0.0.0/8\"]\ntls = { acme = [\"a.example\"] }",
    );
    assert_eq!(
        config.acme.folder().to_str(),
        Some("/etc/veche/acme/acme-v02.api.letsencrypt.org-directory")
    );
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "/etc/veche/veche.toml:3:1: allow: the authority of tls.acme connects from addresses that it does not publish; allow all addresses",
            "/etc/veche/veche.toml:4:7: tls: acme: the authority connects to port 443 of each name: forward that port to port 8443 of this machine",
        ]
    );
}

#[test]
fn invalid_acme_settings_are_reported() {
    let long = format!("{}.example", "a".repeat(64));
    let bad: &[(&str, &[&str])] = &[
        (
            "tls = { acme = [] }",
            &["3:7: tls: acme: expected a list of host names, found an empty list"],
        ),
        (
            "tls = { acme = \"a.example\" }",
            &["3:7: tls: acme: expected a list of host names, found \"a.example\""],
        ),
        (
            "tls = { acme = [\"a.example\"], key = \"good.key\" }",
            &[
                "3:7: tls: acme: can't be combined with certificate and key, which the server obtains itself",
            ],
        ),
        (
            "tls = { acm = [\"a.example\"] }",
            &[
                "3:7: tls: unknown name \"acm\"; expected { certificate = \"FILE\", key = \"FILE\" }, { acme = [\"NAME\"] } or a list of these; did you mean \"acme\"?",
            ],
        ),
        (
            "tls = { acme = [\"*.example.org\"] }",
            &[
                "3:7: tls: acme: \"*.example.org\": a wildcard can only be validated by DNS; list the names, or use the files of an ACME client with DNS-01",
            ],
        ),
        (
            "tls = { acme = [\"192.0.2.1\", \"a.example\", \"A.example\"] }",
            &[
                "3:7: tls: acme: \"192.0.2.1\": this is an address; use a host name",
                "3:7: tls: acme: \"a.example\" is listed twice",
            ],
        ),
        (
            "tls = { acme = [\"bücher.example\"] }",
            &[
                "3:7: tls: acme: expected a host name such as \"push.example.org\", found \"bücher.example\"",
            ],
        ),
        (
            "[acme]\ndirectory = \"http://ca.example/dir\"",
            &["4:13: directory: expected an https:// URL, found \"http://ca.example/dir\""],
        ),
        (
            "[acme]\ndirectory = \"letsencrypt\"",
            &["4:13: directory: \"letsencrypt\" is not a URL: relative URL without a base"],
        ),
        (
            "[acme]\ncontact = [\"a@example.org\", \"nobody\"]\nca = \"lost.pem\"",
            &[
                "4:29: contact: expected a mail address such as \"ops@example.org\", found \"nobody\"",
                "5:6: ca: /etc/veche/lost.pem: there is no such file",
            ],
        ),
    ];
    for (lines, expected) in bad {
        says(&listener(lines), expected);
    }
    says(
        &listener(&format!("tls = {{ acme = [\"{long}\"] }}")),
        &[&format!(
            "3:7: tls: acme: expected a host name such as \"push.example.org\", found {long:?}"
        )],
    );
}
