//! What is written is read again as it was, and arbitrary bytes are an error at worst.

use mysql_wire::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 0..40)
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    any::<u64>().prop_map(|bits| {
        let set = Capabilities(bits) | Capabilities::PROTOCOL_41;
        // With LONG_PASSWORD there is no place for the extended half.
        if set.contains(Capabilities::LONG_PASSWORD) {
            set.without(Capabilities::MARIADB_ALL)
        } else {
            set
        }
    })
}

fn written(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

prop_compose! {
    fn greeting()(
        server_version in text(), connection_id: u32, nonce: [u8; 20], capabilities in capabilities(),
        charset: u8, status: u16, plugin in text(),
    ) -> Greeting {
        let auth_plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) { plugin } else { Vec::new() };
        let status = StatusFlags(status);
        Greeting { server_version, connection_id, nonce, capabilities, charset, status, auth_plugin }
    }
}

prop_compose! {
    fn login()(
        capabilities in capabilities(), max_packet_size: u32, charset: u8, user in text(),
        response in vec(1..=255_u8, 0..600), database in text(), plugin in text(),
        attributes in vec(any::<u8>(), 0..400), level: u8,
    ) -> Login {
        let has = |flag| capabilities.contains(flag);
        let long = has(Capabilities::PLUGIN_AUTH_LENENC);
        let auth_response = if long { response } else { response[..response.len().min(250)].to_vec() };
        Login {
            capabilities,
            max_packet_size,
            charset,
            user,
            auth_response,
            database: has(Capabilities::CONNECT_WITH_DB).then_some(database),
            auth_plugin: has(Capabilities::PLUGIN_AUTH).then_some(plugin),
            attributes: has(Capabilities::CONNECT_ATTRS).then_some(attributes),
            zstd_level: has(Capabilities::ZSTD_COMPRESSION).then_some(level),
        }
    }
}

proptest! {
    #[test]
    fn greetings(greeting in greeting()) {
        let bytes = written(|out| greeting.encode(out));
        prop_assert_eq!(Greeting::decode(&bytes), Ok(greeting));
    }

    #[test]
    fn logins(login in login()) {
        let bytes = written(|out| login.encode(out));
        prop_assert_eq!(Login::decode(&bytes), Ok(login));
        for cut in 0..bytes.len().min(64) {
            drop(Login::decode(&bytes[..cut]));
        }
    }

    #[test]
    fn ssl_requests(capabilities in capabilities(), max_packet_size: u32, charset: u8) {
        let request = SslRequest { capabilities: capabilities | Capabilities::SSL, max_packet_size, charset };
        let bytes = written(|out| request.encode(out));
        prop_assert!(SslRequest::is_ssl_request(&bytes));
        prop_assert_eq!(SslRequest::decode(&bytes), Ok(request));
    }

    #[test]
    fn auth_packets(plugin in text(), data in vec(any::<u8>(), 0..60)) {
        let switch = AuthSwitch { plugin: plugin.clone(), data: data.clone() };
        prop_assert_eq!(AuthSwitch::decode(&written(|out| switch.encode(out))), Ok(switch));
        let next = AuthNextFactor { plugin, data: data.clone() };
        prop_assert_eq!(AuthNextFactor::decode(&written(|out| next.encode(out))), Ok(next));
        let more = AuthMoreData { data };
        prop_assert_eq!(AuthMoreData::decode(&written(|out| more.encode(out))), Ok(more));
    }

    #[test]
    fn ok_packets(
        affected_rows: u64, last_insert_id: u64, status: u16, warnings: u16, info in text(), state in text(),
        capabilities in capabilities(), as_eof: bool,
    ) {
        let mut status = StatusFlags(status);
        let mut session_state = state;
        if !capabilities.contains(Capabilities::SESSION_TRACK) {
            status.remove(StatusFlags::SESSION_STATE_CHANGED);
        }
        if !status.contains(StatusFlags::SESSION_STATE_CHANGED) {
            session_state.clear();
        }
        let ok = OkPacket { affected_rows, last_insert_id, status, warnings, info, session_state };
        let bytes = written(|out| match as_eof {
            true => ok.encode_as_eof(out, capabilities),
            false => ok.encode(out, capabilities),
        });
        prop_assert_eq!(OkPacket::decode(&bytes, capabilities), Ok(ok));
    }

    #[test]
    fn err_and_eof_packets(code: u16, sql_state in "[0-9A-Z]{5}", message in "[a-z ]{0,30}", warnings: u16, status: u16) {
        let sql_state = sql_state.as_bytes().try_into().unwrap();
        let err = ErrPacket { code, sql_state, message: message.into_bytes() };
        let caps = Capabilities::PROTOCOL_41;
        prop_assert_eq!(ErrPacket::decode(&written(|out| err.encode(out, caps)), caps), Ok(err.clone()));
        let stateless = ErrPacket { sql_state: ErrPacket::GENERAL_STATE, ..err };
        let none = Capabilities::default();
        prop_assert_eq!(ErrPacket::decode(&written(|out| stateless.encode(out, none)), none), Ok(stateless));
        let eof = EofPacket { warnings, status: StatusFlags(status) };
        prop_assert_eq!(EofPacket::decode(&written(|out| eof.encode(out))), Ok(eof));
    }

    #[test]
    fn change_users(
        user in text(), auth_response in vec(1..=255_u8, 0..255), database in text(), charset in option::of(any::<u16>()),
        plugin in option::of(text()), attributes in option::of(vec(any::<u8>(), 0..300)), secure: bool,
    ) {
        let mut capabilities = Capabilities::PLUGIN_AUTH | Capabilities::CONNECT_ATTRS;
        if secure {
            capabilities.insert(Capabilities::SECURE_CONNECTION);
        }
        let auth_plugin = charset.and(plugin);
        let attributes = auth_plugin.as_ref().and(attributes);
        let change = ChangeUser { user, auth_response, database, charset, auth_plugin, attributes };
        let bytes = written(|out| change.encode(out, capabilities));
        prop_assert_eq!(ChangeUser::decode(&bytes, capabilities), Ok(change));
    }

    #[test]
    fn arbitrary_bytes(data in vec(any::<u8>(), 0..300)) {
        fuzzing::handshake(&data);
        fuzzing::response(&data);
        fuzzing::compression(&data);
    }
}

/// The payload behind the first byte of an input of the fuzz target `handshake`.
fn recorded(name: &str) -> Vec<u8> {
    let path = format!(
        "{}/../../fuzz/corpus/handshake/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read(path).unwrap()[1..].to_vec()
}

#[test]
fn greetings_of_real_servers_are_written_as_they_came() {
    for (name, version, plugin, mysql) in [
        ("greeting-mysql", "9.7.", "caching_sha2_password", true),
        ("greeting-mariadb", "5.5.5-10.11.", "mysql_native_password", false),
    ] {
        let payload = recorded(name);
        let greeting = Greeting::decode(&payload).unwrap();
        assert!(
            greeting.server_version.starts_with(version.as_bytes()),
            "{greeting:?}"
        );
        assert_eq!(greeting.auth_plugin, plugin.as_bytes());
        assert_eq!(greeting.capabilities.contains(Capabilities::LONG_PASSWORD), mysql);
        assert_eq!(
            greeting
                .capabilities
                .contains(Capabilities::MARIADB_CACHE_METADATA),
            !mysql
        );
        assert!(greeting.nonce.iter().all(|&byte| byte != 0));
        assert_eq!(written(|out| greeting.encode(out)), payload);
    }
}

#[test]
fn a_login_as_libraries_send_it() {
    let login = Login::decode(&recorded("login")).unwrap();
    assert_eq!(
        (&login.user[..], login.database.as_deref()),
        (&b"root"[..], Some(&b"test"[..]))
    );
    assert_eq!(login.auth_plugin.as_deref(), Some(&b"caching_sha2_password"[..]));
    assert_eq!(
        (login.attributes.map(|list| list.len()), login.zstd_level),
        (Some(16), Some(7))
    );
    assert!(!SslRequest::is_ssl_request(&recorded("login")));
    assert!(SslRequest::is_ssl_request(&recorded("ssl-request")));
    let extended = Login::decode(&recorded("login-mariadb")).unwrap().capabilities;
    assert!(extended.contains(Capabilities::MARIADB_CACHE_METADATA | Capabilities::MARIADB_PROGRESS));
}

#[test]
fn secrets_are_not_printed() {
    let login = Login::decode(&recorded("login")).unwrap();
    assert!(format!("{login:?}").contains("auth_response: <20 bytes>"));
    let change = ChangeUser::decode(&recorded("change-user"), login.capabilities).unwrap();
    assert!(format!("{change:?}").contains("auth_response: <20 bytes>"));
}
