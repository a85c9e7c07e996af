//! Packets over 16 MiB, which are several packets on the wire.

use mysql_wire::{Command, PacketHeader};
use testkit::scripted::{Client, Plugin};

use super::exchanges::{request, statement, told};
use super::sweep::Sweep;

const SEVENTEEN_MIB: usize = 17 << 20;

#[test]
fn seventeen_mebibytes_pass_both_ways_over_every_pair_of_links() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.side_by_side = 4;
    sweep
        .combinations
        .retain(|one| one.deprecate_eof && one.session_track && one.names_plugin);
    sweep.play(async |mut client: Client| {
        up(&mut client, SEVENTEEN_MIB).await?;
        told(
            "17 MiB down",
            client.query(&format!("WIDE {SEVENTEEN_MIB}")).await,
        )?;
        end(client).await
    });
}

#[test]
fn a_packet_of_exactly_sixteen_mebibytes_less_one_is_followed_by_an_empty_one() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.side_by_side = 4;
    sweep.combinations.retain(|one| {
        one.client_compression == one.back.compression
            && one.client_tls == one.back.tls
            && one.session_track
            && one.names_plugin
    });
    sweep.play(async |mut client: Client| {
        up(&mut client, PacketHeader::MAX_PAYLOAD).await?;
        // The row begins with the length of its value: four bytes.
        let value = PacketHeader::MAX_PAYLOAD - 4;
        told("a full row", client.query(&format!("WIDE {value}; OK")).await)?;
        let data = request(
            Command::STMT_SEND_LONG_DATA,
            &vec![b'l'; PacketHeader::MAX_PAYLOAD - 1],
        );
        told("full long data", client.exchange(&data).await)?;
        end(client).await
    });
}

/// A statement whose packet has this many bytes.
async fn up(client: &mut Client, len: usize) -> Result<(), String> {
    let mut packet = statement("OK ", client.negotiated());
    packet.resize(len, b'x');
    told("a large statement", client.exchange(&packet).await).map(drop)
}

async fn end(mut client: Client) -> Result<(), String> {
    told("ping", client.exchange(&request(Command::PING, b"")).await)?;
    told("quit", client.exchange(&request(Command::QUIT, b"")).await).map(drop)
}
