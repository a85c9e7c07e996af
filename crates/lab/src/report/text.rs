//! Texts of a page.

use std::fmt;

/// All that is written into a text.
pub(super) fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out);
    out
}

/// With as many digits as mean something.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// Each once, in the order in which they come.
pub(super) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// As HTML shows it, whatever it is.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_html_would_obey() {
        assert_eq!(escaped("<a b='c'>\"&"), "&lt;a b=&#39;c&#39;&gt;&quot;&amp;");
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        let numbers = [0.0, 0.1234, 9.8765, 12.345, 98_765.4].map(number);
        assert_eq!(numbers, ["0", "0.123", "9.877", "12.3", "98765"]);
    }

    #[test]
    fn each_comes_once_in_its_place() {
        assert_eq!(distinct([2, 1, 2, 3, 1]), [2, 1, 3]);
    }
}
