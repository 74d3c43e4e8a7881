//! The causes of errors, in the order in which a connection can encounter them, with their meaning.

use super::model::Errors;

impl Errors {
    /// Returns every cause: its key in the report, its meaning, its count.
    pub fn causes(&self) -> [(&'static str, &'static str, u64); 11] {
        [
            ("refused", "connection refused", self.refused),
            (
                "timed_out",
                "no handshake or no answer in time",
                self.timed_out,
            ),
            ("reset", "the connection was reset", self.reset),
            (
                "closed",
                "the server closed the connection unexpectedly",
                self.closed,
            ),
            (
                "tls",
                "the TLS handshake failed, or the certificate was refused",
                self.tls,
            ),
            (
                "bad_handshake",
                "the server did not upgrade the connection",
                self.bad_handshake,
            ),
            (
                "bad_protocol",
                "the server broke the protocol",
                self.bad_protocol,
            ),
            ("wrong_answer", "an unexpected answer", self.wrong_answer),
            (
                "bad_response",
                "an HTTP error or an unexpected body",
                self.bad_response,
            ),
            (
                "system",
                "this machine ran out of descriptors, ports or memory",
                self.system,
            ),
            (
                "script",
                "an action or a session of the script raised an error",
                self.script,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_field_is_a_cause() {
        let Value::Object(fields) = serde_json::to_value(Errors::default()).unwrap() else {
            panic!("no object")
        };
        let mut counted: Vec<_> = fields
            .iter()
            .filter(|(_, value)| value.is_u64())
            .map(|(key, _)| key.as_str())
            .collect();
        let mut causes: Vec<_> = Errors::default()
            .causes()
            .iter()
            .map(|(key, ..)| *key)
            .collect();
        counted.sort_unstable();
        causes.sort_unstable();
        assert_eq!(counted, causes);
    }

    #[test]
    fn the_total_takes_each_once() {
        let errors = Errors {
            refused: 1,
            timed_out: 2,
            reset: 4,
            closed: 8,
            bad_handshake: 16,
            tls: 32,
            bad_protocol: 64,
            wrong_answer: 128,
            bad_response: 256,
            system: 512,
            script: 1024,
            examples: Default::default(),
        };
        assert_eq!(errors.count(), 2047);
    }
}
