//! Configurations of other gateways, turned into ours: a text in, a text and a list of what has no equal out.
//!
//! Nothing is guessed in silence. What is left out, and what means something a little different here, is in
//! the list; a rule that would match more than it did there is written down as disabled. The result is as
//! good as the list is read.
//!
//! It reads no file and prints nothing: whoever has the text does. What our options take is `config`'s to
//! say: every result is read by it.

mod accounts;
mod clusters;
mod dump;
pub mod fuzzing;
mod haproxy;
mod libconfig;
mod patterns;
mod proxysql;
mod routes;
mod rules;
mod sql;
mod variables;
mod write;

pub use dump::ImportError;
pub use haproxy::haproxy;
pub use proxysql::proxysql;

/// What became of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A configuration of ours, with comments.
    pub toml: String,
    /// What has no equal, or not quite the same meaning: one line each.
    pub without_equal: Vec<String>,
}
