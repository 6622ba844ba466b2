//! Results as a terminal, a page, a document and pictures show them.

pub(crate) mod beside;
pub mod html;
pub mod markdown;
pub mod plot;
pub mod table;
