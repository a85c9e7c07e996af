//! Which servers a statement may go to when a rule or a hint names a group, and when nobody names one.

use std::collections::BTreeMap;

use config::Group;

/// The groups of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a>(&'a BTreeMap<String, Group>);

impl<'a> Groups<'a> {
    /// The groups of a cluster's configuration.
    #[must_use]
    pub fn new(groups: &'a BTreeMap<String, Group>) -> Self {
        Self(groups)
    }

    /// Whether there are none: every server is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the server may get a statement for `group`, or for none: then those of exclusive groups are
    /// left out.
    #[must_use]
    pub fn admits(&self, server: &str, group: Option<&str>) -> bool {
        let has = |group: &Group| group.servers.iter().any(|name| name == server);
        match group {
            Some(name) => self.0.get(name).is_some_and(has),
            None => !self.0.values().any(|group| group.exclusive && has(group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_group_keeps_its_servers_to_itself() {
        let group = |servers: &[&str], exclusive| Group {
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            exclusive,
        };
        let groups = BTreeMap::from([
            ("reports".to_owned(), group(&["db3"], true)),
            ("near".to_owned(), group(&["db1", "db3"], false)),
        ]);
        let groups = Groups::new(&groups);
        let admitted = |name| ["db1", "db2", "db3"].map(|server| groups.admits(server, name));
        assert_eq!(admitted(None), [true, true, false]);
        assert_eq!(admitted(Some("reports")), [false, false, true]);
        assert_eq!(admitted(Some("near")), [true, false, true]);
        assert_eq!(admitted(Some("gone")), [false, false, false]);
        let none = BTreeMap::new();
        assert!(Groups::new(&none).admits("db1", None));
    }
}
