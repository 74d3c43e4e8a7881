//! Line-by-line differences of two texts.

/// Maximum number of lines of a text that are compared one by one. Of longer texts, the lines between the common
/// beginning and end are shown unaligned.
const LINES_MAX: usize = 600;

/// Number of equal lines shown before and after a difference.
const CONTEXT: usize = 3;

/// Maximum number of lines of a difference that are shown.
const SHOWN_MAX: usize = 60;

/// Maximum number of characters of a line that are shown.
const LINE_CHARACTERS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Both,
    Expected,
    Got,
}

/// Describes how two unequal values differ: shows both if each is one line, otherwise the
/// difference of their lines.
pub(super) fn explain(expected: &[String], got: &[String]) -> String {
    if let ([expected], [got]) = (expected, got) {
        return format!("  - expected {}\n  + got      {}", cut(expected), cut(got));
    }
    let lines = difference(expected, got);
    let mut out = vec!["  - expected  + got".to_owned()];
    let near = |at: usize| {
        let window = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(lines.len());
        lines[window].iter().any(|(side, _)| *side != Side::Both)
    };
    let mut left_out = false;
    for (at, (side, line)) in lines.iter().enumerate() {
        if !near(at) {
            left_out = true;
            continue;
        }
        if std::mem::take(&mut left_out) {
            out.push("    …".to_owned());
        }
        if out.len() > SHOWN_MAX {
            out.push("    … and more".to_owned());
            return out.join("\n");
        }
        let sign = match side {
            Side::Both => ' ',
            Side::Expected => '-',
            Side::Got => '+',
        };
        out.push(format!("  {sign} {}", cut(line)));
    }
    if left_out {
        out.push("    …".to_owned());
    }
    out.join("\n")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

fn difference<'a>(expected: &'a [String], got: &'a [String]) -> Vec<(Side, &'a str)> {
    let least = expected.len().min(got.len());
    let before = (0..least)
        .take_while(|at| expected[*at] == got[*at])
        .count();
    let behind = (0..least - before)
        .take_while(|at| expected[expected.len() - 1 - at] == got[got.len() - 1 - at])
        .count();
    let middles = (
        &expected[before..expected.len() - behind],
        &got[before..got.len() - behind],
    );
    let both = |lines: &'a [String]| lines.iter().map(|line| (Side::Both, line.as_str()));
    let mut lines: Vec<_> = both(&expected[..before]).collect();
    lines.extend(middle(middles.0, middles.1));
    lines.extend(both(&expected[expected.len() - behind..]));
    lines
}

/// Lines of the longest common subsequence are shown as common, all other lines as lines of one text only.
fn middle<'a>(expected: &'a [String], got: &'a [String]) -> Vec<(Side, &'a str)> {
    let only = |side: Side, lines: &'a [String]| -> Vec<(Side, &'a str)> {
        lines.iter().map(|line| (side, line.as_str())).collect()
    };
    if expected.len() > LINES_MAX || got.len() > LINES_MAX {
        let mut lines = only(Side::Expected, expected);
        lines.extend(only(Side::Got, got));
        return lines;
    }
    // For each pair of positions: the length of the longest common subsequence of the lines from there on.
    let width = got.len() + 1;
    let mut common = vec![0_u16; (expected.len() + 1) * width];
    for i in (0..expected.len()).rev() {
        for j in (0..got.len()).rev() {
            common[i * width + j] = if expected[i] == got[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < expected.len() && j < got.len() {
        if expected[i] == got[j] {
            lines.push((Side::Both, expected[i].as_str()));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push((Side::Expected, expected[i].as_str()));
            i += 1;
        } else {
            lines.push((Side::Got, got[j].as_str()));
            j += 1;
        }
    }
    lines.extend(only(Side::Expected, &expected[i..]));
    lines.extend(only(Side::Got, &got[j..]));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn differences_are_shown_with_context() {
        let explanation = explain(
            &lines("a b c d e f g h i j k l"),
            &lines("a b c d e f G h i j l m"),
        );
        assert_eq!(
            explanation,
            "  - expected  + got\n    …\n    d\n    e\n    f\n  - g\n  + G\n    h\n    i\n    j\n  - k\n    l\n  + m"
        );
    }

    #[test]
    fn single_lines_are_shown_side_by_side() {
        assert_eq!(
            explain(&lines("1"), &lines("\"1\"")),
            "  - expected 1\n  + got      \"1\""
        );
        let long = "x".repeat(1000);
        assert!(explain(&lines(&long), &lines("y")).len() < 300);
    }

    #[test]
    fn long_texts_are_compared_in_bounded_time() {
        let many = |end: &str| {
            let mut list: Vec<String> = (0..15_000).map(|i| format!("{i}{end}")).collect();
            list.push("end".into());
            list
        };
        let explanation = explain(&many("a"), &many("b"));
        assert!(explanation.ends_with("    … and more"), "{explanation}");
        assert!(explanation.lines().count() < 70);
    }

    /// A difference without the lines of one text consists of all lines of the other text.
    #[test]
    fn each_side_is_whole() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..500 {
            let mut text = || -> Vec<String> {
                let count = rng.usize(0..12);
                (0..count).map(|_| rng.u8(0..4).to_string()).collect()
            };
            let (expected, got) = (text(), text());
            let all = difference(&expected, &got);
            let without = |side: Side| -> Vec<&str> {
                let kept = all.iter().filter(|(own, _)| *own != side);
                kept.map(|(_, line)| *line).collect()
            };
            assert_eq!(without(Side::Got), expected);
            assert_eq!(without(Side::Expected), got);
        }
    }
}
