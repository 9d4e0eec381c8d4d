//! The configuration file.

use kubevitals_cli::check_config_text;

/// Tokens of configuration files.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"log-level",
    b": ",
    b":",
    b"\n",
    b"  ",
    b"- ",
    b"[",
    b"]",
    b"{",
    b"}",
    b"#",
    b"&a ",
    b"*a",
    b"<<: ",
    b"|\n",
    b"!!binary ",
    b"\"",
    b"'",
    b"---\n",
    b"...\n",
    b"15s",
    b"true",
    b"null",
    b"~",
    b"0x1F",
    b"1e400",
    b"\t",
];

/// Parses any configuration file; it never panics.
pub fn config_file(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = check_config_text(text);
    }
}
