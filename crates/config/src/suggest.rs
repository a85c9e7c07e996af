//! "Did you mean": the known word that is closest to a misspelled one.

/// The word of `known` nearest to `word`, if it is near enough that a slip of the fingers explains it: at most one
/// edit in three characters.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let allowed = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate, allowed), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …` as a hint, for the word of `known` nearest to `word`.
pub(crate) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(word, known).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Edits (insert, delete, replace, swap of neighbours; case and `-` for `_` are free) that make one word of the
/// other. Words whose lengths already differ by more than `allowed` are not compared: hostile input stays cheap.
fn distance(left: &str, right: &str, allowed: usize) -> usize {
    let fold = |word: &str| {
        word.chars()
            .map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
            .collect()
    };
    let (left, right): (Vec<char>, Vec<char>) = (fold(left), fold(right));
    if left.len().abs_diff(right.len()) > allowed {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, a) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(a != b);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *a == right[column - 1] && left[row - 1] == *b {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_fingers_are_recognised() {
        let known = ["listener", "cluster", "max_connections", "tcp", "session"];
        assert_eq!(nearest("listner", known), Some("listener"));
        assert_eq!(nearest("max-connections", known), Some("max_connections"));
        assert_eq!(nearest("Session", known), Some("session"));
        assert_eq!(nearest("tpc", known), Some("tcp"));
    }

    #[test]
    fn another_word_is_not_a_slip() {
        assert_eq!(nearest("topology", ["servers", "check"]), None);
        assert_eq!(nearest("", ["bind"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["bind"]), None);
    }
}
