//! Glob patterns: `*`, `?`, `[a-c]`, `[!a-c]` and `{one,two}`.

use std::iter::Peekable;
use std::str::Chars;

use serde::{Deserialize, Serialize};

/// Maximum length of a pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// A glob pattern: `*` matches any text, `?` any one character, `[a-cx]` one of the characters a, b, c and x, `[!a-cx]`
/// any other character, `{chat:*,news}` any of these patterns; `\` escapes the next character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Glob(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// A pattern in which only `*` and `?` are special.
    Wildcards(Box<str>),
    /// A pattern with ranges, alternatives or escapes. It is matched by simulating an automaton, in time proportional
    /// to the product of the lengths of pattern and name.
    Steps {
        /// The pattern as written.
        pattern: Box<str>,
        steps: Box<[Step]>,
    },
}

/// An instruction of the automaton. While a name is matched, the set of reachable instructions is tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Consumes exactly this character.
    Is(char),
    /// Consumes any one character.
    Any,
    /// With `true`, consumes a character inside one of these ranges; with `false`, one outside all of them.
    Within(Box<[(char, char)]>, bool),
    /// Continues both at the next instruction and at the one with this index.
    Fork(usize),
    /// Continues at the instruction with this index.
    Jump(usize),
}

/// The reason why a text is not a valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// A `[` or `{` is not closed, or a `[]` contains no characters.
    #[error("a [ or {{ is not closed")]
    Open,
    /// A `}` has no opening `{`.
    #[error("a }} has no opening {{")]
    Close,
    /// The end of a range precedes its start.
    #[error("a range in the pattern ends before it begins")]
    Range,
    /// The pattern ends with a `\`, which escapes nothing.
    #[error("nothing follows the \\ at the end of the pattern")]
    Escape,
    /// The pattern is longer than [`PATTERN_BYTES_MAX`] bytes.
    #[error("a pattern may have at most {PATTERN_BYTES_MAX} bytes")]
    Long,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is not a valid pattern.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::Long);
        }
        if !pattern.contains(['[', '{', '}', '\\']) {
            return Ok(Self(Form::Wildcards(pattern.into())));
        }
        let mut reader = Reader {
            rest: pattern.chars().peekable(),
            steps: Vec::new(),
        };
        reader.sequence(0)?;
        Ok(Self(Form::Steps {
            pattern: pattern.into(),
            steps: reader.steps.into(),
        }))
    }

    /// Returns the pattern as text.
    #[must_use]
    pub fn pattern(&self) -> &str {
        match &self.0 {
            Form::Wildcards(pattern) | Form::Steps { pattern, .. } => pattern,
        }
    }

    /// Returns whether a name matches. Takes time proportional to the product of the lengths of pattern and name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Form::Wildcards(pattern) => fits(name, pattern),
            Form::Steps { steps, .. } => accepts(steps, name),
        }
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.pattern().to_owned()
    }
}

impl TryFrom<String> for Glob {
    type Error = GlobError;

    fn try_from(pattern: String) -> Result<Self, GlobError> {
        Self::new(&pattern)
    }
}

/// Returns whether the automaton with these instructions accepts a name.
fn accepts(steps: &[Step], name: &str) -> bool {
    let end = steps.len();
    let (mut here, mut next) = (StateSet::new(end), StateSet::new(end));
    here.reach(0, steps);
    for character in name.chars() {
        if here.list.is_empty() {
            return false;
        }
        for place in here.list.drain(..) {
            let is_fit = match steps.get(place) {
                Some(Step::Is(wanted)) => *wanted == character,
                Some(Step::Any) => true,
                Some(Step::Within(ranges, is_within)) => {
                    let has = |(from, to): &(char, char)| (*from..=*to).contains(&character);
                    ranges.iter().any(has) == *is_within
                }
                Some(Step::Fork(_) | Step::Jump(_)) | None => false,
            };
            if is_fit {
                next.reach(place + 1, steps);
            }
        }
        here.is_reached.fill(false);
        std::mem::swap(&mut here, &mut next);
    }
    here.is_reached[end]
}

/// Returns whether a text matches a pattern in which only `*` and `?` are special. Takes at most time proportional to
/// the product of the lengths of text and pattern.
fn fits(text: &str, pattern: &str) -> bool {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    // For backtracking: the text after the part that the last `*` is assumed to match, and the pattern after that `*`.
    let mut again = None;
    loop {
        let at = (text.clone(), pattern.clone());
        match (text.next(), pattern.next()) {
            (_, Some('*')) => {
                text = at.0;
                again = Some((text.clone(), pattern.clone()));
            }
            (Some(_), Some('?')) => {}
            (Some(found), Some(wanted)) if found == wanted => {}
            (None, None) => return true,
            _ => {
                let Some((mut rest, behind)) = again else {
                    return false;
                };
                if rest.next().is_none() {
                    return false;
                }
                text = rest.clone();
                pattern = behind.clone();
                again = Some((rest, behind));
            }
        }
    }
}

/// A set of instructions that the automaton has reached.
struct StateSet {
    list: Vec<usize>,
    is_reached: Vec<bool>,
    /// Instructions whose successors have not been added yet.
    open: Vec<usize>,
}

impl StateSet {
    fn new(end: usize) -> Self {
        Self {
            list: Vec::with_capacity(end + 1),
            is_reached: vec![false; end + 1],
            open: Vec::new(),
        }
    }

    /// Adds an instruction and all instructions that are reachable from it without consuming a
    /// character.
    fn reach(&mut self, place: usize, steps: &[Step]) {
        self.open.push(place);
        while let Some(place) = self.open.pop() {
            if std::mem::replace(&mut self.is_reached[place], true) {
                continue;
            }
            match steps.get(place) {
                Some(Step::Jump(to)) => self.open.push(*to),
                Some(Step::Fork(to)) => self.open.extend([*to, place + 1]),
                Some(Step::Is(_) | Step::Any | Step::Within(..)) | None => self.list.push(place),
            }
        }
    }
}

struct Reader<'p> {
    rest: Peekable<Chars<'p>>,
    steps: Vec<Step>,
}

impl Reader<'_> {
    /// Parses up to the end of the pattern or, inside an alternative, up to the `,` or `}` that ends the alternative.
    /// This character is not consumed. `depth` is the number of open `{`.
    fn sequence(&mut self, depth: usize) -> Result<(), GlobError> {
        while let Some(&character) = self.rest.peek() {
            if depth > 0 && matches!(character, ',' | '}') {
                return Ok(());
            }
            self.rest.next();
            match character {
                '*' => {
                    while self.rest.next_if_eq(&'*').is_some() {}
                    let start = self.steps.len();
                    self.steps
                        .extend([Step::Fork(start + 3), Step::Any, Step::Jump(start)]);
                }
                '?' => self.steps.push(Step::Any),
                '[' => self.ranges()?,
                '{' => self.alternatives(depth + 1)?,
                '}' => return Err(GlobError::Close),
                '\\' => {
                    let escaped = self.rest.next().ok_or(GlobError::Escape)?;
                    self.steps.push(Step::Is(escaped));
                }
                other => self.steps.push(Step::Is(other)),
            }
        }
        match depth {
            0 => Ok(()),
            _ => Err(GlobError::Open),
        }
    }

    /// Parses the alternatives after a `{`, including the closing `}`.
    fn alternatives(&mut self, depth: usize) -> Result<(), GlobError> {
        let mut ends = Vec::new();
        loop {
            let fork = self.steps.len();
            self.steps.push(Step::Fork(fork));
            self.sequence(depth)?;
            let is_last = self.rest.next() != Some(',');
            if is_last {
                // The last alternative needs no fork.
                self.steps[fork] = Step::Jump(fork + 1);
                break;
            }
            ends.push(self.steps.len());
            self.steps.push(Step::Jump(0));
            self.steps[fork] = Step::Fork(self.steps.len());
        }
        let end = self.steps.len();
        for jump in ends {
            self.steps[jump] = Step::Jump(end);
        }
        Ok(())
    }

    /// Parses the ranges after a `[`, including the closing `]`.
    fn ranges(&mut self) -> Result<(), GlobError> {
        let is_within = self
            .rest
            .next_if(|sign| matches!(sign, '!' | '^'))
            .is_none();
        let mut ranges = Vec::new();
        loop {
            let from = match self.rest.next().ok_or(GlobError::Open)? {
                ']' if ranges.is_empty() => return Err(GlobError::Open),
                ']' => break,
                '\\' => self.rest.next().ok_or(GlobError::Escape)?,
                other => other,
            };
            let mut to = from;
            if self.rest.next_if_eq(&'-').is_some() {
                to = match self.rest.next().ok_or(GlobError::Open)? {
                    ']' => {
                        // A `-` before the `]` is a literal character.
                        ranges.extend([(from, from), ('-', '-')]);
                        break;
                    }
                    '\\' => self.rest.next().ok_or(GlobError::Escape)?,
                    other => other,
                };
            }
            if to < from {
                return Err(GlobError::Range);
            }
            ranges.push((from, to));
        }
        self.steps.push(Step::Within(ranges.into(), is_within));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, those, others) in [
            ("*", &["", "a", "вече"][..], &[][..]),
            ("chat:*", &["chat:", "chat:1"], &["chat", "xchat:1"]),
            ("*:1", &["chat:1", ":1", ":1:1"], &["chat:12", "1"]),
            ("a*b*c", &["abc", "axbxbyc", "abcc"], &["ab", "acb", "xabc"]),
            ("в?че", &["вече", "вxче"], &["вче", "вееече"]),
            ("", &[""], &["a"]),
            ("**", &["", "ab"], &[]),
            ("a", &["a"], &["", "aa"]),
            (
                "{chat,news}:*",
                &["chat:1", "news:"],
                &["chats:1", "{chat,news}:1", ":1"],
            ),
            (
                "room[a-c]",
                &["rooma", "roomc"],
                &["roomd", "room", "roomab"],
            ),
            ("room[!a-c]", &["roomd", "room1"], &["rooma", "room"]),
            ("[^a-c]", &["d"], &["a"]),
            ("[ad-fж]", &["a", "e", "ж"], &["b", "-", "з"]),
            ("[a-]", &["a", "-"], &["b"]),
            (
                "{a,b{c,d*}e,}x",
                &["ax", "bcex", "bdyyex", "x"],
                &["bx", "bcx", "a"],
            ),
            ("{*:1,x?}", &["a:1", "xy"], &["a:2", "x"]),
            (r"\*\{a\}[\]]", &["*{a}]"], &["x{a}]"]),
            ("a,b", &["a,b"], &["a"]),
            ("{}", &[""], &["a"]),
        ] {
            let glob = Glob::new(pattern).expect(pattern);
            for name in those {
                assert!(glob.matches(name), "{name} {pattern}");
            }
            for name in others {
                assert!(!glob.matches(name), "{name} {pattern}");
            }
        }
        // A matcher with backtracking would take exponential time for the patterns below.
        let name = "a".repeat(250);
        for pattern in ["*a".repeat(100) + "b", "{a,a}".repeat(150) + "b"] {
            assert!(!Glob::new(&pattern).expect("a pattern").matches(&name));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (pattern, error) in [
            ("[a-c", GlobError::Open),
            ("[]", GlobError::Open),
            ("{a,b", GlobError::Open),
            ("{a,{b}", GlobError::Open),
            ("a}", GlobError::Close),
            ("[c-a]", GlobError::Range),
            ("a\\", GlobError::Escape),
            (&"x".repeat(PATTERN_BYTES_MAX + 1)[..], GlobError::Long),
        ] {
            assert_eq!(Glob::new(pattern), Err(error), "{pattern}");
        }
    }
}
