//! The commands: their names and shapes, for finding them, for `COMMAND`, and for refusing what is wrong
//! before it is executed.

/// What kind of work a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Reads rows, by keys or all of them: what it reads has to be fresh.
    Read,
    /// Says something of the server or of its rows, as they are.
    Say,
    /// Something of the connection itself.
    Connection,
    /// Those of a transaction.
    Transaction,
    /// Something for those who look after the gateway.
    Operate,
}

impl Nature {
    /// That of Redis's access lists.
    pub(crate) fn category(self) -> &'static str {
        match self {
            Self::Read => "@read",
            Self::Say => "@slow",
            Self::Connection => "@connection",
            Self::Transaction => "@transaction",
            Self::Operate => "@admin",
        }
    }
}

/// Where the keys are among the arguments, as `COMMAND INFO` says it: the first, the last (from the end if
/// negative) and the distance from one to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys(pub(crate) i8, pub(crate) i8, pub(crate) i8);

#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Arguments with the name; at least as many if negative.
    pub(crate) arity: i8,
    pub(crate) nature: Nature,
    pub(crate) keys: Keys,
    /// That of `COMMAND DOCS`.
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
}

impl Spec {
    /// The name as people write it.
    pub(crate) fn upper(&self) -> String {
        self.name.to_uppercase()
    }

    /// Whether so many arguments, with the name, are as it wants them.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            count >= wanted
        } else {
            count == wanted
        }
    }
}

macro_rules! commands {
    ($($variant:ident $name:literal $arity:literal $nature:ident [$($key:literal)*] $group:literal $summary:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Command {
            $($variant,)+
        }

        /// All of them, sorted by name, in the order of [`Command`].
        pub(crate) static COMMANDS: &[Spec] = &[
            $(Spec {
                name: $name,
                arity: $arity,
                nature: Nature::$nature,
                keys: keys(&[$($key),*]),
                group: $group,
                summary: $summary,
            },)+
        ];

        const ALL: &[Command] = &[$(Command::$variant,)+];
    };
}

const fn keys(given: &[i8]) -> Keys {
    match given {
        [first, last, step] => Keys(*first, *last, *step),
        _ => Keys(0, 0, 0),
    }
}

commands! {
    Auth "auth" -2 Connection [] "connection" "Logs in as a MySQL user.";
    Client "client" -2 Connection [] "connection" "Says and sets what belongs to the connection.";
    Cluster "cluster" -2 Say [] "cluster" "Says that there is no Redis cluster.";
    Commands "command" -1 Say [] "server" "Describes the commands.";
    Config "config" -2 Say [] "server" "Says how the server is set.";
    Dbsize "dbsize" 1 Read [] "server" "Counts the rows in memory.";
    Discard "discard" 1 Transaction [] "transactions" "Forgets the commands of a transaction.";
    Echo "echo" 2 Say [] "connection" "Says what it was told.";
    Exec "exec" 1 Transaction [] "transactions" "Executes the commands of a transaction, at one position.";
    Exists "exists" -2 Read [1 -1 1] "generic" "Counts the keys that have a row.";
    Expiretime "expiretime" 2 Read [1 1 1] "generic" "Says that a key does not expire.";
    Flush "flush" 1 Operate [] "server" "Has mappings read again, and what is not served tried again.";
    Get "get" 2 Read [1 1 1] "string" "Returns the value of a key.";
    Getrange "getrange" 4 Read [1 1 1] "string" "Returns a part of the value of a key.";
    Hello "hello" -1 Connection [] "connection" "Chooses the protocol, and logs in.";
    Hexists "hexists" 3 Read [1 1 1] "hash" "Says whether a column of a row has a value.";
    Hget "hget" 3 Read [1 1 1] "hash" "Returns the value of a column of a row.";
    Hgetall "hgetall" 2 Read [1 1 1] "hash" "Returns the columns of a row and their values.";
    Hkeys "hkeys" 2 Read [1 1 1] "hash" "Returns the columns of a row that have a value.";
    Hlen "hlen" 2 Read [1 1 1] "hash" "Counts the columns of a row that have a value.";
    Hmget "hmget" -3 Read [1 1 1] "hash" "Returns the values of some columns of a row.";
    Hrandfield "hrandfield" -2 Read [1 1 1] "hash" "Returns some columns of a row that have a value.";
    Hscan "hscan" -3 Read [1 1 1] "hash" "Returns the columns of a row and their values.";
    Hstrlen "hstrlen" 3 Read [1 1 1] "hash" "Returns the length of the value of a column of a row.";
    Hvals "hvals" 2 Read [1 1 1] "hash" "Returns the values of a row.";
    Info "info" -1 Say [] "server" "Says how the server is.";
    Memory "memory" -2 Read [2 2 1] "server" "Says how many bytes a row takes.";
    Mget "mget" -2 Read [1 -1 1] "string" "Returns the values of keys, at one position.";
    Multi "multi" 1 Transaction [] "transactions" "Begins a transaction.";
    Object "object" -2 Read [2 2 1] "generic" "Says how a value is kept.";
    Pexpiretime "pexpiretime" 2 Read [1 1 1] "generic" "Says that a key does not expire.";
    Ping "ping" -1 Say [] "connection" "Says that the server is there.";
    Pttl "pttl" 2 Read [1 1 1] "generic" "Says that a key does not expire.";
    Quit "quit" -1 Connection [] "connection" "Ends the connection.";
    Randomkey "randomkey" 1 Read [] "generic" "Returns a key that has a row in memory.";
    Readonly "readonly" 1 Say [] "cluster" "Says that there is no Redis cluster.";
    Readwrite "readwrite" 1 Say [] "cluster" "Says that there is no Redis cluster.";
    Reset "reset" 1 Connection [] "connection" "Makes the connection as it was at first.";
    Role "role" 1 Say [] "server" "Says that the server is a master.";
    Scan "scan" -2 Read [] "generic" "Returns some of the keys that have a row in memory.";
    Select "select" 2 Connection [] "connection" "Chooses database 0, the only one.";
    Strlen "strlen" 2 Read [1 1 1] "string" "Returns the length of the value of a key.";
    Subscribe "subscribe" -2 Connection [] "pubsub" "Has this connection told when rows change that others keep.";
    Substr "substr" 4 Read [1 1 1] "string" "Returns a part of the value of a key.";
    Time "time" 1 Say [] "server" "Returns the time.";
    Touch "touch" -2 Read [1 -1 1] "generic" "Counts the keys that have a row.";
    Ttl "ttl" 2 Read [1 1 1] "generic" "Says that a key does not expire.";
    Type "type" 2 Read [1 1 1] "generic" "Says what kind of value a key has.";
    Unsubscribe "unsubscribe" -1 Connection [] "pubsub" "Ends that.";
    Unwatch "unwatch" 1 Transaction [] "transactions" "Does nothing: no key is watched.";
}

/// The longest name of a command, served or refused.
const NAME_MAX: usize = 20;

impl Command {
    /// The command of a name in any case.
    #[inline]
    pub(crate) fn find(name: &[u8]) -> Option<Self> {
        match name {
            b"GET" | b"get" => return Some(Self::Get),
            b"HGET" | b"hget" => return Some(Self::Hget),
            b"MGET" | b"mget" => return Some(Self::Mget),
            _ => {}
        }
        let mut lower = [0; NAME_MAX];
        let lower = lower_case(name, &mut lower)?;
        let at = COMMANDS
            .binary_search_by(|spec| spec.name.as_bytes().cmp(lower))
            .ok()?;
        ALL.get(at).copied()
    }

    #[inline]
    pub(crate) fn spec(self) -> &'static Spec {
        &COMMANDS[self as usize]
    }
}

/// Commands of Redis that change data, or wait for changes that clients make: SQL does that here.
const WRITES: &[&str] = &[
    "append",
    "bitfield",
    "bitop",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "copy",
    "decr",
    "decrby",
    "del",
    "expire",
    "expireat",
    "flushall",
    "flushdb",
    "function",
    "geoadd",
    "getdel",
    "getex",
    "getset",
    "hdel",
    "hexpire",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hpersist",
    "hpexpire",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lmove",
    "lpop",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "migrate",
    "move",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "pfmerge",
    "psetex",
    "rename",
    "renamenx",
    "restore",
    "rpop",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "sdiffstore",
    "set",
    "setbit",
    "setex",
    "setnx",
    "setrange",
    "sinterstore",
    "smove",
    "spop",
    "srem",
    "sunionstore",
    "swapdb",
    "unlink",
    "xack",
    "xadd",
    "xdel",
    "xtrim",
    "zadd",
    "zincrby",
    "zpopmax",
    "zpopmin",
    "zrem",
];

/// Whether a command of Redis that is not served is one that writes.
pub(crate) fn is_write(name: &[u8]) -> bool {
    let mut lower = [0; NAME_MAX];
    lower_case(name, &mut lower).is_some_and(|lower| {
        WRITES
            .binary_search_by(|write| write.as_bytes().cmp(lower))
            .is_ok()
    })
}

fn lower_case<'a>(name: &[u8], room: &'a mut [u8; NAME_MAX]) -> Option<&'a [u8]> {
    let room = room.get_mut(..name.len())?;
    room.copy_from_slice(name);
    room.make_ascii_lowercase();
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for (spec, command) in COMMANDS.iter().zip(ALL) {
            assert_eq!(Command::find(spec.name.as_bytes()), Some(*command));
            assert_eq!(Command::find(spec.name.to_uppercase().as_bytes()), Some(*command));
            assert_eq!(command.spec().name, spec.name);
        }
        assert_eq!(Command::find(b"HgEtAlL"), Some(Command::Hgetall));
        for name in ["", "ge", "gett", "set", &"x".repeat(1000)] {
            assert_eq!(Command::find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn lists_are_sorted_and_have_nothing_in_common() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        assert!(WRITES.is_sorted_by(|a, b| a < b));
        assert!(
            WRITES
                .iter()
                .all(|name| name.len() <= NAME_MAX && is_write(name.as_bytes()))
        );
        assert!(COMMANDS.iter().all(|spec| !is_write(spec.name.as_bytes())));
        assert!(is_write(b"FlushAll") && !is_write(b"nonsense"));
    }

    #[test]
    fn arity_is_exact_or_a_minimum() {
        let takes = |command: Command, count| command.spec().takes(count);
        assert!(takes(Command::Get, 2) && !takes(Command::Get, 1) && !takes(Command::Get, 3));
        assert!(takes(Command::Mget, 2) && takes(Command::Mget, 200) && !takes(Command::Mget, 1));
    }
}
