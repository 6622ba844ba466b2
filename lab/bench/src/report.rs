//! Results as tables, pages, Markdown sections and plots.

pub(crate) mod beside;
pub mod html;
pub mod markdown;
pub mod plot;
pub mod table;
