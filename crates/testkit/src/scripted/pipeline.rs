//! Commands that do not wait for the answers to those before them.

use mysql_wire::write_packet;

use super::{Client, ClientError, Script, client::compression_of};

impl Client {
    /// Sends all requests, in one write where nothing is compressed, and only then reads and compares the
    /// responses, none of which may be a request for a file or the end of the session.
    pub async fn pipeline(&mut self, requests: &[Vec<u8>]) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        for request in requests {
            if compression_of(self.negotiated()).is_some() {
                // A frame of its own for each: the number 0 begins a command.
                self.send(request).await?;
            } else {
                let before = bytes.len();
                write_packet(&mut bytes, &mut 0, request);
                self.link.record(&bytes[before..]);
            }
        }
        if !bytes.is_empty() {
            self.send_raw(&bytes).await?;
        }
        for request in requests {
            let reply = self.script.reply(request);
            self.link.number_from(1);
            self.expect(&Script::bytes(&reply).unwrap_or_default()).await?;
        }
        Ok(())
    }
}
