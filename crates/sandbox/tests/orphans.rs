//! Nothing runs on when the process that started a sandbox is killed.
//!
//! Without the test harness: the program starts itself once more to have a process that it can kill.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sandbox::{Kind, Sandbox, Spec};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("hold") => hold(&arguments[2]),
        Some("--list") => println!("orphans: test"),
        _ => {
            nothing_runs_on_when_the_process_that_started_it_is_killed();
            println!("test nothing_runs_on_when_the_process_that_started_it_is_killed ... ok");
        }
    }
}

/// Starts a server in a folder below `parent`, prints its process id and waits to be killed.
fn hold(parent: &str) {
    let mut spec = Spec::new(Kind::Mariadb);
    spec.dir = Some(parent.into());
    let sandbox = Sandbox::start(spec).unwrap();
    println!("{}", sandbox.primary().pid().unwrap());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn nothing_runs_on_when_the_process_that_started_it_is_killed() {
    let parent = tempfile::tempdir().unwrap();
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .arg("hold")
        .arg(parent.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let server = format!("/proc/{}", line.trim());
    assert!(Path::new(&server).exists());

    starter.kill().unwrap();
    starter.wait().unwrap();
    let begin = Instant::now();
    while Path::new(&server).exists() || std::fs::read_dir(parent.path()).unwrap().count() > 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the server or its files are still there"
        );
        sleep(Duration::from_millis(10));
    }
}
