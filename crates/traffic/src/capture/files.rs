//! Files that clients send for `LOAD DATA LOCAL`, where a capture is to have them.

use dataplane::finished::Copied;
use mysql_wire::{Command, PacketHeader};

use crate::record::{CommandRecord, FILE_COUNT_MAX, Flags};
use crate::secrets::values_may_be_written;

/// Takes over the files that were sent for a command, as far as they may be written. Its text has been.
pub(super) fn take_over(copied: &Copied, record: &mut CommandRecord) {
    if !copied.has_files() {
        return;
    }
    // A text that may not be written is empty here, and executions are not sent again with files.
    let is_text = Command(record.command) == Command::QUERY && !record.body.is_empty();
    let files = copied.files().filter(|_| is_text).and_then(contents);
    match files.filter(|files| files.iter().all(|file| values_may_be_written(file))) {
        Some(files) => record.files = files,
        None => record.flags.set(Flags::FILES_CUT),
    }
}

/// Contents of files, by their packets. Each ends with an empty one; `None` where the last one does not, or
/// there are more than a record has: a server may ask for as many as it likes.
fn contents(packets: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut files, mut file) = (Vec::new(), Vec::new());
    let (mut rest, mut is_continued) = (packets, false);
    while let Some(header) = PacketHeader::parse(rest) {
        let end = PacketHeader::LEN + header.payload_len;
        let payload = rest.get(PacketHeader::LEN..end)?;
        // An empty packet behind one of 16 MiB is the end of that.
        match payload.is_empty() && !is_continued {
            true if files.len() == FILE_COUNT_MAX => return None,
            true => files.push(std::mem::take(&mut file)),
            false => file.extend_from_slice(payload),
        }
        is_continued = header.is_continued();
        rest = &rest[end..];
    }
    (rest.is_empty() && file.is_empty()).then_some(files)
}

#[cfg(test)]
mod tests {
    use mysql_wire::write_packet;

    use super::*;

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut packets, mut sequence) = (Vec::new(), 2);
        for payload in payloads {
            write_packet(&mut packets, &mut sequence, payload);
        }
        packets
    }

    fn taken_over(text: &str, packets: Option<&[u8]>) -> (Vec<Vec<u8>>, bool) {
        let mut record = CommandRecord {
            command: Command::QUERY.0,
            body: text.into(),
            ..CommandRecord::default()
        };
        take_over(&Copied::whole(&[], &[]).with_files(packets), &mut record);
        let is_cut = record.flags.has(Flags::FILES_CUT);
        (record.files, is_cut)
    }

    const LOAD: &str = "LOAD DATA LOCAL INFILE 'f' INTO TABLE t";

    #[test]
    fn each_file_ends_with_its_empty_packet() {
        let of = |payloads: &[&[u8]]| taken_over(LOAD, Some(&packets(payloads)));
        assert_eq!(of(&[]), (vec![], false), "none was asked for");
        assert_eq!(of(&[b""]), (vec![b"".to_vec()], false));
        let two = vec![b"1\n2\n".to_vec(), b"3\n".to_vec()];
        assert_eq!(of(&[b"1\n", b"2\n", b"", b"3\n", b""]), (two, false));
        let long = vec![b'x'; PacketHeader::MAX_PAYLOAD];
        assert_eq!(of(&[&long, b"y", b""]), (vec![[&long[..], b"y"].concat()], false));
    }

    #[test]
    fn nothing_is_written_of_what_is_cut() {
        let whole = packets(&[b"1\n", b"", b"2\n", b""]);
        assert_eq!(taken_over(LOAD, None), (vec![], true), "it is too long");
        let second = packets(&[b"1\n", b""]).len();
        for len in (1..whole.len()).filter(|len| *len != second) {
            assert_eq!(taken_over(LOAD, Some(&whole[..len])), (vec![], true), "{len}");
        }
    }

    /// A record with more could not be read, nor what comes behind it.
    #[test]
    fn nothing_is_written_of_more_files_than_a_record_has() {
        let of = |count: usize| taken_over(LOAD, Some(&packets(&[b""]).repeat(count)));
        assert_eq!(of(FILE_COUNT_MAX), (vec![vec![]; FILE_COUNT_MAX], false));
        assert_eq!(of(FILE_COUNT_MAX + 1), (vec![], true));
    }

    #[test]
    fn nothing_is_written_of_what_may_have_a_secret() {
        let statements = packets(&[b"1\tALTER USER a IDENTI", b"FIED BY 'Geheim'\n", b""]);
        assert_eq!(taken_over(LOAD, Some(&statements)), (vec![], true));
        let harmless = packets(&[b"1\n", b""]);
        assert_eq!(taken_over("", Some(&harmless)), (vec![], true), "as its text");
    }
}
