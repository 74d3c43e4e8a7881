//! An HTTP request for handlers: a copy of its head in one allocation, and its body.

use std::net::IpAddr;

/// A range of bytes in [`Request`]'s text.
#[derive(Clone, Copy, Debug)]
struct TextRange {
    from: u32,
    to: u32,
}

/// The handshake request of a WebSocket, or a complete HTTP request. Built by the front ends.
#[derive(Debug)]
pub struct Request {
    text: String,
    method: TextRange,
    path: TextRange,
    query: TextRange,
    user: Option<TextRange>,
    headers: Vec<(TextRange, TextRange)>,
    params: Vec<(TextRange, TextRange)>,
    /// The IP address of the client.
    pub remote: IpAddr,
    /// The request body; empty for a WebSocket.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a request without headers. `query` has no leading `?` and is not decoded.
    #[must_use]
    pub fn new(method: &str, path: &str, query: &str, remote: IpAddr) -> Self {
        let nothing = TextRange { from: 0, to: 0 };
        let mut request = Self {
            text: String::with_capacity(256),
            method: nothing,
            path: nothing,
            query: nothing,
            user: None,
            headers: Vec::with_capacity(12),
            params: Vec::new(),
            remote,
            body: Vec::new(),
        };
        request.method = request.append(method);
        request.path = request.append(path);
        request.query = request.append(query);
        request
    }

    fn append(&mut self, text: &str) -> TextRange {
        let from = self.text.len() as u32;
        self.text.push_str(text);
        let to = self.text.len() as u32;
        TextRange { from, to }
    }

    fn at(&self, part: TextRange) -> &str {
        &self.text[part.from as usize..part.to as usize]
    }

    /// Adds a header. Its name is converted to lower case.
    pub fn header(&mut self, name: &str, value: &str) {
        let name_part = self.append(name);
        self.text[name_part.from as usize..].make_ascii_lowercase();
        let value = self.append(value);
        self.headers.push((name_part, value));
    }

    /// Adds a route parameter, such as `id` of the route `/room/:id`.
    pub fn param(&mut self, name: &str, value: &str) {
        let pair = (self.append(name), self.append(value));
        self.params.push(pair);
    }

    /// Sets the user that the route's `identity` setting determined.
    pub fn set_user(&mut self, user: &str) {
        self.user = Some(self.append(user));
    }

    /// Returns the method of the request.
    #[must_use]
    pub fn method(&self) -> &str {
        self.at(self.method)
    }

    /// Returns the normalised path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.at(self.path)
    }

    /// Returns the query without its `?`, not decoded.
    #[must_use]
    pub fn query(&self) -> &str {
        self.at(self.query)
    }

    /// Returns the user that the route's `identity` setting determined.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.map(|user| self.at(user))
    }

    /// Returns the headers in order, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (self.at(*name), self.at(*value)))
    }

    /// Returns the parameters of the route in order, decoded.
    pub fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        let params = self.params.iter();
        params.map(|(name, value)| (self.at(*name), self.at(*value)))
    }
}
