//! Every fuzz target as an ordinary test: its corpus, and mutations that are the same every time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers fail by panicking"
)]

use std::fs;
use std::path::Path;

use kubevitals_fuzz_oracles::{TARGETS, Target};

/// Mutations for each target: a few seconds in a debug build.
const MUTATIONS: usize = 6_000;
/// Longer inputs show nothing more here, and take longer.
const MAX_LENGTH: usize = 512;

#[test]
fn every_target_holds_for_its_corpus_and_mutations_of_it() {
    for target in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for input in &corpus {
            (target.oracle)(input);
        }
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..MUTATIONS {
            (target.oracle)(&mutated(&corpus, target, &mut random));
        }
    }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    // Asked at run time: clones may share a target folder, and with it this binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let folder = Path::new(&manifest).join("../corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn mutated(corpus: &[Vec<u8>], target: &Target, random: &mut Random) -> Vec<u8> {
    let mut input = random.pick(corpus).clone();
    // A piece of a long input, from anywhere.
    if input.len() > MAX_LENGTH {
        let start = random.below(input.len() - MAX_LENGTH);
        input = input.split_off(start);
        input.truncate(MAX_LENGTH);
    }
    for _ in 0..=random.below(4) {
        let start = random.below(input.len() + 1);
        let end = (start + random.below(8)).min(input.len());
        let replacement = match random.below(5) {
            0 => Vec::new(),
            1 => vec![random.byte()],
            2 => random
                .pick(corpus)
                .iter()
                .copied()
                .skip(start)
                .take(random.below(32))
                .collect(),
            _ => random.pick(target.tokens).to_vec(),
        };
        let end = if random.below(2) == 0 { start } else { end };
        input.splice(start..end, replacement);
    }
    input
}

/// Xorshift: the same numbers every time, without a dependency.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[5]
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}
