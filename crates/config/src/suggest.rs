//! "Did you mean": the known word that is closest to a misspelled one.

/// The word of `known` nearest to `word`, if it is near enough that a slip of the fingers explains it: at
/// most one edit in three characters.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let allowed = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate, allowed), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What HAProxy, ProxySQL and others call it, and what it is called here. Several may fit: the first one that
/// is known counts.
const ELSEWHERE: [(&str, &str); 29] = [
    ("active", "enabled"),
    ("client_addr", "client"),
    ("default_backend", "cluster"),
    ("destination_hostgroup", "route"),
    ("error_msg", "refuse"),
    ("host", "address"),
    ("hostname", "address"),
    ("inter", "interval"),
    ("leastconn", "least-connections"),
    ("leastconn", "least-outstanding"),
    ("listen", "bind"),
    ("match_digest", "digest_text"),
    ("match_pattern", "text"),
    ("max_replication_lag", "max_lag"),
    ("maxconn", "max_connections"),
    ("maxqueue", "queue_max"),
    ("mirror_hostgroup", "mirror"),
    ("multiplex", "pin"),
    ("negate_match_pattern", "negate"),
    ("ok_msg", "answer_ok"),
    ("random", "random-two"),
    ("replace_pattern", "rewrite"),
    ("roundrobin", "round-robin"),
    ("roundrobin", "weighted"),
    ("schemaname", "schema"),
    ("server", "servers"),
    ("slowstart", "slow_start"),
    ("ssl", "tls"),
    ("username", "name"),
];

/// `; did you mean …` as a hint, for the word of `known` nearest to `word`, or of the same meaning.
pub(crate) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    let same = ELSEWHERE
        .iter()
        .find(|(theirs, ours)| word.eq_ignore_ascii_case(theirs) && known.contains(ours));
    let meant = same
        .map(|(_, ours)| *ours)
        .or_else(|| nearest(word, known.iter().copied()));
    meant.map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Edits (insert, delete, replace, swap of neighbours; case and `-` for `_` are free) that make one word of
/// the other. Words whose lengths already differ by more than `allowed` are not compared: hostile input stays
/// cheap.
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
    fn words_of_others_are_known_where_ours_would_stand() {
        let server = ["address", "max_connections", "weight"];
        assert_eq!(hint("host", server).unwrap(), "did you mean `address`?");
        assert_eq!(
            hint("maxconn", server).unwrap(),
            "did you mean `max_connections`?"
        );
        assert_eq!(hint("host", ["bind", "cluster"]), None);
        let reads = ["least-outstanding", "latency", "weighted"];
        assert_eq!(
            hint("leastconn", reads).unwrap(),
            "did you mean `least-outstanding`?"
        );
        assert_eq!(hint("roundrobin", reads).unwrap(), "did you mean `weighted`?");
    }

    #[test]
    fn another_word_is_not_a_slip() {
        assert_eq!(nearest("topology", ["servers", "check"]), None);
        assert_eq!(nearest("", ["bind"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["bind"]), None);
    }
}
