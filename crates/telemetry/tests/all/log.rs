//! The log of a process can be started once; the rest is tested beside its code. What is started here holds
//! for every test of the process: no other one may start a log, and none of them writes into one.

use config::Config;

const CONFIG: &str = "\
[[listener]]
bind = \"127.0.0.1:6033\"
mode = \"session\"
cluster = \"main\"
[cluster.main]
servers = [\"127.0.0.1:3306\"]
[log]
level = \"warn\"
format = \"json\"
";

#[test]
fn a_process_has_one_log() {
    let config = Config::parse(CONFIG, "test").unwrap_or_else(|errors| panic!("{errors}"));
    let log = telemetry::log::init(&config.log).unwrap();
    assert_eq!(log.level(), "warn");
    let error = telemetry::log::init(&config.log).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log of this process has been started already"
    );
    assert!(log.flush(std::time::Duration::from_secs(10)));
}
