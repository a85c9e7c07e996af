//! Traffic of clients: captured into files while the gateway serves it, replayed against other servers, and
//! compared.
//!
//! [`capture`] hangs on the data plane as an observer: workers hand copies of commands and answers to a
//! thread of its own and never wait for it. [`mod@file`] and [`record`] are what is on the disk
//! (`docs/protocol/traffic.md`); [`checks`] makes a few numbers of a result, by which two results are
//! compared; [`secrets`] says which texts are never written. [`replay`] sends the statements of a folder to
//! another server and writes a folder of the same kind, and [`compare`] tells two folders apart; [`explain`]
//! asks both servers for the plans of what differs. [`mirrors`] compares in the same way what a rule's copies
//! of live statements are answered. [`import`]
//! makes such a folder of logs of servers, [`mod@anonymise`] makes one in which nobody is named, and
//! [`mod@export`] makes SQL text of one. [`objects`] has such folders in object stores.
//!
//! What a capture has is personal data: statements with their values.

pub mod anonymise;
mod binary;
pub mod capture;
pub mod checks;
mod codec;
pub mod compare;
pub mod explain;
pub mod export;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
pub mod import;
mod kept;
mod kept_columns;
pub mod mirrors;
pub mod objects;
pub mod offline;
pub mod record;
pub mod replay;
pub mod report;
pub mod seal;
pub mod secrets;
mod volatile;
mod words;

pub use file::{FileError, Folder, FolderWriter, Stop};
pub use seal::Key;
