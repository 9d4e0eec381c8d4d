//! Encodes `profile.proto`, the format of `go tool pprof` and profile collectors.
//!
//! By hand: the codecs of `pprof` need a protobuf compiler at build time (ADR 0008).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use kubevitals_protobuf::{put_bytes, put_uint, put_varint};

/// A profile with two values for each stack.
pub(super) struct Profile {
    pub(super) types: [ValueType; 2],
    pub(super) samples: Vec<(Stack, [u64; 2])>,
    /// The start, since 1970.
    pub(super) time: Duration,
    /// `None` if it is of one moment.
    pub(super) duration: Option<Duration>,
    pub(super) period_type: ValueType,
    /// What one sample stands for.
    pub(super) period: u64,
}

/// The name and the unit of a value.
#[derive(Clone, Copy)]
pub(super) struct ValueType(pub(super) &'static str, pub(super) &'static str);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    /// From the innermost call outwards, each with the calls inlined into it, innermost first.
    pub(super) locations: Vec<Vec<Line>>,
    pub(super) thread: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) number: u32,
}

impl Line {
    /// Whether it is a function of jemalloc, or of Rust's way to it.
    pub(super) fn is_allocator(&self) -> bool {
        const PREFIXES: [&str; 13] = [
            "__rust_alloc",
            "__rust_realloc",
            "__rustc::__rust_alloc",
            "__rustc::__rust_realloc",
            "_rjem_",
            "je_",
            "prof_",
            "imalloc",
            "do_rallocx",
            "do_mallocx",
            "<tikv_jemallocator::",
            "alloc::alloc::",
            "alloc::raw_vec::",
        ];
        const NAMES: [&str; 8] = [
            "malloc",
            "calloc",
            "realloc",
            "mallocx",
            "rallocx",
            "aligned_alloc",
            "posix_memalign",
            "irealloc_prof",
        ];
        // With line numbers, inlined functions have no path in their name.
        const FILES: [&str; 2] = ["/alloc/src/alloc.rs", "/alloc/src/raw_vec/mod.rs"];
        let name = self.function.as_str();
        NAMES.contains(&name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || FILES.iter().any(|file| self.file.ends_with(file))
    }

    #[cfg(test)]
    pub(super) fn named(function: &str) -> Self {
        Self {
            function: function.to_owned(),
            file: String::new(),
            number: 0,
        }
    }
}

/// Assigns ids to distinct values, starting with `first`, in the order of appearance.
struct Ids<T> {
    first: u64,
    ids: HashMap<T, u64>,
}

/// Appends protobuf fields.
#[derive(Default)]
struct Message(Vec<u8>);

impl Profile {
    /// Field numbers are those of `Profile`, `Sample`, `Location` and so on in `profile.proto`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Message::default();
        let mut strings = Strings::new();
        let mut functions = Ids::new(1);
        let mut locations = Ids::new(1);

        for of_value in self.types {
            out.message(1, &of_value.encode(&mut strings));
        }
        for (stack, sampled) in &self.samples {
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
            for value in sampled {
                values.varint(*value);
            }
            let mut sample = Message::default();
            sample.message(1, &ids);
            sample.message(2, &values);
            if let Some(thread) = &stack.thread {
                let mut label = Message::default();
                label.number(1, strings.id("thread"));
                label.number(2, strings.id(thread));
                sample.message(3, &label);
            }
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
        let period_type = self.period_type.encode(&mut strings);
        let [_, ValueType(shown_first, _)] = self.types;
        let shown_first = strings.id(shown_first);
        for (string, _) in strings.0.in_order() {
            out.bytes(6, string.as_bytes());
        }
        out.number(9, nanoseconds(self.time));
        if let Some(duration) = self.duration {
            out.number(10, nanoseconds(duration));
        }
        out.message(11, &period_type);
        out.number(12, self.period);
        out.number(14, shown_first);
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

impl ValueType {
    fn encode(self, strings: &mut Strings) -> Message {
        let mut message = Message::default();
        message.number(1, strings.id(self.0));
        message.number(2, strings.id(self.1));
        message
    }
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

    fn profile() -> Profile {
        let outer = vec![line("outer", 300)];
        let stack = |inner| Stack {
            locations: vec![inner, outer.clone()],
            thread: Some("main".to_owned()),
        };
        let inner = stack(vec![line("inlined", 7), line("inner", 8)]);
        Profile {
            types: [
                ValueType("samples", "count"),
                ValueType("cpu", "nanoseconds"),
            ],
            samples: vec![
                (inner, [3, 30_000_000]),
                (stack(vec![line("inner", 9)]), [200, 2_000_000_000]),
            ],
            time: Duration::from_secs(1_700_000_000),
            duration: Some(Duration::from_secs(1)),
            period_type: ValueType("cpu", "nanoseconds"),
            period: 10_000_000,
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
