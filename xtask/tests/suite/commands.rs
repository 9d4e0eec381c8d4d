//! Every command in a `sh` block of the documents is run by a test, or is listed here with the
//! reason why not.

use xtask::markdown;

use crate::{has_extension, read, tracked};

/// How commands that begin alike are tested.
struct Covered {
    /// The beginning of the command.
    command: &'static str,
    by: By,
}

enum By {
    /// A test: the file and the function.
    Test(&'static str, &'static str),
    /// No test, for this reason.
    Nothing(&'static str),
}

/// The first entry that fits a command counts.
const COVERED: &[Covered] = &[
    Covered {
        command: "cargo xtask ",
        by: By::Test(
            "xtask/tests/suite/documents.rs",
            "every_documented_xtask_exists",
        ),
    },
    Covered {
        command: "cargo run --release -- demo",
        by: By::Test(
            "bin/kubevitals/tests/suite/readme.rs",
            "the_first_command_runs_until_ctrl_c_and_exits_cleanly",
        ),
    },
    Covered {
        command: "cd e2e/vectors/",
        by: By::Nothing("writes the vectors of tests again, from the modules of the peers"),
    },
    Covered {
        command: "go run . ../../../crates/base/promtext/tests/vectors",
        by: By::Nothing("writes the vectors of tests again, from the modules of the peers"),
    },
    Covered {
        command: "KUBEVITALS_WRITE_VECTORS=1 cargo test",
        by: By::Nothing("writes the vectors of tests again"),
    },
    Covered {
        command: "OTEL_EXPORTER_OTLP_ENDPOINT=https://otlp.example.com ",
        by: By::Nothing("needs a receiver with a key; the test `traces` sends to a Collector"),
    },
    Covered {
        command: "kubevitals ",
        by: By::Test(
            "bin/kubevitals/src/args/tests.rs",
            "every_command_in_the_documents_is_accepted",
        ),
    },
    Covered {
        command: "kubectl apply -f components.yaml",
        by: By::Nothing("the file is a download of metrics-server"),
    },
    Covered {
        command: "kubectl -n kube-system rollout status deployment/metrics-server",
        by: By::Nothing("waits for the Deployment of that file"),
    },
    Covered {
        command: "helm ",
        by: By::Test(
            "e2e/tests/suite/install.rs",
            "every_command_of_the_installation_works_and_leaves_nothing",
        ),
    },
    Covered {
        command: "kubectl ",
        by: By::Test(
            "e2e/tests/suite/documents.rs",
            "every_kubectl_command_works",
        ),
    },
];

/// Returns the commands of the `sh` blocks of a document, without comments.
fn commands(document: &str) -> Vec<String> {
    let blocks = markdown::blocks(document).into_iter();
    let shell = blocks.filter(|block| matches!(block.language.as_str(), "sh" | "bash" | "console"));
    let lines = shell.flat_map(|block| {
        let joined = block.text.replace("\\\n", " ");
        joined.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let commands = lines.map(|line| line.trim().trim_start_matches("$ ").to_owned());
    commands
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn every_command_is_run_by_a_test_or_has_a_reason() {
    let mut used = vec![false; COVERED.len()];
    let mut uncovered = Vec::new();
    let documents = tracked()
        .into_iter()
        .filter(|file| has_extension(file, "md"));
    for document in documents {
        for command in commands(&read(&document)) {
            match COVERED
                .iter()
                .position(|covered| command.starts_with(covered.command))
            {
                Some(found) => used[found] = true,
                None => uncovered.push(format!("{document}: {command}")),
            }
        }
    }
    assert!(uncovered.is_empty(), "no test runs these: {uncovered:#?}");
    for (covered, used) in COVERED.iter().zip(used) {
        assert!(used, "no document has the command {}", covered.command);
        match covered.by {
            By::Test(file, name) => {
                assert!(
                    read(file).contains(&format!("fn {name}(")),
                    "{file} has no test {name}"
                );
            }
            By::Nothing(reason) => assert!(reason.len() > 10, "{}", covered.command),
        }
    }
}
