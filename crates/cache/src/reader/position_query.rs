//! The question where the primary is, as it is asked again and again over one connection.
//!
//! Its statements are prepared and go out together: that costs a server two thirds of what their texts cost
//! it.

use mysql_wire::{Command, take_lenenc_bytes, write_packet};
use upstream::conversation::QueryError;

use super::primary_connection::{
    AskError, POSITION_MAX, PrimaryConnection, end_of_log, gtid_position, is_strict,
};
use crate::coherence::{Place, Position, SourceId, file_number};
use crate::feed::link::Link;

const NO_POSITION: AskError = AskError::Malformed("no position in its binary log");

/// A question that was prepared.
#[derive(Default)]
pub(super) struct PositionQuery {
    /// Executions of its statements.
    packets: Vec<u8>,
    /// The first row of each of the answers.
    rows: Vec<Vec<u8>>,
    /// Words with which this was the primary, and who it is then.
    known: Option<(Vec<u8>, SourceId)>,
}

/// How a connection asks where the primary is.
#[derive(Default)]
pub(super) enum Asks {
    #[default]
    NotYet,
    Prepared(PositionQuery),
    /// This server does not let itself be asked otherwise.
    Text,
}

impl PrimaryConnection {
    /// Where the primary is now: its GTIDs, or the end of its binary log. After an error the connection is of
    /// no use.
    pub(super) async fn position(&mut self, by_gtid: bool) -> Result<Position, AskError> {
        let at = usize::from(by_gtid);
        match std::mem::take(&mut self.asks[at]) {
            Asks::Prepared(mut query) => {
                let position = query.ask(self, by_gtid).await?;
                self.asks[at] = Asks::Prepared(query);
                Ok(position)
            }
            Asks::Text => {
                let position = self.position_by_text(by_gtid).await?;
                self.asks[at] = Asks::Text;
                Ok(position)
            }
            Asks::NotYet => {
                let before = self.position_by_text(by_gtid).await?;
                let Some(mut query) = self.prepare_query(by_gtid).await? else {
                    self.asks[at] = Asks::Text;
                    return Ok(before);
                };
                // Between two answers in text it must say what they say.
                let answer = query.ask(self, by_gtid).await;
                let after = self.position_by_text(by_gtid).await?;
                let agrees = answer.is_ok_and(|answer| answer.covers(&before) && after.covers(&answer));
                self.asks[at] = match agrees {
                    true => Asks::Prepared(query),
                    false => Asks::Text,
                };
                Ok(after)
            }
        }
    }

    async fn position_by_text(&mut self, by_gtid: bool) -> Result<Position, AskError> {
        if by_gtid {
            let (identity, _) = self.ask(true, &[], POSITION_MAX).await?;
            if !identity.is_strict {
                return Err(AskError::NotStrict);
            }
            return gtid_position(identity.source, &identity.gtids);
        }
        let (identity, answers) = self.ask(false, &[self.status()], POSITION_MAX).await?;
        let rows = answers.first().ok_or(AskError::Malformed("no status"))?;
        end_of_log(identity.source, rows)
    }

    /// `None` where the server does not prepare it, or has too many statements.
    async fn prepare_query(&mut self, by_gtid: bool) -> Result<Option<PositionQuery>, AskError> {
        let identity = self.identity(by_gtid).to_owned();
        let status = (!by_gtid).then_some(self.status());
        let mut query = PositionQuery::default();
        for sql in [Some(identity.as_str()), status].into_iter().flatten() {
            let prepared = match self.link.prepare(sql).await {
                Err(QueryError::Refused(_)) => return Ok(None),
                other => other?,
            };
            write_packet(&mut query.packets, &mut 0, &execution(prepared.statement_id));
            query.rows.push(Vec::new());
        }
        Ok(Some(query))
    }
}

impl PositionQuery {
    async fn ask(&mut self, connection: &mut PrimaryConnection, by_gtid: bool) -> Result<Position, AskError> {
        let sent = connection.link.write(&self.packets).await;
        sent.map_err(QueryError::from)?;
        let mut refused = None;
        for row in &mut self.rows {
            match first_row(&mut connection.link, row).await {
                Err(error @ QueryError::Refused(_)) => refused = refused.or(Some(error)),
                other => other?,
            }
        }
        match refused {
            Some(error) => Err(error.into()),
            None => self.position(connection, by_gtid),
        }
    }

    fn position(&mut self, connection: &PrimaryConnection, by_gtid: bool) -> Result<Position, AskError> {
        let mut values = Values::of(self.rows.first())?;
        let words = values.text()?;
        let source = match &self.known {
            Some((known, source)) if known == words => *source,
            _ => {
                let source = connection.source(words)?;
                if by_gtid && !is_strict(words) {
                    return Err(AskError::NotStrict);
                }
                self.known = Some((words.to_vec(), source));
                source
            }
        };
        if by_gtid {
            return gtid_position(source, values.text()?);
        }
        let mut values = Values::of(self.rows.get(1))?;
        let name = std::str::from_utf8(values.text()?).map_err(|_| NO_POSITION)?;
        let place = Place::File {
            file: file_number(name).ok_or(NO_POSITION)?,
            offset: values.number()?,
        };
        Ok(Position { source, place })
    }
}

/// COM_STMT_EXECUTE of a statement without parameters: its number, no cursor, once.
fn execution(statement: u32) -> Vec<u8> {
    let [a, b, c, d] = statement.to_le_bytes();
    vec![Command::STMT_EXECUTE.0, a, b, c, d, 0, 1, 0, 0, 0]
}

/// Reads a result, and keeps its first row.
async fn first_row(link: &mut Link, kept: &mut Vec<u8>) -> Result<(), QueryError> {
    kept.clear();
    if link.result_head().await? {
        while let Some(row) = link.row().await? {
            if kept.is_empty() {
                kept.extend_from_slice(row);
            }
        }
    }
    Ok(())
}

/// The values of a binary row of no more than six columns, of which those that are read are not NULL.
struct Values<'r>(&'r [u8]);

impl<'r> Values<'r> {
    fn of(row: Option<&'r Vec<u8>>) -> Result<Self, AskError> {
        match row.map(Vec::as_slice) {
            Some([0, nulls, values @ ..]) if nulls & 0b1100 == 0 => Ok(Self(values)),
            _ => Err(NO_POSITION),
        }
    }

    fn text(&mut self) -> Result<&'r [u8], AskError> {
        take_lenenc_bytes(&mut self.0).ok_or(NO_POSITION)
    }

    /// A value of type BIGINT.
    fn number(&mut self) -> Result<u64, AskError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(NO_POSITION)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_binary_row() {
        let row = b"\0\0\x03abc\xfc\x01\0x\x05\x01\0\0\0\0\0\0rest".to_vec();
        let mut values = Values::of(Some(&row)).unwrap();
        assert_eq!(values.text().unwrap(), b"abc");
        assert_eq!(values.text().unwrap(), b"x");
        assert_eq!(values.number().unwrap(), 0x105);
        assert!(values.number().is_err(), "cut");
        assert!(values.text().is_err(), "longer than what is left");
    }

    #[test]
    fn what_is_no_row_with_values_is_refused() {
        for row in [&b""[..], b"\0", b"\xfe\0\0", b"\0\x04\x01a", b"\0\x08\x01a"] {
            assert!(Values::of(Some(&row.to_vec())).is_err());
        }
        assert!(Values::of(None).is_err());
    }
}
