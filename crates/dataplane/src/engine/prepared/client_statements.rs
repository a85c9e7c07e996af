//! Facts of a client's prepared statements that `session::Statements` does not know.

use std::rc::{Rc, Weak};

use net::buffer;

/// Facts of the client's prepared statements that `session::Statements` does not know.
#[derive(Default)]
pub(crate) struct ClientStatements {
    /// Statements that were prepared since the last one was executed, with its figures in the place of what
    /// asks for them, and are right until the next one is.
    pub(crate) with_figures: Option<Box<WithFigures>>,
    /// Memory of the long texts that the client has prepared, where there are some.
    pub(crate) long_texts: Option<Box<LongTexts>>,
    pub(crate) last_prepared: u32,
}

/// The client's ids of statements, and their texts with figures. Boxed where there are some: few sessions
/// prepare such statements.
#[derive(Default)]
pub(crate) struct WithFigures(pub(crate) Vec<(u32, Rc<[u8]>)>);

/// The memory of texts of more than a buffer, by the owners of their statements.
#[derive(Default)]
pub(crate) struct LongTexts(pub(super) Vec<(Weak<()>, buffer::Reserved)>);

impl ClientStatements {
    /// Forgets the text with figures of the last statement that the client's statement of this id has.
    pub(crate) fn forget_figures(&mut self, id: u32) {
        if let Some(with_figures) = &mut self.with_figures {
            with_figures.0.retain(|of| of.0 != id);
        }
    }

    /// Gives back the memory of long texts whose statements are there no more, however they have ended.
    pub(crate) fn forget_long_texts(&mut self) {
        if let Some(texts) = &mut self.long_texts {
            texts.0.retain(|(owner, _)| owner.strong_count() > 0);
            if texts.0.is_empty() {
                self.long_texts = None;
            }
        }
    }
}
