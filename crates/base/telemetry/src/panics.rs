//! Panics, for logs and errors.

use std::any::Any;

/// Returns the message of a panic: the payload of `panic!` is a `&str` or a `String`.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
