//! The document matches the program.

use kubevitals_transition_metrics::FAMILIES;

#[test]
fn the_table_of_families_is_that_of_the_program() {
    let document = include_str!("../../../../../docs/transitions.md");
    let rows: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| `kubevitals_pod"))
        .collect();
    let expected: Vec<String> = FAMILIES
        .iter()
        .map(|family| {
            let mut labels = Vec::new();
            if family.by_pod {
                labels.push("pod's".to_owned());
            }
            labels.extend(family.label.map(|label| format!("`{label}`")));
            format!(
                "| `{}` | {} | {} | {} |",
                family.name,
                family.kind.as_str(),
                labels.join(", "),
                family.help
            )
        })
        .collect();
    assert_eq!(rows, expected, "copy this:\n{}", expected.join("\n"));
}
