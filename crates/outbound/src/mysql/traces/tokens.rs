//! A tokenizer of statements that recognises only the syntax on which MySQL and MariaDB agree in every `sql_mode`.

/// A token of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqlToken<'a> {
    /// A name, a keyword or a number, verbatim.
    Word(&'a str),
    /// A string, or a quoted name.
    Quoted,
    /// A single byte of [`SYMBOLS`].
    Symbol(u8),
    /// A comment whose content is executed (`/*! … */`), or text that servers or SQL modes interpret differently.
    Unknown,
}

/// Bytes that are tokens by themselves. `:=` sets a variable and `{fn f()}` calls a function, so `:` and braces are
/// unknown.
const SYMBOLS: &[u8] = b"(),;.*+-/%=<>!&|^~?@";

/// An iterator over the tokens of the remaining text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    pub(super) fn new(sql: &'a str) -> Self {
        Self(sql)
    }

    /// Returns whether a parenthesis follows, so that the preceding name is the name of a function.
    pub(super) fn is_call(self) -> bool {
        self.peek() == Some(SqlToken::Symbol(b'('))
    }

    /// Returns whether a parenthesis follows without white space before it.
    pub(super) fn is_call_at_once(self) -> bool {
        self.0.starts_with('(')
    }

    /// Returns whether an empty pair of parentheses follows.
    pub(super) fn is_empty_call(mut self) -> bool {
        self.next() == Some(SqlToken::Symbol(b'(')) && self.next() == Some(SqlToken::Symbol(b')'))
    }

    /// Consumes a symbol if it follows immediately. Returns whether it does.
    pub(super) fn take_symbol(&mut self, symbol: u8) -> bool {
        let is_next = self.0.as_bytes().first() == Some(&symbol);
        self.0 = &self.0[usize::from(is_next)..];
        is_next
    }

    fn peek(mut self) -> Option<SqlToken<'a>> {
        self.next()
    }

    /// Reads a quoted text, in which a doubled quote stands for one quote. A quote after a backslash is ambiguous: escaped in
    /// some SQL modes, the end of the text in others.
    fn quoted(&mut self, quote: u8) -> SqlToken<'a> {
        let bytes = self.0.as_bytes();
        let (mut at, mut is_escaped) = (1, false);
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            if byte == b'\\' && quote != b'`' {
                is_escaped = !is_escaped;
                continue;
            }
            if byte == quote {
                if is_escaped {
                    break;
                }
                if bytes.get(at) == Some(&quote) {
                    at += 1;
                } else {
                    self.0 = &self.0[at..];
                    return SqlToken::Quoted;
                }
            }
            is_escaped = false;
        }
        self.unknown()
    }

    /// Ends the tokens, because the rest can't be interpreted.
    fn unknown(&mut self) -> SqlToken<'a> {
        self.0 = "";
        SqlToken::Unknown
    }

    /// Skips the text up to and including `end`. Returns `false` if `end` does not occur.
    fn skip_behind(&mut self, end: &str) -> bool {
        match self.0.split_once(end) {
            Some((_, rest)) => {
                self.0 = rest;
                true
            }
            None => {
                self.0 = "";
                false
            }
        }
    }
}

/// Returns whether a byte belongs to an unquoted name.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || byte > 127
}

impl<'a> Iterator for Tokens<'a> {
    type Item = SqlToken<'a>;

    fn next(&mut self) -> Option<SqlToken<'a>> {
        loop {
            let bytes = self.0.as_bytes();
            let first = *bytes.first()?;
            match first {
                b' ' | b'\t' | b'\n' | b'\r' => self.0 = &self.0[1..],
                b'#' => {
                    self.skip_behind("\n");
                }
                b'-' if bytes.starts_with(b"--")
                    && bytes.get(2).is_none_or(u8::is_ascii_whitespace) =>
                {
                    self.skip_behind("\n");
                }
                b'/' if bytes.starts_with(b"/*!") || bytes.starts_with(b"/*M!") => {
                    return Some(self.unknown());
                }
                b'/' if bytes.starts_with(b"/*") => {
                    self.0 = &self.0[2..];
                    if !self.skip_behind("*/") {
                        return Some(SqlToken::Unknown);
                    }
                }
                b'\'' | b'"' | b'`' => return Some(self.quoted(first)),
                byte if is_of_word(byte) => {
                    let end = bytes.iter().position(|byte| !is_of_word(*byte));
                    let (word, rest) = self.0.split_at(end.unwrap_or(bytes.len()));
                    self.0 = rest;
                    return Some(SqlToken::Word(word));
                }
                symbol if SYMBOLS.contains(&symbol) => {
                    self.0 = &self.0[1..];
                    return Some(SqlToken::Symbol(symbol));
                }
                _ => return Some(self.unknown()),
            }
        }
    }
}
