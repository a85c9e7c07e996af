//! What a new configuration changes, and what each change takes in a running gateway.

use std::fmt;

use crate::option::{Change, Reload};
use crate::schema::Config;
use crate::value::Value;

/// Everything that differs between two configurations, in the order of the reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDiff {
    pub changes: Vec<Change>,
}

impl ConfigDiff {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn of(&self, reload: Reload) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.reload == reload)
    }
}

impl fmt::Display for ConfigDiff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.changes.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{change}")?;
        }
        Ok(())
    }
}

impl Config {
    /// What `new` changes in relation to `self`. Listeners and servers are the same when their names are.
    pub fn diff(&self, new: &Config) -> ConfigDiff {
        let mut changes = Vec::new();
        self.compare(new, "", Reload::Restart, &mut changes);
        ConfigDiff { changes }
    }
}
