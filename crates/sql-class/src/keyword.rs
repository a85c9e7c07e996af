//! The words that tell statements apart.

use crate::table::Table;

macro_rules! keywords {
    ($($name:ident = $text:literal,)+) => {
        /// A word of which some rule takes notice. All others are [`Keyword::None`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Keyword {
            None,
            $($name),+
        }

        const ALL: &[(Keyword, &str)] = &[(Keyword::None, ""), $((Keyword::$name, $text)),+];
    };
}

keywords! {
    All = "ALL",
    Alter = "ALTER",
    Analyze = "ANALYZE",
    As = "AS",
    Backup = "BACKUP",
    Begin = "BEGIN",
    Binlog = "BINLOG",
    Cache = "CACHE",
    Call = "CALL",
    Case = "CASE",
    Change = "CHANGE",
    Character = "CHARACTER",
    Charset = "CHARSET",
    Check = "CHECK",
    Checksum = "CHECKSUM",
    Clone = "CLONE",
    Collation = "COLLATION",
    Columns = "COLUMNS",
    Commit = "COMMIT",
    Concurrent = "CONCURRENT",
    Connection = "CONNECTION",
    Count = "COUNT",
    Create = "CREATE",
    Cross = "CROSS",
    Data = "DATA",
    Database = "DATABASE",
    Databases = "DATABASES",
    Deallocate = "DEALLOCATE",
    Default = "DEFAULT",
    Definer = "DEFINER",
    Delayed = "DELAYED",
    Delete = "DELETE",
    Desc = "DESC",
    Describe = "DESCRIBE",
    Distinct = "DISTINCT",
    Do = "DO",
    Drop = "DROP",
    Dual = "DUAL",
    Dumpfile = "DUMPFILE",
    End = "END",
    Engines = "ENGINES",
    Errors = "ERRORS",
    Event = "EVENT",
    Events = "EVENTS",
    Except = "EXCEPT",
    Execute = "EXECUTE",
    Exists = "EXISTS",
    Explain = "EXPLAIN",
    Export = "EXPORT",
    Extended = "EXTENDED",
    Fields = "FIELDS",
    Flush = "FLUSH",
    For = "FOR",
    Forebay = "FOREBAY",
    Format = "FORMAT",
    From = "FROM",
    Full = "FULL",
    Function = "FUNCTION",
    Get = "GET",
    Global = "GLOBAL",
    Grant = "GRANT",
    Grants = "GRANTS",
    Group = "GROUP",
    Handler = "HANDLER",
    Having = "HAVING",
    Help = "HELP",
    HighPriority = "HIGH_PRIORITY",
    If = "IF",
    Ignore = "IGNORE",
    Immediate = "IMMEDIATE",
    Import = "IMPORT",
    In = "IN",
    Index = "INDEX",
    Indexes = "INDEXES",
    Inner = "INNER",
    Insert = "INSERT",
    Install = "INSTALL",
    Instance = "INSTANCE",
    Intersect = "INTERSECT",
    Into = "INTO",
    Join = "JOIN",
    JsonTable = "JSON_TABLE",
    Keys = "KEYS",
    Kill = "KILL",
    Lateral = "LATERAL",
    Left = "LEFT",
    Library = "LIBRARY",
    Limit = "LIMIT",
    Load = "LOAD",
    Local = "LOCAL",
    Lock = "LOCK",
    Logfile = "LOGFILE",
    Loop = "LOOP",
    LowPriority = "LOW_PRIORITY",
    Natural = "NATURAL",
    Next = "NEXT",
    NoWriteToBinlog = "NO_WRITE_TO_BINLOG",
    Not = "NOT",
    On = "ON",
    Only = "ONLY",
    Optimize = "OPTIMIZE",
    Order = "ORDER",
    Outer = "OUTER",
    Outfile = "OUTFILE",
    Package = "PACKAGE",
    ParseTree = "PARSE_TREE",
    Partitions = "PARTITIONS",
    Password = "PASSWORD",
    Persist = "PERSIST",
    Plugins = "PLUGINS",
    Prepare = "PREPARE",
    Previous = "PREVIOUS",
    Privileges = "PRIVILEGES",
    Procedure = "PROCEDURE",
    Purge = "PURGE",
    Quick = "QUICK",
    Read = "READ",
    Recover = "RECOVER",
    Recursive = "RECURSIVE",
    Release = "RELEASE",
    Rename = "RENAME",
    Repair = "REPAIR",
    Repeat = "REPEAT",
    Replace = "REPLACE",
    Reset = "RESET",
    Resignal = "RESIGNAL",
    Resource = "RESOURCE",
    Restart = "RESTART",
    Returning = "RETURNING",
    Revoke = "REVOKE",
    Right = "RIGHT",
    Role = "ROLE",
    Rollback = "ROLLBACK",
    Savepoint = "SAVEPOINT",
    Schema = "SCHEMA",
    Schemas = "SCHEMAS",
    Select = "SELECT",
    Sequence = "SEQUENCE",
    Server = "SERVER",
    Session = "SESSION",
    Set = "SET",
    Share = "SHARE",
    Show = "SHOW",
    Shutdown = "SHUTDOWN",
    Signal = "SIGNAL",
    SqlCalcFoundRows = "SQL_CALC_FOUND_ROWS",
    Stage = "STAGE",
    Start = "START",
    Statement = "STATEMENT",
    Status = "STATUS",
    Stop = "STOP",
    Storage = "STORAGE",
    StraightJoin = "STRAIGHT_JOIN",
    Table = "TABLE",
    Tables = "TABLES",
    Tablespace = "TABLESPACE",
    Temporary = "TEMPORARY",
    To = "TO",
    Transaction = "TRANSACTION",
    Trigger = "TRIGGER",
    Triggers = "TRIGGERS",
    Truncate = "TRUNCATE",
    Uninstall = "UNINSTALL",
    Union = "UNION",
    Unlock = "UNLOCK",
    Update = "UPDATE",
    Use = "USE",
    User = "USER",
    Using = "USING",
    Value = "VALUE",
    Values = "VALUES",
    Variables = "VARIABLES",
    View = "VIEW",
    Warnings = "WARNINGS",
    Where = "WHERE",
    While = "WHILE",
    Window = "WINDOW",
    With = "WITH",
    Work = "WORK",
    Xa = "XA",
    Xml = "XML",
}

static TABLE: Table<1024> = {
    let (mut table, mut number) = (Table::EMPTY, 1);
    while number < ALL.len() {
        table = table.with(ALL[number].1.as_bytes(), number as u16);
        number += 1;
    }
    table
};

impl Keyword {
    #[inline]
    pub(crate) fn of(word: &[u8]) -> Self {
        ALL[usize::from(TABLE.get(word))].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found() {
        for &(keyword, text) in &ALL[1..] {
            assert_eq!(Keyword::of(text.to_ascii_lowercase().as_bytes()), keyword);
        }
        assert_eq!(Keyword::of(b"sbtest1"), Keyword::None);
    }
}
