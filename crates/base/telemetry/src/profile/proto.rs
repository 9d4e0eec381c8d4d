//! Encodes `profile.proto`, the format of `go tool pprof` and profile collectors.
//!
//! By hand: the codecs of `pprof` need a protobuf compiler at build time (ADR 0008).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use kubevitals_protobuf::{put_bytes, put_uint, put_varint};

pub(super) struct CpuProfile {
    /// Stacks with their number of samples.
    pub(super) samples: Vec<(Stack, u64)>,
    /// Since 1970.
    pub(super) start: Duration,
    pub(super) duration: Duration,
    /// The CPU time of one sample.
    pub(super) period: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    /// From the innermost call outwards, each with the calls inlined into it, innermost first.
    pub(super) locations: Vec<Vec<Line>>,
    pub(super) thread: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) number: u32,
}

/// Assigns ids to distinct values, starting with `first`, in the order of appearance.
struct Ids<T> {
    first: u64,
    ids: HashMap<T, u64>,
}

/// Appends protobuf fields.
#[derive(Default)]
struct Message(Vec<u8>);

impl CpuProfile {
    /// Field numbers are those of `Profile`, `Sample`, `Location` and so on in `profile.proto`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Message::default();
        let mut strings = Strings::new();
        let mut functions = Ids::new(1);
        let mut locations = Ids::new(1);

        out.message(1, &value_type(&mut strings, "samples", "count"));
        out.message(1, &value_type(&mut strings, "cpu", "nanoseconds"));
        let period = nanoseconds(self.period);
        for (stack, count) in &self.samples {
            let mut ids = Message::default();
            for lines in &stack.locations {
                let key: Vec<(u64, u32)> = lines
                    .iter()
                    .map(|line| {
                        let names = (strings.id(&line.function), strings.id(&line.file));
                        (functions.id(names), line.number)
                    })
                    .collect();
                ids.varint(locations.id(key));
            }
            let mut values = Message::default();
            values.varint(*count);
            values.varint(count.saturating_mul(period));
            let mut label = Message::default();
            label.number(1, strings.id("thread"));
            label.number(2, strings.id(&stack.thread));
            let mut sample = Message::default();
            sample.message(1, &ids);
            sample.message(2, &values);
            sample.message(3, &label);
            out.message(2, &sample);
        }

        // One mapping with all symbols, so that readers do not look for a binary.
        let mut mapping = Message::default();
        mapping.number(1, 1);
        mapping.number(5, strings.id("kubevitals"));
        for has_functions_filenames_lines in [7, 8, 9] {
            mapping.number(has_functions_filenames_lines, 1);
        }
        out.message(3, &mapping);
        for (lines, id) in locations.in_order() {
            let mut location = Message::default();
            location.number(1, id);
            location.number(2, 1);
            for (function, number) in lines {
                let mut line = Message::default();
                line.number(1, function);
                line.number(2, u64::from(number));
                location.message(4, &line);
            }
            out.message(4, &location);
        }
        for ((name, file), id) in functions.in_order() {
            let mut function = Message::default();
            function.number(1, id);
            function.number(2, name);
            function.number(3, name);
            function.number(4, file);
            out.message(5, &function);
        }
        let period_type = value_type(&mut strings, "cpu", "nanoseconds");
        for (string, _) in strings.0.in_order() {
            out.bytes(6, string.as_bytes());
        }
        out.number(9, nanoseconds(self.start));
        out.number(10, nanoseconds(self.duration));
        out.message(11, &period_type);
        out.number(12, period);
        out.0
    }
}

struct Strings(Ids<String>);

impl Strings {
    /// The first string of the table must be the empty one.
    fn new() -> Self {
        let mut strings = Self(Ids::new(0));
        strings.id("");
        strings
    }

    fn id(&mut self, text: &str) -> u64 {
        match self.0.ids.get(text) {
            Some(id) => *id,
            None => self.0.id(text.to_owned()),
        }
    }
}

impl<T: Eq + Hash> Ids<T> {
    fn new(first: u64) -> Self {
        Self {
            first,
            ids: HashMap::new(),
        }
    }

    fn id(&mut self, value: T) -> u64 {
        let next = self.first + self.ids.len() as u64;
        *self.ids.entry(value).or_insert(next)
    }

    fn in_order(self) -> Vec<(T, u64)> {
        let mut all: Vec<(T, u64)> = self.ids.into_iter().collect();
        all.sort_by_key(|(_, id)| *id);
        all
    }
}

impl Message {
    fn varint(&mut self, value: u64) {
        put_varint(&mut self.0, value);
    }

    fn number(&mut self, field: u32, value: u64) {
        put_uint(&mut self.0, field, value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        put_bytes(&mut self.0, field, bytes);
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.0);
    }
}

fn value_type(strings: &mut Strings, name: &str, unit: &str) -> Message {
    let mut message = Message::default();
    message.number(1, strings.id(name));
    message.number(2, strings.id(unit));
    message
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, number: u32) -> Line {
        Line {
            function: function.to_owned(),
            file: String::from("main.rs"),
            number,
        }
    }

    fn profile() -> CpuProfile {
        let outer = vec![line("outer", 300)];
        let stack = |inner| Stack {
            locations: vec![inner, outer.clone()],
            thread: "main".to_owned(),
        };
        CpuProfile {
            samples: vec![
                (stack(vec![line("inlined", 7), line("inner", 8)]), 3),
                (stack(vec![line("inner", 9)]), 200),
            ],
            start: Duration::from_secs(1_700_000_000),
            duration: Duration::from_secs(1),
            period: Duration::from_millis(10),
        }
    }

    /// Returns the fields of a message as number, value and bytes.
    fn fields(message: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
        let fields = kubevitals_protobuf::fields(message).unwrap();
        let each = fields.iter().map(|field| {
            let bytes = field.value.bytes().unwrap_or_default();
            let number = field.value.uint().unwrap_or_default();
            (field.number, number, bytes.to_vec())
        });
        each.collect()
    }

    #[test]
    fn tables_are_shared_between_samples() {
        let encoded = profile().encode();
        let all = fields(&encoded);
        let count = |number: u32| all.iter().filter(|field| field.0 == number).count();
        assert_eq!(
            [count(1), count(2), count(3), count(4), count(5)],
            [2, 2, 1, 3, 3]
        );
        let strings: Vec<String> = all
            .iter()
            .filter(|field| field.0 == 6)
            .map(|field| String::from_utf8(field.2.clone()).unwrap())
            .collect();
        assert_eq!(
            strings,
            [
                "",
                "samples",
                "count",
                "cpu",
                "nanoseconds",
                "inlined",
                "main.rs",
                "inner",
                "outer",
                "thread",
                "main",
                "kubevitals"
            ]
        );
        let second = all.iter().filter(|field| field.0 == 2).nth(1).unwrap();
        let sample = fields(&second.2);
        assert_eq!(sample[0].2, [3, 2], "shares the outer location");
        assert_eq!(
            sample[1].2,
            [200, 1, 0x80, 0xa8, 0xd6, 0xb9, 0x07],
            "200 samples, 2 s"
        );
        assert!(
            all.iter()
                .any(|field| (field.0, field.1) == (12, 10_000_000))
        );
    }
}
