//! Text from others, made safe for a terminal, which obeys some characters instead of showing them.

/// The characters kept of a long quotation, at its beginning and end.
const HEAD: usize = 140;
const TAIL: usize = 60;

/// The columns of a line of words.
const COLUMNS: usize = 100;

/// The text with its control characters escaped, except line ends.
pub fn visible(text: &str) -> String {
    escaped(text, |c| c == '\n')
}

/// The same, with line ends escaped, too.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// A quotation: on one line, without its middle if it is long.
pub fn excerpt(text: &str) -> String {
    let count = text.chars().count();
    if count <= HEAD + TAIL {
        return one_line(text);
    }
    let byte = |index| text.char_indices().nth(index).map_or(0, |(byte, _)| byte);
    let (head, rest) = text.split_at(byte(HEAD));
    let (_, tail) = rest.split_at(byte(count - TAIL) - head.len());
    format!("{} … {}", one_line(head), one_line(tail))
}

/// The text in lines of at most 100 columns, unless a word is longer.
pub fn wrapped(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split_inclusive(' ') {
        column += word.chars().count();
        if column > COLUMNS {
            lines.push_str("\n  ");
            column = 2 + word.chars().count();
        }
        lines.push_str(word);
    }
    lines
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) && !keep(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Control characters, and those that reorder or hide the text around them.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let text = "é \u{1b}[31mred\r\n\u{202e}'\"\\\u{9b}";
        assert_eq!(visible(text), "é \\u{1b}[31mred\\r\n\\u{202e}'\"\\\\u{9b}");
        assert_eq!(excerpt("a\nb\tc"), "a\\nb\\tc");
    }

    #[test]
    fn lines_end_between_words() {
        let text = ["word"; 50].join(" ");
        let lines = wrapped(&text);
        assert!(
            lines
                .lines()
                .all(|line| (80..=100).contains(&line.len()) || line.len() < 60)
        );
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(lines.replace("\n  ", ""), text);
        assert_eq!(wrapped("a  b"), "a  b");
    }

    #[test]
    fn long_quotations_are_cut() {
        let fits = "é".repeat(HEAD + TAIL);
        assert_eq!(excerpt(&fits), fits);
        let long = format!("{}{}{}", "a".repeat(HEAD), "é".repeat(9), "b".repeat(TAIL));
        let cut = format!("{} … {}", "a".repeat(HEAD), "b".repeat(TAIL));
        assert_eq!(excerpt(&long), cut);
    }
}
