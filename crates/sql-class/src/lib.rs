//! What a statement is, from its tokens alone: its class, what it does to the session, its digest and its
//! tables.
//!
//! Pure, and no parser: a tokenizer (`token`) and the few rules that tell statements apart (`rules`), with
//! what is noted of any statement by the way (`reader`). What is not understood is [`Class::Unknown`], which
//! goes to the primary; where two readings are possible the one that is slow and right is taken.
//!
//! What it cannot know: the default schema (after `USE performance_schema` a table of that schema has no
//! schema in the text: [`is_about_server`] is for who knows it), IGNORE_SPACE and ORACLE in `sql_mode`, and
//! what views, triggers and stored routines do.

mod calls;
mod classify;
mod diagnostics;
mod digest;
mod facts;
mod facts_cache;
mod fingerprint;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod keyword;
mod keywords;
mod literals;
pub mod logged;
mod point_lookup;
mod reader;
mod rules;
mod set_targets;
mod sql_mode_change;
mod syntax;
mod table;
mod tables;
pub mod text;
mod token;
mod user_variables;
mod variables;
mod words;

pub use calls::{Call, calls};
pub use classify::facts;
pub use diagnostics::{StatementItem, statement_items};
pub use digest::{Digest, digest, synonym};
pub use facts::{Class, Effects, Facts, Hint};
pub use facts_cache::FactsCache;
pub use literals::{Literal, literals};
pub use point_lookup::{CONDITIONS_MAX, Condition, PointLookup, Value, point_lookup};
pub use set_targets::{assigns_given_values, set_targets, set_targets_in_session, set_targets_unseen};
pub use syntax::{Charset, Dialect, Syntax};
pub use tables::{TableName, tables};
pub use user_variables::user_variables;
pub use variables::is_about_server;
