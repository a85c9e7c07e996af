//! What the server says of itself, beside `INFO`: `COMMAND`, `CONFIG`, `CLUSTER`, `TIME` and the like.

use std::time::{SystemTime, UNIX_EPOCH};

use resp_wire::{Args, Limits, Writer};

use super::command::{COMMANDS, Command, Keys, Nature, Spec};
use super::glob;
use super::refusal::{Refusal, shown};

/// `HELP` of a command with subcommands.
pub(crate) fn help(lines: &[&str], out: &mut Writer<'_>) {
    out.array(lines.len());
    lines.iter().for_each(|line| out.simple(line));
}

const COMMAND_HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> ...]. Subcommands are:",
    "(no subcommand), INFO [<command> ...]",
    "    Return how commands are called.",
    "COUNT, LIST [FILTERBY (PATTERN <pattern>|ACLCAT <category>|MODULE <module>)]",
    "    Return how many commands there are, or their names.",
    "DOCS [<command> ...]",
    "    Return what commands are for.",
    "GETKEYS <command> <arg> ...",
    "    Return the keys of a command.",
];

const CONFIG_HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Return the settings whose names fit.",
];

/// `COMMAND [COUNT | LIST | INFO … | DOCS … | GETKEYS …]`.
pub(crate) fn command(args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let name = args.get(1).unwrap_or(b"info");
    let named = args.from(2);
    match (name.to_ascii_lowercase().as_slice(), args.len()) {
        (b"count", 2) => out.integer(COMMANDS.len() as i64),
        (b"list", _) => list(named, out)?,
        (b"info", ..=2) => {
            out.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| describe(spec, out));
        }
        (b"info", _) => {
            out.array(named.len());
            for name in named.iter() {
                match Command::find(name) {
                    Some(command) => describe(command.spec(), out),
                    None => out.null(),
                }
            }
        }
        (b"docs", 2) => document(COMMANDS.iter(), COMMANDS.len(), out),
        (b"docs", _) => {
            let specs = || named.iter().filter_map(Command::find).map(Command::spec);
            document(specs(), specs().count(), out);
        }
        (b"getkeys", 3..) => get_keys(named, out)?,
        (b"help", 2) => help(COMMAND_HELP, out),
        _ => return Err(Refusal::subcommand("COMMAND", args)),
    }
    Ok(())
}

/// `COMMAND LIST [FILTERBY (PATTERN pattern | ACLCAT category | MODULE module)]`.
fn list(filter: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let lower = |at: usize| filter.get(at).unwrap_or_default().to_ascii_lowercase();
    let fits: Box<dyn Fn(&Spec) -> bool> = match (lower(0).as_slice(), lower(1).as_slice(), filter.len()) {
        (_, _, 0) => Box::new(|_| true),
        (b"filterby", b"pattern", 3) => {
            let pattern = lower(2);
            Box::new(move |spec| glob::fits(&pattern, spec.name.as_bytes()))
        }
        (b"filterby", b"aclcat", 3) => {
            let category = lower(2);
            Box::new(move |spec| spec.nature.category().as_bytes()[1..] == *category)
        }
        (b"filterby", b"module", 3) => Box::new(|_| false),
        _ => return Err(Refusal::Syntax),
    };
    let fitting = || COMMANDS.iter().filter(|spec| fits(spec));
    out.array(fitting().count());
    fitting().for_each(|spec| out.bulk(spec.name.as_bytes()));
    Ok(())
}

/// As Redis 7 has it: ten parts, of which the last three are empty.
fn describe(spec: &Spec, out: &mut Writer<'_>) {
    out.array(10);
    out.bulk(spec.name.as_bytes());
    out.integer(i64::from(spec.arity));
    let flags: &[&str] = match spec.nature {
        Nature::Read => &["readonly"],
        Nature::Say => &["loading", "stale"],
        Nature::Connection => &["noscript", "loading", "stale", "fast", "no_auth"],
        Nature::Transaction => &["noscript", "loading", "stale", "fast"],
        Nature::Operate => &["admin", "noscript", "loading", "stale"],
    };
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let Keys(first, last, step) = spec.keys;
    for number in [first, last, step] {
        out.integer(i64::from(number));
    }
    out.set(1);
    out.simple(spec.nature.category());
    (0..3).for_each(|_| out.array(0));
}

fn document(specs: impl Iterator<Item = &'static Spec>, count: usize, out: &mut Writer<'_>) {
    out.map(count);
    for spec in specs {
        out.bulk(spec.name.as_bytes());
        out.map(3);
        let parts = [
            ("summary", spec.summary),
            ("since", "1.0.0"),
            ("group", spec.group),
        ];
        for (name, value) in parts {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    }
}

fn get_keys(request: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let command = request.get(0).and_then(Command::find);
    let command = command.ok_or_else(|| Refusal::Other("Invalid command specified".into()))?;
    let spec = command.spec();
    if !spec.takes(request.len()) {
        return Err(Refusal::Other(
            "Invalid number of arguments specified for command".into(),
        ));
    }
    let Keys(first, last, _) = spec.keys;
    let last = usize::try_from(last).unwrap_or(request.len() - 1);
    let keys: Vec<&[u8]> = match usize::try_from(first) {
        Ok(first @ 1..) => request.iter().take(last + 1).skip(first).collect(),
        _ => Vec::new(),
    };
    // Some commands have keys with certain subcommands only: `MEMORY USAGE`, not `MEMORY HELP`.
    if keys.is_empty() {
        return Err(Refusal::Other("The command has no key arguments".into()));
    }
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key));
    Ok(())
}

/// What `CONFIG GET` says of the cache.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Bytes.
    pub(crate) memory_max: u64,
    /// Whether rows make room for others.
    pub(crate) is_bounded: bool,
}

/// `CONFIG GET pattern …`; all else of it is refused.
pub(crate) fn config(
    settings: &Settings,
    listener: &config::Listener,
    args: Args<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let name = args.get(1).unwrap_or_default().to_ascii_lowercase();
    match (name.as_slice(), args.len()) {
        (b"get", 3..) => {}
        (b"help", 2) => {
            help(CONFIG_HELP, out);
            return Ok(());
        }
        (b"set" | b"rewrite" | b"resetstat", _) => {
            return Err(Refusal::Other(format!(
                "CONFIG {} is refused: the gateway's configuration is a file",
                shown(&name).to_uppercase()
            )));
        }
        _ => return Err(Refusal::subcommand("CONFIG", args)),
    }
    let patterns = args.from(2);
    let known = [
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        (
            "maxclients",
            listener
                .max_connections
                .map_or("0".to_owned(), |max| max.to_string()),
        ),
        ("maxmemory", settings.memory_max.to_string()),
        (
            "maxmemory-policy",
            if settings.is_bounded {
                "allkeys-lru"
            } else {
                "noeviction"
            }
            .to_owned(),
        ),
        ("proto-max-bulk-len", Limits::LOGGED_IN.bulk_bytes.to_string()),
        ("save", String::new()),
        ("timeout", listener.client_idle_timeout.as_secs().to_string()),
    ];
    let asked = |name: &str| {
        let fits = |pattern: &[u8]| glob::fits(&pattern.to_ascii_lowercase(), name.as_bytes());
        patterns.iter().any(fits)
    };
    let answers: Vec<_> = known.iter().filter(|(name, _)| asked(name)).collect();
    out.map(answers.len());
    for (name, value) in answers {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    Ok(())
}

/// `CLUSTER …`: some clients look whether there is one.
pub(crate) fn cluster(args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if args.get(1).is_some_and(|name| name.eq_ignore_ascii_case(b"info")) {
        out.verbatim("cluster_enabled:0\r\ncluster_state:ok\r\n");
        return Ok(());
    }
    Err(no_cluster())
}

pub(crate) fn no_cluster() -> Refusal {
    Refusal::Other("This instance has cluster support disabled".into())
}

/// `TIME`: seconds since 1970 and microseconds.
pub(crate) fn time(out: &mut Writer<'_>) {
    // Before 1970 there was no Redis.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.array(2);
    out.bulk(now.as_secs().to_string().as_bytes());
    out.bulk(now.subsec_micros().to_string().as_bytes());
}

/// `ROLE`: a master without replicas.
pub(crate) fn role(out: &mut Writer<'_>) {
    out.array(3);
    out.bulk(b"master");
    out.integer(0);
    out.array(0);
}

#[cfg(test)]
mod tests {
    use resp_wire::{ParseStep, Parser, Version};

    use super::*;

    #[test]
    fn keys_are_those_that_a_command_has() {
        let none = "ERR The command has no key arguments";
        for (line, expected) in [
            ("COMMAND GETKEYS MGET a b", "*2 $1 a $1 b"),
            ("COMMAND GETKEYS HGET a b", "*1 $1 a"),
            ("COMMAND GETKEYS MEMORY USAGE a", "*1 $1 a"),
            ("COMMAND GETKEYS MEMORY HELP", none),
            ("COMMAND GETKEYS OBJECT HELP", none),
            ("COMMAND GETKEYS PING", none),
        ] {
            let (mut parser, line, mut out) = (Parser::default(), format!("{line}\n"), Vec::new());
            let step = parser.parse(line.as_bytes(), &Limits::LOGGED_IN);
            assert!(matches!(step, Ok(ParseStep::Request(_))));
            let args = parser.args(line.as_bytes());
            let done = command(args, &mut Writer::new(&mut out, Version::V2));
            let reply = done.map_or_else(
                |refusal| refusal.to_string(),
                |()| String::from_utf8(out).unwrap().replace("\r\n", " "),
            );
            assert_eq!(reply.trim_end(), expected, "{line}");
        }
    }
}
