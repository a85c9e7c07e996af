//! What tables need beside programs, asked before anything starts: a run of hours is not to end with what was
//! wrong from the beginning.

use std::{fs, net::SocketAddr, process::Command};

use anyhow::{Context, bail, ensure};

use super::{
    Plan, benches,
    catalogue::{CHAIN, How, Table},
    text::distinct,
};
use crate::{
    client::SANDBOX,
    overhead::{self, Kind as Contender},
    split::gateway::Setup,
};

/// Of gateways before a group, beside the options that are given.
const KEPT: &str = "pool = { prepared_max = 20 }\n";

/// Those that a table cannot do without are among them.
pub(super) fn contenders(tables: &[&Table], given: &[Contender]) -> anyhow::Result<()> {
    let is_given = |name: &str| given.iter().any(|kind| kind.to_string() == name);
    for table in tables {
        let number = table.number;
        match table.how {
            How::Sysbench(load) => {
                let missing = load.racers.iter().find(|name| **name != CHAIN && !is_given(name));
                if let Some(missing) = missing {
                    bail!("--contenders: {number} needs {missing}; or leave {number} out with --tables");
                }
            }
            How::Idle => ensure!(
                given.iter().any(|kind| *kind != Contender::Direct),
                "--contenders: {number} measures gateways, and none is named; or leave {number} out with --tables"
            ),
            _ => {}
        }
    }
    Ok(())
}

/// There are descriptors for the idle sessions.
pub(super) fn files(tables: &[&Table], quick: bool, contenders: &[Contender]) -> anyhow::Result<()> {
    let Some(table) = tables.iter().find(|table| matches!(table.how, How::Idle)) else {
        return Ok(());
    };
    let files = net::limits::raise_nofile().context("raising the limit of open files")?;
    enough_files(table.number, files, quick, contenders)
}

fn enough_files(number: &str, files: u64, quick: bool, contenders: &[Contender]) -> anyhow::Result<()> {
    let most = benches::idle_sessions(quick).iter().copied().max();
    let needed = overhead::files_for(most.unwrap_or_default(), contenders);
    ensure!(
        files >= needed as u64,
        "{number} needs {needed} open files and the limit is {files}: raise it (ulimit -Hn {needed}), or leave {number} out \
         with --tables"
    );
    Ok(())
}

/// No options are given where a table would leave them out.
pub(super) fn no_options(tables: &[&Table], given: &[String]) -> anyhow::Result<()> {
    let numbers = |takes: bool| {
        let tables = tables.iter().filter(|table| table.how.takes_options() == takes);
        let numbers: Vec<&str> = tables.map(|table| table.number).collect();
        numbers.join(",")
    };
    ensure!(
        given.is_empty() || numbers(false).is_empty(),
        "--forebay-option does not reach {}; choose others with --tables {}",
        numbers(false),
        numbers(true)
    );
    Ok(())
}

/// The gateway takes the options that are given: `forebay check` says so, of every mode that will run.
pub(super) fn options(tables: &[&Table], plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("forebay.toml");
    let place = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let [top, listener, cluster] = overhead::options(&plan.forebay_options);
    for (mode, lines) in modes(tables, &plan.contenders) {
        let setup = Setup {
            program: &plan.program,
            mode,
            account: SANDBOX,
            topology: "replication",
            servers: &[format!("{{ address = \"{}\" }}", place(3))],
            workers: 1,
            options: [top.clone(), listener.clone(), format!("{lines}{cluster}")],
        };
        fs::write(&file, setup.configuration(place(1), place(2)))?;
        let mut command = Command::new(&plan.program);
        command.args(["check", "--config"]).arg(&file);
        let output = command.output().with_context(|| format!("running {command:?}"))?;
        ensure!(
            output.status.success(),
            "{} check, in mode {mode} with these options: {}",
            plan.program.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The modes that the gateway will run in, each with lines of its cluster.
fn modes(tables: &[&Table], contenders: &[Contender]) -> Vec<(Contender, &'static str)> {
    let mut modes = Vec::new();
    for table in tables {
        match table.how {
            How::Sysbench(_) | How::Own(_) | How::Connects | How::Idle => {
                let own = contenders
                    .iter()
                    .filter(|kind| !matches!(kind, Contender::Direct | Contender::Haproxy));
                modes.extend(own.map(|kind| (*kind, "")));
            }
            How::Bridge(_) => modes.push((Contender::Session, "")),
            How::Zones(_) => modes.push((Contender::Split, "")),
            How::Group(_) => modes.extend([(Contender::Split, KEPT), (Contender::Tcp, "")]),
            How::NotHere => {}
            _ => modes.push((Contender::Session, "")),
        }
    }
    distinct(modes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::catalogue::{self, CONTENDERS, Name};

    fn table(number: &str) -> &'static Table {
        let tables = catalogue::of(Name::All);
        tables.into_iter().find(|table| table.number == number).unwrap()
    }

    #[test]
    fn contenders_that_a_table_needs_are_asked_for() {
        let error = |number: &str, given: &[Contender]| contenders(&[table(number)], given).err();
        let without = error("K3", &[Contender::Direct, Contender::Tcp]).unwrap();
        assert!(without.to_string().contains("K3 needs session"), "{without}");
        assert!(error("T7", &[Contender::Direct]).is_some());
        assert!(error("K3", &CONTENDERS).is_none() && error("T7", &CONTENDERS).is_none());
        assert!(error("T1", &[Contender::Direct]).is_none());
        assert!(
            error("P5", &[Contender::Direct]).is_none(),
            "its gateways are its own"
        );
    }

    #[test]
    fn descriptors_that_idle_sessions_need_are_asked_for() {
        let files = |files, quick, given: &[Contender]| enough_files("T7", files, quick, given);
        assert!(
            files(15_200, false, &CONTENDERS).is_ok(),
            "split shares connections"
        );
        let error = files(15_199, false, &CONTENDERS).unwrap_err().to_string();
        assert!(
            error.contains("T7 needs 15200 open files and the limit is 15199"),
            "{error}"
        );
        let session = [Contender::Session];
        assert!(files(10_200, true, &session).is_ok() && files(10_199, true, &session).is_err());
    }

    #[test]
    fn options_that_a_table_would_leave_out_are_refused() {
        let tables = [table("T1"), table("T9"), table("C1")];
        let given = ["watch = false".to_owned()];
        let error = no_options(&tables, &given).unwrap_err().to_string();
        assert!(
            error.contains("does not reach T9,C1; choose others with --tables T1"),
            "{error}"
        );
        assert!(no_options(&tables, &[]).is_ok() && no_options(&tables[..1], &given).is_ok());
    }

    #[test]
    fn options_are_tried_in_every_mode_that_will_run() {
        let names = |numbers: &[&str]| {
            let tables: Vec<&Table> = numbers.iter().map(|number| table(number)).collect();
            let modes = modes(&tables, &CONTENDERS);
            let names: Vec<String> = modes.iter().map(|(mode, _)| mode.to_string()).collect();
            names.join(" ")
        };
        assert_eq!(names(&["T1", "T2", "T7"]), "tcp session split");
        assert_eq!(names(&["P2", "T6"]), "split tcp session");
        assert_eq!(names(&["K2"]), "");
        assert_eq!(names(&["K1", "K8"]), "session split");
    }
}
