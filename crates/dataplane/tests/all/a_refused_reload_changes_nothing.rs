//! A mistake in one part of a configuration leaves all parts as they were.

use config::Config;

use crate::gateway::RunningGateway;

#[test]
fn files_of_one_cluster_that_cannot_be_used_change_no_other() {
    let text = |servers: &str, pd: &str| {
        format!(
            "workers = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\ncluster = \"a\"\n[cluster.a]\nservers = [{servers}]\n\
             [cluster.b]\nservers = [\"127.0.0.1:1\"]\ntopology = \"tidb\"\n{pd}"
        )
    };
    let running = RunningGateway::start(&text("\"127.0.0.1:1\"", ""), None);
    let pd =
        "pd = { addresses = [\"127.0.0.1:2\"], tls = { mode = \"required\", ca = \"/no/such/ca.pem\" } }\n";
    let wanted = Config::parse(&text("\"127.0.0.1:1\", \"127.0.0.1:2\"", pd), "test.toml").unwrap();
    let error = running.gateway().reload(&wanted).unwrap_err().to_string();
    assert!(error.starts_with("cluster b: pd: "), "{error}");
    assert_eq!(running.gateway().clusters()[0].servers().len(), 1);
}
