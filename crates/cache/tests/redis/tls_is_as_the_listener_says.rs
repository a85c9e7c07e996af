//! Redis clients that speak TLS, as `redis-cli --tls` does: from the first byte.

use std::io::{Read, Write};

use sandbox::{Kind, PASSWORD, USER};

use crate::stage::{Client, Stage};

const FILES: &str = "cert = 'FOLDER/cert.pem', key = 'FOLDER/key.pem', client_ca = 'FOLDER/ca.pem'";

fn stage(mode: &str, client_auth: &str) -> Stage {
    let tls = format!("tls = {{ mode = '{mode}', client_auth = '{client_auth}', {FILES} }}");
    Stage::start(Kind::Mariadb, "", &tls)
}

fn is_served<S: Read + Write>(client: &mut Client<S>, stage: &Stage) {
    let greeted = client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD}"));
    assert!(greeted.starts_with("{server redis "), "{greeted}");
    client.expect(&[("GET words@1", "one"), ("HGETALL items@7:n", "{name nut}")]);
    // More than one record, both ways.
    let (count, key) = (20_000, "GET words@1\r\n");
    client.send(key.repeat(count));
    assert!((0..count).all(|_| client.reply() == "one"));
    // What nobody asked for.
    client.expect(&[("CLIENT TRACKING ON", "OK"), ("GET words@2", "nil")]);
    stage.sql("UPDATE shop.words SET word = 'two' WHERE id = 2");
    assert_eq!(client.reply(), "[invalidate [words@2]]");
    stage.sql("UPDATE shop.words SET word = NULL WHERE id = 2");
}

fn is_refused<S: Read + Write>(mut client: Client<S>) {
    // It may be gone before it is asked.
    let _ = client.0.get_mut().write_all(b"PING\r\n");
    assert!(client.is_closed());
}

#[test]
fn required_tls_takes_nothing_else() {
    let stage = stage("required", "off");
    is_served(&mut stage.tls_client(false), &stage);
    is_served(&mut stage.tls_client(true), &stage);
    is_refused(stage.stranger());
}

#[test]
fn preferred_tls_is_the_clients_choice() {
    let stage = stage("preferred", "optional");
    is_served(&mut stage.tls_client(false), &stage);
    is_served(&mut stage.tls_client(true), &stage);
    is_served(&mut stage.stranger(), &stage);
}

#[test]
fn a_client_must_show_its_certificate_where_that_is_required() {
    let stage = stage("required", "required");
    is_served(&mut stage.tls_client(true), &stage);
    is_refused(stage.tls_client(false));
    is_refused(stage.stranger());
}
