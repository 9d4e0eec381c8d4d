//! The table of the chart's values, from the comments of `values.yaml`: `# -- ` describes the key
//! below.

use std::fmt::Write;

use anyhow::{Context, Result, bail};

const BEGIN: &str = "<!-- values: begin -->\n";
const END: &str = "<!-- values: end -->\n";

/// Returns the table. Fails for a value without a description.
pub(super) fn table(values: &str) -> Result<String> {
    let mut table = "| value | default | |\n|---|---|---|\n".to_owned();
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut description = None;
    // The indentation of a key whose block is its default.
    let mut described = None;
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if described.is_some_and(|above| indent > above || text.starts_with("- ")) {
            continue;
        }
        described = None;
        if let Some(comment) = text.strip_prefix('#') {
            description = comment.strip_prefix(" -- ");
            continue;
        }
        let Some((key, value)) = text.split_once(':') else {
            continue;
        };
        path.retain(|(above, _)| *above < indent);
        path.push((indent, key));
        let name: Vec<&str> = path.iter().map(|(_, key)| *key).collect();
        let name = name.join(".");
        let value = value.trim();
        match description.take() {
            Some(description) => {
                let default = if value.is_empty() {
                    described = Some(indent);
                    "see [values.yaml](values.yaml)".to_owned()
                } else {
                    format!("`{value}`")
                };
                writeln!(table, "| `{name}` | {default} | {description} |")?;
            }
            None if value.is_empty() => {}
            None => bail!("values.yaml: {name} has no description (`# -- `)"),
        }
    }
    Ok(table)
}

/// Replaces the table in a document.
pub(super) fn replace(document: &str, table: &str) -> Result<String> {
    let missing = || format!("no {} and {}", BEGIN.trim(), END.trim());
    let (before, rest) = document.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_path_default_and_description() {
        let values = "\
# The file.
a:
  # -- First
  b: \"\"
  c:
    # -- Second
    d: 5
# Why.
# -- A list
e:
  - f: 1
    g: 2
# -- Empty
h: {}
";
        assert_eq!(
            table(values).unwrap(),
            "| value | default | |\n|---|---|---|\n\
             | `a.b` | `\"\"` | First |\n\
             | `a.c.d` | `5` | Second |\n\
             | `e` | see [values.yaml](values.yaml) | A list |\n\
             | `h` | `{}` | Empty |\n"
        );
    }

    #[test]
    fn a_value_without_description_is_an_error() {
        let error = table("a:\n  b: 1\n").unwrap_err().to_string();
        assert!(error.contains("a.b"), "{error}");
    }

    #[test]
    fn only_the_table_of_a_document_is_replaced() {
        let document = format!("before\n{BEGIN}old\n{END}after\n");
        let replaced = replace(&document, "new\n").unwrap();
        assert_eq!(replaced, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(replace(&replaced, "new\n").unwrap(), replaced);
        assert!(replace("no table", "new").is_err());
    }
}
