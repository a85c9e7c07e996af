//! Accounts that are known by a hash that only the password itself can be checked against.

use super::*;

/// `secret`, as MySQL 9.7.4 has stored it and as MariaDB has it for `ed25519`.
const SHA2_HASH: &str = "0x24412430304124646E2D42527C72726465020C16731B64280148744A5833634B43\
    6E3766727A616249653132375955487262647839755275454F7431383351676B734245732E";
const ED25519_KEY: &str = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";

/// `sha2` and `ed25519` have a hash; `app` has a password.
fn accounts() -> Vec<config::User> {
    let mut sha2 = config::User::new("sha2", None);
    sha2.sha2_hash = Some(Secret::new(SHA2_HASH));
    let mut ed25519 = config::User::new("ed25519", None);
    ed25519.ed25519_key = Some(Secret::new(ED25519_KEY));
    let app = config::User::new("app", Some(Secret::new("secret")));
    vec![app, sha2, ed25519]
}

/// The way by which a client has got in, or that it was refused.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Fast,
    InFull,
    Refused,
}

/// A login with `caching_sha2_password` over a plain link.
async fn log_in(stage: &Stage, user: &str, password: &str) -> Way {
    let client = async {
        let mut client = ByHand::greeted(stage).await;
        let nonce = client.nonce;
        let answer = auth::caching_sha2_password(&nonce, password.as_bytes());
        client.log_in(user, "caching_sha2_password", answer).await;
        let mut way = Way::Refused;
        loop {
            match client.read().await[..] {
                // The OK behind this packet may have come with it.
                [1, 3] => return (Way::Fast, client),
                [1, 4] => {
                    client.write(&[2]).await;
                    let key = AuthMoreData::decode(&client.read().await).unwrap().data;
                    let given = [password.as_bytes(), &[0]].concat();
                    let encrypted = rsa_key::encrypt_password(&key, &given, &nonce).unwrap();
                    client.write(&encrypted).await;
                    way = Way::InFull;
                }
                [0xfe, ..] => client.write(&[]).await,
                [0, ..] => return (way, client),
                _ => return (Way::Refused, client),
            }
        }
    };
    let ((way, _client), result) = tokio::join!(client, stage.take_one());
    assert_eq!(way != Way::Refused, result.is_ok(), "{user} {password}");
    if let Ok(authenticated) = result {
        let credential = authenticated.credential;
        assert_eq!(credential.account, 0);
        let known = CredentialSecret::Password(Secret::new(password));
        assert_eq!(credential.secret, known, "{user}");
    }
    way
}

#[tokio::test]
async fn a_password_is_sent_in_full_once_and_then_known() {
    let stage = Stage::new(&accounts()).await;
    assert_eq!(log_in(&stage, "app", "secret").await, Way::Fast);
    for user in ["sha2", "ed25519"] {
        assert_eq!(log_in(&stage, user, "Secret").await, Way::Refused);
        assert_eq!(log_in(&stage, user, "").await, Way::Refused);
        assert_eq!(log_in(&stage, user, "secret").await, Way::InFull);
        assert_eq!(log_in(&stage, user, "Secret").await, Way::Refused);
        assert_eq!(log_in(&stage, user, "").await, Way::Refused);
        assert_eq!(log_in(&stage, user, "secret").await, Way::Fast);
        // A reload keeps the password, too, unless passwords must not be kept.
        stage.accounts.replace(&accounts(), true);
        assert_eq!(log_in(&stage, user, "secret").await, Way::Fast);
        stage.accounts.replace(&accounts(), false);
        assert_eq!(log_in(&stage, user, "secret").await, Way::InFull);
    }
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_sent_each_time() {
    let mut stage = Stage::new(&accounts()).await;
    let mut config = config::Cluster::new("main", Vec::new());
    config.accounts.keep_passwords = false;
    stage.listener.cluster = Cluster::new(config).unwrap();
    for _ in 0..2 {
        assert_eq!(log_in(&stage, "sha2", "secret").await, Way::InFull);
    }
    // A password that another cluster keeps is not used here, and stays known there.
    let keeps = Cluster::new(config::Cluster::new("other", Vec::new())).unwrap();
    let own = std::mem::replace(&mut stage.listener.cluster, keeps);
    for user in ["sha2", "ed25519"] {
        assert_eq!(log_in(&stage, user, "secret").await, Way::InFull);
        assert_eq!(log_in(&stage, user, "secret").await, Way::Fast);
    }
    let keeps = std::mem::replace(&mut stage.listener.cluster, own);
    for user in ["sha2", "ed25519"] {
        assert_eq!(log_in(&stage, user, "Secret").await, Way::Refused);
        assert_eq!(log_in(&stage, user, "secret").await, Way::InFull);
        assert_eq!(log_in(&stage, user, "secret").await, Way::InFull);
    }
    stage.listener.cluster = keeps;
    assert_eq!(log_in(&stage, "sha2", "secret").await, Way::Fast);
}

#[tokio::test]
async fn over_tls_no_key_is_needed() {
    let stage = Stage::new(&accounts()).await;
    for (user, password) in [
        ("sha2", "secret"),
        ("ed25519", "secret"),
        ("ed25519", "wrong"),
        ("nobody", "secret"),
    ] {
        let identity = Identity {
            user: user.into(),
            password: password.into(),
            plugin: "caching_sha2_password",
            tls: Some(stage.certificates.client_config(false).unwrap()),
            ..Identity::default()
        };
        let (client, server) = stage.log_in(&identity).await;
        let right = user != "nobody" && password == "secret";
        assert_eq!(
            (client.is_ok(), server.is_ok()),
            (right, right),
            "{user} {password}"
        );
    }
}

/// The packets that a client with a wrong password gets to see, without nonces and its own name.
async fn failure(stage: &Stage, user: &str, plugin: &str) -> Vec<Vec<u8>> {
    let client = async {
        let mut client = ByHand::greeted(stage).await;
        client.log_in(user, plugin, vec![7; 32]).await;
        let mut seen = Vec::new();
        loop {
            let packet = client.read().await;
            match packet[0] {
                0xfe => {
                    client.write(&[7; 32]).await;
                    seen.push(AuthSwitch::decode(&packet).unwrap().plugin);
                }
                1 => {
                    let answer = if packet == [1, 4] { vec![2] } else { vec![9; 256] };
                    client.write(&answer).await;
                    seen.push(packet);
                }
                _ => {
                    let words = String::from_utf8_lossy(&packet).replace(user, "USER");
                    seen.push(words.into_bytes());
                    return seen;
                }
            }
        }
    };
    let (seen, result) = tokio::join!(client, stage.take_one());
    assert!(matches!(result, Err(SessionError::AccessDenied { .. })));
    seen
}

#[tokio::test]
async fn nobody_is_told_from_them() {
    let mut stage = Stage::new(&accounts()).await;
    for (greeted_with, plugin) in [
        ("caching_sha2_password", "caching_sha2_password"),
        ("mysql_native_password", "caching_sha2_password"),
        ("caching_sha2_password", "client_ed25519"),
        ("mysql_native_password", "dialog"),
        ("mysql_native_password", "mysql_native_password"),
    ] {
        stage.greeted_with = greeted_with;
        let known = failure(&stage, "sha2", plugin).await;
        let asked = known[0] == b"caching_sha2_password" || known[0] == [1, 4];
        assert!(asked, "{greeted_with} {plugin}: {known:?}");
        let mut same = 0;
        for index in 0..20 {
            same += usize::from(failure(&stage, &format!("nobody{index}"), plugin).await == known);
        }
        assert!(same > 3, "{plugin}: {same} of 20");
        // With this plugin clients of accounts with a password are asked for it as well.
        if plugin == "caching_sha2_password" {
            assert_eq!(failure(&stage, "app", plugin).await, known);
            assert_eq!(same, 20);
        }
    }
}

/// The question for its password tells a client that its fast answer was wrong, as a refusal does.
#[tokio::test]
async fn a_client_that_has_failed_often_is_asked_for_its_password_late() {
    let mut stage = Stage::new(&accounts()).await;
    stage.listener.config.login_delay_max = Duration::from_millis(400);
    let host = Peer::from(SocketAddr::from(([127, 0, 0, 1], 1)));
    let begin = async || stage.accounts.guesses.begin(asking(&host, &stage)).await.unwrap();
    begin().await.succeeded();
    for _ in 0..10 {
        begin().await.failed();
    }
    let client = async {
        let mut client = ByHand::greeted(&stage).await;
        let begun = std::time::Instant::now();
        client.log_in("app", "caching_sha2_password", vec![1; 32]).await;
        let told = client.read().await;
        let after = begun.elapsed();
        client.write(b"wrong\0").await;
        (told, after, client)
    };
    let ((told, after, _client), result) = tokio::join!(client, stage.take_one());
    assert!(result.is_err());
    assert_eq!(told, [1, 4]);
    assert!(after >= Duration::from_millis(400), "{after:?}");
}
