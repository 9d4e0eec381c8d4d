//! Selectors, as lists and watches of the API take them.

pub(crate) mod fields;
pub(crate) mod labels;
