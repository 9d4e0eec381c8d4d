//! The example in `docs/prober.md`, and the probes that the chart installs, are valid.

use std::path::Path;

use kubevitals_probes::{Config, Source, Variables};

/// Everything that a pod on a cloud has.
fn variables() -> Variables {
    let mut variables = Variables::default();
    for (name, value) in [
        (Variables::HOST_IP, "192.0.2.1"),
        (Variables::API_SERVER, "https://10.96.0.1"),
        (Variables::TOKEN_FILE, "/run/token"),
        (Variables::CA_FILE, "/run/ca.crt"),
        (Variables::METADATA_HOST, "metadata.google.internal"),
        (Variables::DNS_SERVER, "10.96.0.10"),
        (Variables::CLUSTER_DNS, "10.96.0.10"),
    ] {
        variables.set(name, value);
    }
    variables
}

fn read(path: &str) -> String {
    // At run time: clones may share a target folder, and with it this binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let root = Path::new(&manifest).join("../../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The texts of the files in the ConfigMaps of a manifest, by the name of the ConfigMap.
fn config_maps(manifest: &str) -> Vec<Vec<Source>> {
    let maps = manifest
        .split("\n---\n")
        .filter(|object| object.contains("\nkind: ConfigMap\n"));
    maps.map(|map| {
        let (_, data) = map.split_once("\ndata:\n").unwrap();
        let mut files: Vec<Source> = Vec::new();
        for line in data.lines() {
            if let Some(name) = line
                .trim()
                .strip_suffix(": |")
                .filter(|_| !line.starts_with("   "))
            {
                files.push(Source {
                    name: Some(name.to_owned()),
                    text: String::new(),
                });
            } else if let Some(file) = files.last_mut() {
                file.text
                    .push_str(line.strip_prefix("    ").unwrap_or(line));
                file.text.push('\n');
            }
        }
        files
    })
    .collect()
}

#[test]
fn the_example_of_the_documents_is_valid() {
    let document = read("docs/prober.md");
    let examples: Vec<&str> = document
        .split("```yaml\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        let config = Config::parse(example, &variables()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.unavailable(), []);
        assert!(config.probes().count() > 5);
    }
}

#[test]
fn the_probes_of_the_chart_are_valid() {
    for manifest in [
        "deploy/prober.yaml",
        "e2e/snapshots/chart/prober.yaml",
        "e2e/snapshots/chart/prober-gcm.yaml",
    ] {
        let maps = config_maps(&read(manifest));
        assert!(!maps.is_empty(), "{manifest}");
        for sources in maps {
            let config = Config::from_sources(&sources, &variables());
            let config = config.unwrap_or_else(|error| panic!("{manifest}: {error}"));
            assert!(config.probes().count() > 1, "{manifest}");
        }
    }
}
