//! Every fuzz target as an ordinary test: its corpus, and a fixed set of mutations.
#![expect(clippy::unwrap_used, reason = "helpers fail by panicking")]

use std::fs;
use std::path::Path;

use kubevitals_fuzz_oracles::{TARGETS, Target};

/// Mutations per target: a few seconds in a debug build.
const MUTATIONS: usize = 6_000;
/// Longer inputs cover nothing more, and take longer.
const MAX_LENGTH: usize = 512;

#[test]
fn every_target_holds_for_its_corpus_and_mutations_of_it() {
    for target in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for input in &corpus {
            (target.oracle)(input);
        }
        let mut random = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
        for _ in 0..MUTATIONS {
            (target.oracle)(&mutated(&corpus, target, &mut random));
        }
    }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    // Read at run time: clones may share a target folder, and with it this binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let folder = Path::new(&manifest).join("../corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn mutated(corpus: &[Vec<u8>], target: &Target, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(corpus).unwrap().clone();
    // A random part of a long input.
    if input.len() > MAX_LENGTH {
        let start = random.usize(..input.len() - MAX_LENGTH);
        input = input.split_off(start);
        input.truncate(MAX_LENGTH);
    }
    for _ in 0..=random.usize(..4) {
        let start = random.usize(..=input.len());
        let end = (start + random.usize(..8)).min(input.len());
        let replacement = match random.u8(..5) {
            0 => Vec::new(),
            1 => vec![random.u8(..)],
            2 => {
                let other = random.choice(corpus).unwrap();
                let length = random.usize(..32);
                other.iter().copied().skip(start).take(length).collect()
            }
            _ => random.choice(target.tokens).unwrap().to_vec(),
        };
        let end = if random.bool() { start } else { end };
        input.splice(start..end, replacement);
    }
    input
}
