use std::fmt::Write as _;

use e2e::{Setup, client, servers};

#[tokio::test]
async fn and_goes_on_when_the_client_has_none() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let file = gateway.folder().join("rows.txt");
    let mut text = String::new();
    for id in 0..200_000 {
        let _ = writeln!(text, "{id}\tthis is row {id}");
    }
    std::fs::write(&file, text).unwrap();
    let run = |statements: &str| client::command_line(gateway.port(), &["--local-infile=1"], statements);
    run("CREATE TABLE loaded (id INT PRIMARY KEY, label VARCHAR(60)) ENGINE=InnoDB").unwrap();
    let load = format!(
        "LOAD DATA LOCAL INFILE '{}' INTO TABLE loaded; SELECT COUNT(*) FROM loaded",
        file.display()
    );
    assert_eq!(run(&load).unwrap(), "200000\n");

    let error = run("LOAD DATA LOCAL INFILE '/no/such/file' INTO TABLE loaded").unwrap_err();
    assert!(error.contains("/no/such/file"), "{error}");
}
