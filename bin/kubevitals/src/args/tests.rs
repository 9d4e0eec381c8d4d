use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory};

use super::*;
use crate::generated;

#[test]
fn the_definition_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn the_reference_has_every_flag() {
    let mut command = Args::command();
    command.build();
    let mut text = String::new();
    write_flags(&mut text, "All commands", command.get_arguments());
    let global: Vec<String> = command.get_arguments().map(id).collect();
    for command in command
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        let own = |flag: &&Arg| !global.contains(&id(flag));
        let title = format!("`kubevitals {}`", command.get_name());
        let mut about = format!("{}.", command.get_about().unwrap());
        if command.get_name() == RUN {
            about += " It has the flags of its roles, and `--roles`, which names them.";
        }
        write!(text, "\n## {title}\n\n{}\n", wrapped(&about)).unwrap();
        if command.get_name() != RUN {
            let flags: Vec<&Arg> = command.get_arguments().filter(own).collect();
            write_by_heading(&mut text, &flags);
        }
    }
    generated::check("docs/reference/flags.md", "flags", &format!("\n{text}\n"));
}

/// Writes a table for each heading of `--help`, in its order.
fn write_by_heading(text: &mut String, flags: &[&Arg]) {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for flag in flags {
        if !headings.contains(&flag.get_help_heading()) {
            headings.push(flag.get_help_heading());
        }
    }
    for heading in headings {
        let of_heading = flags
            .iter()
            .filter(|flag| flag.get_help_heading() == heading);
        write_flags(text, heading.unwrap_or("Flags"), of_heading.copied());
    }
}

/// Writes a table of flags, unless all of them are hidden.
fn write_flags<'a>(text: &mut String, title: &str, flags: impl Iterator<Item = &'a Arg>) {
    let flags: Vec<&Arg> = flags
        .filter(|flag| !flag.is_hide_set() && is_documented(flag))
        .collect();
    if flags.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    write!(text, "**{title}**\n\n| flag | default | |\n|---|---|---|\n").unwrap();
    for flag in flags {
        let defaults: Vec<String> = flag
            .get_default_values()
            .iter()
            .filter(|value| !value.is_empty())
            .map(|value| format!("`{}`", value.display()))
            .collect();
        let help = flag
            .get_long_help()
            .or(flag.get_help())
            .unwrap()
            .to_string();
        let paragraphs: Vec<&str> = help
            .split("\n\n")
            .map(|text| text.trim_end_matches('.'))
            .collect();
        let help = paragraphs.join(". ").replace('\n', " ").replace('|', "\\|");
        let values: Vec<String> = flag
            .get_possible_values()
            .iter()
            .filter(|_| !flag.is_hide_possible_values_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        let values = if values.is_empty() {
            String::new()
        } else {
            format!(": {}", values.join(", "))
        };
        writeln!(
            text,
            "| {} | {} | {help}{values} |",
            spelled(flag),
            defaults.join(", ")
        )
        .unwrap();
    }
}

fn is_documented(flag: &Arg) -> bool {
    !matches!(flag.get_id().as_str(), "help" | "version")
}

/// `-n`, `--namespace NAME`, or `NAME` of an argument without dashes.
fn spelled(flag: &Arg) -> String {
    let names = flag.get_value_names().unwrap_or_default();
    let takes_value = flag.get_action().takes_values();
    let value = names
        .first()
        .filter(|_| takes_value)
        .map(ToString::to_string);
    let Some(long) = flag.get_long() else {
        return format!("`{}`", value.unwrap_or_else(|| id(flag).to_uppercase()));
    };
    let short = flag
        .get_short()
        .map(|short| format!("`-{short}`, "))
        .unwrap_or_default();
    let value = value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{short}`--{long}{value}`")
}

fn id(flag: &Arg) -> String {
    flag.get_id().to_string()
}

/// Wraps prose as the documents do.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + word.len() >= 100 {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out
}

/// The Markdown files of the repository that show commands.
fn documents() -> Vec<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let root = Path::new(&manifest)
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf();
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let pages = docs.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    pages
        .chain([root.join("README.md"), root.join("CONTRIBUTING.md")])
        .collect()
}

#[test]
fn every_command_in_the_documents_is_accepted() {
    let mut seen = 0;
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap().replace("\\\n", " ");
            for line in block.lines() {
                let command = line.split(['|', '>', '#']).next().unwrap().trim();
                if !command.starts_with("kubevitals ") {
                    continue;
                }
                let parsed = Args::command().try_get_matches_from(command.split_whitespace());
                let parsed = parsed.and_then(|matches| Args::from_arg_matches(&matches));
                assert!(
                    parsed.is_ok(),
                    "{}: {command}: {}",
                    file.display(),
                    parsed.unwrap_err()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}
