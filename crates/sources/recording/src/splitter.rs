//! Splits chunks of bytes into JSON objects.
//!
//! Brackets are counted outside of strings. Two facts make it robust against broken objects: a
//! string has no line break, and no tool prints an inner object at the start of a line.

use std::mem;

/// Splits bytes into objects.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// The incomplete object; dropped once it exceeds the limit.
    held: Vec<u8>,
    /// The offset of the next byte.
    position: u64,
    state: State,
}

/// A piece of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// An object, from bracket to bracket.
    Object { offset: u64, bytes: &'b [u8] },
    /// An object without an end.
    CutOff { offset: u64, length: u64 },
    /// An object beyond the limit.
    TooLarge { offset: u64, length: u64 },
    /// Bytes outside of any object.
    Garbage {
        offset: u64,
        length: u64,
        /// Whether there are zero bytes, as in UTF-16.
        has_zeros: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between objects.
    Outside,
    /// Outside of any object, until the end of the line.
    Garbage {
        offset: u64,
        has_zeros: bool,
    },
    Inside(Inside),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inside {
    offset: u64,
    depth: u32,
    string: InString,
    /// Whether the next byte begins a line.
    at_line_start: bool,
    is_given_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    Escaped,
}

impl Splitter {
    /// Finds objects of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Vec::new(),
            position: 0,
            state: State::Outside,
        }
    }

    /// The offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Takes a chunk and hands out each piece that ends in it.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Piece<'_>)) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Outside => self.outside(rest),
                State::Garbage { offset, has_zeros } => {
                    self.garbage(rest, offset, has_zeros, &mut each)
                }
                State::Inside(inside) => self.inside(rest, inside, &mut each),
            };
            self.position += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// Ends the input.
    pub fn end(&mut self, mut each: impl FnMut(Piece<'_>)) {
        match mem::replace(&mut self.state, State::Outside) {
            State::Outside => {}
            State::Garbage { offset, has_zeros } => each(Piece::Garbage {
                offset,
                length: self.position - offset,
                has_zeros,
            }),
            State::Inside(inside) => each(self.unfinished(inside)),
        }
        self.held = Vec::new();
    }

    /// Passes over blanks to where something begins.
    fn outside(&mut self, bytes: &[u8]) -> usize {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let blanks = bytes.iter().take_while(|byte| is_blank(byte)).count();
        let offset = self.position + blanks as u64;
        match bytes.get(blanks) {
            Some(b'{') => {
                self.held.clear();
                self.state = State::Inside(Inside {
                    offset,
                    depth: 0,
                    string: InString::No,
                    at_line_start: false,
                    is_given_up: false,
                });
            }
            Some(_) => {
                self.state = State::Garbage {
                    offset,
                    has_zeros: false,
                };
            }
            None => {}
        }
        blanks
    }

    fn garbage(
        &mut self,
        bytes: &[u8],
        offset: u64,
        has_zeros: bool,
        each: &mut impl FnMut(Piece<'_>),
    ) -> usize {
        let end = memchr::memchr(b'\n', bytes);
        let line = end.map_or(bytes, |end| bytes.get(..end).unwrap_or_default());
        let has_zeros = has_zeros || memchr::memchr(0, line).is_some();
        let Some(end) = end else {
            self.state = State::Garbage { offset, has_zeros };
            return bytes.len();
        };
        each(Piece::Garbage {
            offset,
            length: self.position + end as u64 - offset,
            has_zeros,
        });
        self.state = State::Outside;
        end + 1
    }

    fn inside(
        &mut self,
        bytes: &[u8],
        mut inside: Inside,
        each: &mut impl FnMut(Piece<'_>),
    ) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            let begins_line = mem::replace(&mut inside.at_line_start, byte == b'\n');
            if begins_line && byte == b'{' {
                // Whatever was open is over: this is the next.
                self.hold(bytes.get(..at).unwrap_or_default(), &mut inside);
                self.position += at as u64;
                each(self.unfinished(inside));
                self.position -= at as u64;
                self.state = State::Outside;
                return at;
            }
            if !inside.step(byte) {
                continue;
            }
            let end = at + 1;
            let piece = bytes.get(..end).unwrap_or_default();
            if self.held.is_empty() && !inside.is_given_up && piece.len() <= self.limit {
                // The common case, without a copy.
                each(Piece::Object {
                    offset: inside.offset,
                    bytes: piece,
                });
            } else {
                self.hold(piece, &mut inside);
                let length = self.position + end as u64 - inside.offset;
                each(if inside.is_given_up {
                    Piece::TooLarge {
                        offset: inside.offset,
                        length,
                    }
                } else {
                    Piece::Object {
                        offset: inside.offset,
                        bytes: &self.held,
                    }
                });
            }
            self.held.clear();
            self.state = State::Outside;
            return end;
        }
        self.hold(bytes, &mut inside);
        self.state = State::Inside(inside);
        bytes.len()
    }

    fn hold(&mut self, bytes: &[u8], inside: &mut Inside) {
        if inside.is_given_up || self.held.len() + bytes.len() > self.limit {
            inside.is_given_up = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn unfinished(&self, inside: Inside) -> Piece<'static> {
        let length = self.position - inside.offset;
        let offset = inside.offset;
        if inside.is_given_up {
            Piece::TooLarge { offset, length }
        } else {
            Piece::CutOff { offset, length }
        }
    }
}

impl Inside {
    /// Takes a byte; gives whether the object ends with it.
    fn step(&mut self, byte: u8) -> bool {
        self.string = match (self.string, byte) {
            // No string holds a line break: what was open is none.
            (InString::Yes, b'"') | (_, b'\n') => InString::No,
            (InString::No, b'"') | (InString::Escaped, _) => InString::Yes,
            (InString::Yes, b'\\') => InString::Escaped,
            (state, _) => state,
        };
        // A quote that has just closed a string is no bracket either.
        if self.string == InString::No {
            match byte {
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => return false,
            }
            return self.depth == 0;
        }
        false
    }
}
