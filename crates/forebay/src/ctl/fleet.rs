//! The configuration that several gateways have in common: changed, looked at, taken back.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::gateway::Gateway;
use super::{date, escaped, parsed, show, table, token_in};

/// Nothing has changed: another change has come before.
const CONFLICT: u8 = 2;
/// Nothing has changed: gateways cannot run it.
const REFUSED: u8 = 3;
/// Nobody knows whether it was committed.
const UNKNOWN: u8 = 4;
/// It is committed, and gateways do not run it.
const NOT_APPLIED: u8 = 5;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longer than the gateway waits for the others and for the store.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Subcommand)]
pub(super) enum Act {
    /// Has all gateways of the fleet run this text, if each that lives can. Exit code 2: another change has
    /// come before it, 3: gateways cannot run it, 4: nobody knows whether it was committed.
    Apply {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// Only where this is the revision that there is.
        #[arg(long)]
        expect: Option<u64>,
        #[command(flatten)]
        how: How,
    },
    /// Has all gateways run the text of a former revision, as a new one. Exit codes as those of `apply`.
    Rollback {
        /// The revision.
        revision: u64,
        /// Also where it has other accounts, or other passwords.
        #[arg(long)]
        accounts: bool,
        #[command(flatten)]
        how: How,
    },
    /// Lists who has changed the configuration of all, when and why; or prints the text of a revision.
    History {
        /// The revision whose text is printed.
        revision: Option<u64>,
    },
    /// Lists the options that differ between two revisions.
    Diff {
        /// The former.
        from: u64,
        /// The latter.
        to: u64,
    },
    /// Lists the gateways of the fleet, and what each of them runs.
    Members,
}

#[derive(Args)]
pub(super) struct How {
    /// Why, for the history.
    #[arg(long)]
    why: Option<String>,
    /// Waits until all gateways run it. Exit code 5: some do not; they are named.
    #[arg(long)]
    wait: bool,
    /// For so many seconds at most.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
}

pub(super) fn run(gateway: &Gateway, act: &Act, json: bool) -> Result<ExitCode> {
    match act {
        Act::Apply { file, expect, how } => {
            let text = read(file)?;
            let expect = expect.map(|expect| format!("&expect={expect}"));
            let path = format!("/fleet/apply?{}{}", words(how), expect.unwrap_or_default());
            let order = gateway.put_with(&path, &text)?;
            until_ended(gateway, order.trim(), how, json)
        }
        Act::Rollback {
            revision,
            accounts,
            how,
        } => {
            let path = format!("/fleet/rollback?to={revision}&accounts={accounts}&{}", words(how));
            let order = gateway.put(&path)?;
            until_ended(gateway, order.trim(), how, json)
        }
        Act::History { revision: None } => {
            show(&(gateway.get("/fleet/history")? + "\n"), json, history)?;
            Ok(ExitCode::SUCCESS)
        }
        Act::History {
            revision: Some(revision),
        } => {
            crate::print(&gateway.put(&format!("/fleet/text?revision={revision}"))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Act::Diff { from, to } => {
            let said = gateway.get(&format!("/fleet/diff?from={from}&to={to}"))?;
            match json {
                true => say!("{}", serde_json::to_string(&said.lines().collect::<Vec<_>>())?)?,
                false => crate::print(&said)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Act::Members => {
            show(&(gateway.get("/fleet/members")? + "\n"), json, members)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(file: &Path) -> Result<String> {
    let text = match file == Path::new("-") {
        true => {
            let mut text = String::new();
            let stdin = std::io::stdin().lock();
            stdin
                .take(fleet::TEXT_MAX as u64 + 1)
                .read_to_string(&mut text)
                .map(|_| text)
        }
        false => fs::read_to_string(file),
    };
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(
        text.len() <= fleet::TEXT_MAX,
        "{} has more than {} bytes",
        file.display(),
        fleet::TEXT_MAX
    );
    Ok(text)
}

/// Why, and the name of whoever asks, as his shell has it.
fn words(how: &How) -> String {
    let of = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    let by = of("SUDO_USER").or_else(|| of("USER")).unwrap_or_default();
    let why = how.why.as_deref().unwrap_or_default();
    format!("why={}&by={}", escaped(why), escaped(&by))
}

/// Waits until the gateway says what became of it: all that it says, and the result.
fn ended(gateway: &Gateway, order: &str) -> Result<(Value, Value)> {
    let began = Instant::now();
    while began.elapsed() <= PATIENCE {
        let status: Value = parsed(&gateway.get(&format!("/fleet/order?id={}", escaped(order)))?)?;
        let result = status["result"].clone();
        if !result.is_null() {
            return Ok((status, result));
        }
        sleep(LOOK_EVERY);
    }
    bail!("the gateway has not said it within {PATIENCE:?}")
}

fn until_ended(gateway: &Gateway, order: &str, how: &How, json: bool) -> Result<ExitCode> {
    let (status, result) = match ended(gateway, order) {
        Ok(ended) => ended,
        // The order has begun, and may have changed something.
        Err(error) => {
            eprintln!("forebay: not known whether it was committed: {error:#}; forebay ctl history tells");
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    let state = result["state"].as_str().unwrap_or_default();
    match json {
        true => say!("{status}")?,
        false => conclude(state, &result)?,
    }
    let code = match state {
        "committed" | "unchanged" => {
            let revision = result["revision"].as_u64().unwrap_or_default();
            return match how.wait {
                true => until_applied(gateway, revision, how, json),
                false => Ok(ExitCode::SUCCESS),
            };
        }
        "conflict" => CONFLICT,
        "refused" => REFUSED,
        "unknown" => UNKNOWN,
        _ => 1,
    };
    Ok(ExitCode::from(code))
}

fn conclude(state: &str, result: &Value) -> Result<()> {
    let why = result["why"].as_str().unwrap_or_default();
    let revision = &result["revision"];
    match state {
        "committed" => say!("revision {revision}"),
        "unchanged" => say!("nothing has changed: revision {revision} has this text"),
        "refused" => {
            say!("refused; nothing has changed")?;
            for by in result["by"].as_array().into_iter().flatten() {
                let word = |name: &str| by[name].as_str().unwrap_or_default().to_owned();
                let why = word("why").replace('\n', "\n    ");
                say!("  {}: {why}", word("gateway"))?;
            }
            Ok(())
        }
        "conflict" => say!("conflict; nothing has changed: {why}"),
        "unknown" => say!(
            "not known whether it was committed as revision {revision}: {why}; forebay ctl history tells"
        ),
        _ => say!("nothing has changed: {why}"),
    }
}

fn until_applied(gateway: &Gateway, revision: u64, how: &How, json: bool) -> Result<ExitCode> {
    let began = Instant::now();
    loop {
        // The revision is committed: a gateway that is replaced meanwhile is asked again.
        let found: Result<Value> = gateway.get("/fleet/members").and_then(|text| parsed(&text));
        let all = found.as_ref().ok().and_then(Value::as_array);
        let all = all.map_or(&[][..], Vec::as_slice);
        let runs = |member: &&Value| member["revision"].as_u64() >= Some(revision);
        let others: Vec<&Value> = all.iter().filter(|member| !runs(member)).collect();
        if others.is_empty() && !all.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        if began.elapsed() > Duration::from_secs(how.timeout) {
            if let Err(error) = &found {
                eprintln!("forebay: not known which gateways run revision {revision}: {error:#}");
            }
            for member in others.iter().filter(|_| !json) {
                let word = |name: &str| member[name].as_str().unwrap_or_default();
                say!(
                    "{} runs revision {}: {}",
                    word("name"),
                    member["revision"],
                    word("problem")
                )?;
            }
            return Ok(ExitCode::from(NOT_APPLIED));
        }
        sleep(LOOK_EVERY);
    }
}

/// The gateway of this name, at the address of its admin server.
pub(super) fn other(gateway: &Gateway, name: &str, token: Option<PathBuf>) -> Result<Gateway> {
    let found: Value = parsed(&gateway.get("/fleet/members")?)?;
    let mut members = found.as_array().into_iter().flatten();
    let member = members.find(|member| member["name"] == name);
    let address =
        member.with_context(|| format!("no gateway {name:?} lives: forebay ctl members names them"))?;
    let address = address["addresses"][0].as_str();
    let address = address.with_context(|| format!("{name} has no admin server"))?;
    Ok(Gateway::Address(address.to_owned(), token_in(token)?))
}

/// A list that each gateway has, of all of them, with their names in it; and whether all were reached.
pub(super) fn of_all(gateway: &Gateway, page: &str) -> Result<(String, bool)> {
    let members: Value = parsed(&gateway.get("/fleet/members")?)?;
    let (mut all, mut are_all_there) = (Vec::new(), true);
    for name in members
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|member| member["name"].as_str())
    {
        // To read takes no token.
        let list: Result<Value> = other(gateway, name, None).and_then(|other| parsed(&other.get(page)?));
        match list {
            Ok(Value::Array(list)) => all.extend(list.into_iter().map(|mut of| {
                of["gateway"] = Value::from(name);
                of
            })),
            Ok(_) => bail!("the answer of {name} makes no sense"),
            Err(error) => {
                eprintln!("forebay: {name}: {error:#}");
                are_all_there = false;
            }
        }
    }
    Ok((serde_json::to_string(&all)?, are_all_there))
}

fn members(text: &str) -> Result<String> {
    let found: Value = parsed(text)?;
    let row = |member: &Value| {
        let word = |name: &str| member[name].as_str().unwrap_or("-").to_owned();
        let addresses = member["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
        // A table has a line for each.
        let problem = word("problem").replace('\n', " ");
        [
            word("name"),
            word("version"),
            word("zone"),
            addresses.join(","),
            member["revision"].to_string(),
            member["parts"]
                .as_u64()
                .map_or_else(|| "-".to_owned(), |parts| format!("1/{parts}")),
            word("vip"),
            problem,
        ]
    };
    let columns = [
        "NAME", "VERSION", "ZONE", "ADDRESS", "REVISION", "LIMITS", "VIP", "PROBLEM",
    ];
    let rows: Vec<_> = found.as_array().into_iter().flatten().map(row).collect();
    Ok(table(columns, rows))
}

fn history(text: &str) -> Result<String> {
    let found: Value = parsed(text)?;
    let row = |about: &Value| {
        let word = |name: &str| about[name].as_str().unwrap_or_default().to_owned();
        [
            about["revision"].to_string(),
            date(about["when"].as_u64().unwrap_or_default()),
            word("who"),
            word("gateway"),
            word("why"),
        ]
    };
    let columns = ["REVISION", "WHEN (UTC)", "WHO", "GATEWAY", "WHY"];
    let rows: Vec<_> = found.as_array().into_iter().flatten().map(row).collect();
    Ok(table(columns, rows))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A gateway that gives this answer once, and is gone then.
    fn answers_once(body: &'static str) -> (Gateway, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            while !lines.next().unwrap().unwrap().is_empty() {}
            drop(listener);
            write!(&stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
        });
        (Gateway::Address(address, None), answering)
    }

    #[test]
    fn a_gateway_that_goes_away_has_not_said_that_nothing_has_changed() {
        for (body, expected) in [
            (r#"{"order":"o1","result":null}"#, UNKNOWN),
            (
                r#"{"order":"o1","result":{"state":"committed","revision":8}}"#,
                NOT_APPLIED,
            ),
        ] {
            let (gateway, answering) = answers_once(body);
            let how = How {
                why: None,
                wait: true,
                timeout: 0,
            };
            let code = until_ended(&gateway, "o1", &how, true).unwrap();
            answering.join().unwrap();
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(expected)));
        }
    }
}
