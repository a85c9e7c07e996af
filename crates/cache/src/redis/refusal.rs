//! Every error that a Redis client is told, and its words.

use std::fmt;

use resp_wire::Args;

use super::command;
use crate::reader::NotFetched;

/// Why a command is not executed, or came to nothing. `Display` gives the whole reply: a word in capitals
/// that programs look at, as Redis has it, and a text for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("NOAUTH Authentication required.")]
    NotLoggedIn,
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
         option can be used to authenticate the client and select the RESP protocol version at the same time"
    )]
    HelloWithoutLogin,
    #[error("WRONGPASS {0}.")]
    Denied(String),
    #[error(
        "WRONGPASS {0}: AUTH with a password alone is for the user 'default'. Name yours: AUTH <user> <password>"
    )]
    DeniedWithoutUser(String),
    #[error("ERR {0}")]
    NotAdmitted(String),
    #[error("NOPERM the user may not read the table of mapping '{0}'")]
    NoRight(String),
    #[error("NOPERM only those may FLUSH who may do so on the server: the user lacks the privilege RELOAD")]
    NoFlush,
    #[error("NOPROTO unsupported protocol version")]
    Protocol,
    #[error("{}", .0)]
    UnknownCommand(UnknownCommand),
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("{}", subcommand(command, name))]
    Subcommand { command: &'static str, name: String },
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR invalid cursor")]
    Cursor,
    #[error("ERR DB index is out of range")]
    Database,
    #[error("ERR request of more than {0} bytes")]
    TooLarge(usize),
    #[error("ERR reply of more than {0} bytes: ask for fewer keys at once")]
    ReplyTooLarge(usize),
    #[error("ERR more than {0} bytes of rows for one request: ask for fewer keys at once")]
    TooMuchRead(usize),
    #[error("ERR key '{0}' names no mapping: keys are mapping@key. `INFO mappings` lists the mappings")]
    NoMappingInKey(String),
    #[error("ERR no mapping '{0}': `INFO mappings` lists the mappings")]
    UnknownMapping(String),
    #[error("ERR key '{key}': {reason}")]
    Key { key: String, reason: String },
    #[error("ERR mapping '{mapping}': {reason}")]
    Mapping { mapping: String, reason: String },
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("LOADING mapping '{mapping}' is not served yet: {state}")]
    Loading { mapping: String, state: String },
    /// Nothing goes on by itself: a client that knows LOADING would try again for ever.
    #[error("ERR mapping '{mapping}' is not served: {state}")]
    Stopped { mapping: String, state: String },
    #[error("MASTERDOWN {0}")]
    NotFresh(String),
    #[error("ERR the server could not be asked: {0}")]
    NotAsked(String),
    #[error("ERR the server could not be asked: {0}")]
    RowsTooLarge(NotFetched),
    #[error("ERR MULTI calls can not be nested")]
    NestedMulti,
    #[error("ERR {0} without MULTI")]
    WithoutMulti(String),
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    Aborted,
    #[error("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")]
    AbortedByArity,
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    Subscribed(&'static str),
    #[error("ERR '{0}' is not allowed inside a transaction")]
    NotInTransaction(&'static str),
    #[error("ERR {0}")]
    Other(String),
}

/// Subcommands, which may have other numbers of arguments than they were given.
const SUBCOMMANDS: [(&str, &[&str]); 5] = [
    (
        "CLIENT",
        &[
            "caching",
            "consistency",
            "getname",
            "getredir",
            "help",
            "id",
            "info",
            "kill",
            "list",
            "no-evict",
            "no-touch",
            "reply",
            "setinfo",
            "setname",
            "tracking",
            "trackinginfo",
            "unblock",
        ],
    ),
    ("COMMAND", &["count", "docs", "getkeys", "help", "info", "list"]),
    ("CONFIG", &["get", "help"]),
    ("MEMORY", &["help", "usage"]),
    ("OBJECT", &["encoding", "freq", "help", "idletime", "refcount"]),
];

fn subcommand(command: &str, name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let mut known = SUBCOMMANDS.iter().filter(|(of, _)| *of == command);
    if known.any(|(_, names)| names.contains(&lower.as_str())) {
        let command = command.to_ascii_lowercase();
        return format!("ERR wrong number of arguments for '{command}|{lower}' command");
    }
    format!("ERR unknown subcommand '{name}'. Try {command} HELP.")
}

/// What of a request was larger than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Itself, or those between MULTI and EXEC.
    Request,
    Reply,
    /// The rows that it reads.
    Rows,
}

impl Bound {
    /// All of them, as metrics name them, in their order.
    pub(crate) const LABELS: [&str; 3] = ["request", "reply", "rows"];
}

impl Refusal {
    /// The refusal of a subcommand, which is argument 1.
    pub(crate) fn subcommand(command: &'static str, args: Args<'_>) -> Self {
        let name = shown(args.get(1).unwrap_or_default());
        Self::Subcommand { command, name }
    }

    /// The bound that it is about, if it is about one.
    pub(crate) fn bound(&self) -> Option<Bound> {
        match self {
            Self::TooLarge(_) => Some(Bound::Request),
            Self::ReplyTooLarge(_) => Some(Bound::Reply),
            Self::RowsTooLarge(_) | Self::TooMuchRead(_) => Some(Bound::Rows),
            _ => None,
        }
    }
}

impl From<NotFetched> for Refusal {
    fn from(error: NotFetched) -> Self {
        if error.too_long {
            Self::RowsTooLarge(error)
        } else {
            Self::NotAsked(error.to_string())
        }
    }
}

#[derive(Debug)]
pub(crate) struct UnknownCommand {
    name: String,
    /// The beginnings of its first arguments.
    args: String,
}

/// How much of a name or an argument is shown.
const SHOWN: usize = 128;

/// Bytes of a client, as an error shows them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    String::from_utf8_lossy(shown).replace(['\r', '\n'], " ")
}

impl UnknownCommand {
    pub(crate) fn new(args: Args<'_>) -> Self {
        let mut shown_args = String::new();
        for arg in args.from(1).iter() {
            if shown_args.len() >= SHOWN {
                break;
            }
            shown_args.push_str(&format!("'{}' ", shown(arg)));
        }
        Self {
            name: shown(args.get(0).unwrap_or_default()),
            args: shown_args,
        }
    }
}

impl fmt::Display for UnknownCommand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, args } = self;
        if command::is_write(name.as_bytes()) {
            let name = name.to_uppercase();
            return write!(
                out,
                "ERR {name} is refused: keys are rows of SQL tables, which are only read here. Write through SQL"
            );
        }
        if matches!(name.to_ascii_lowercase().as_str(), "watch") {
            return write!(
                out,
                "ERR WATCH is refused: a transaction here only reads, at one position"
            );
        }
        write!(
            out,
            "ERR unknown command '{name}', with args beginning with: {args}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_unknown_or_have_other_arguments() {
        for (command, name, text) in [
            ("CLIENT", "FOO", "ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
            (
                "CLIENT",
                "SetName",
                "ERR wrong number of arguments for 'client|setname' command",
            ),
            (
                "CONFIG",
                "usage",
                "ERR unknown subcommand 'usage'. Try CONFIG HELP.",
            ),
        ] {
            let name = name.to_owned();
            assert_eq!(Refusal::Subcommand { command, name }.to_string(), text);
        }
    }
}
