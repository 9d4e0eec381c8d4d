//! The memory that request heads take.
//!
//! A user with many groups has a head of hundreds of kilobytes, so heads may be large. Everybody
//! can send one, also without credentials, on as many connections as there are. So all heads beyond
//! a small size share one budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;

/// The size up to which a head takes nothing from the budget.
const FREE_BYTES: usize = 64 << 10;

/// The length of the preface of an HTTP/2 connection, and of the header of a frame.
const PREFACE_LEN: usize = 24;
const FRAME_HEADER_LEN: usize = 9;

/// Types of frames, and the flag of the last one of a head.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The bytes that large heads may still take. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct HeadBudget(Arc<AtomicUsize>);

/// A part of the budget, which is returned when it is dropped.
#[derive(Debug)]
pub(crate) struct HeadCharge {
    budget: HeadBudget,
    bytes: usize,
}

/// Counts the bytes of the head that is being received.
#[derive(Debug)]
pub(crate) struct HeadMeter {
    charge: HeadCharge,
    /// Bytes of the head so far.
    bytes: usize,
    /// The number of the head, for HTTP/1.
    head: Option<u64>,
    /// `None` for HTTP/1.
    frames: Option<Frames>,
}

/// Follows the frames of an HTTP/2 connection.
#[derive(Debug, Default)]
struct Frames {
    preface: usize,
    header: [u8; FRAME_HEADER_LEN],
    /// Bytes of `header` that were received.
    filled: usize,
    /// Bytes of the payload that are missing.
    payload: usize,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("large request heads take too much memory")]
pub(crate) struct Exhausted;

impl HeadBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Charges a head that was received.
    pub(crate) fn charge(&self, headers: &HeaderMap) -> Result<HeadCharge, Exhausted> {
        let size = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            // As HTTP/2 counts it.
            name.as_str().len() + value.len() + 32
        };
        let mut charge = HeadCharge::new(self);
        charge.set(headers.iter().map(size).sum())?;
        Ok(charge)
    }

    fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let left = |left: usize| left.checked_sub(bytes);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .map_or(Err(Exhausted), |_| Ok(()))
    }
}

impl HeadCharge {
    fn new(budget: &HeadBudget) -> Self {
        Self {
            budget: budget.clone(),
            bytes: 0,
        }
    }

    /// Sets the charge to that of a head of this size.
    fn set(&mut self, size: usize) -> Result<(), Exhausted> {
        let bytes = size.saturating_sub(FREE_BYTES);
        if bytes > self.bytes {
            self.budget.take(bytes - self.bytes)?;
        } else {
            self.budget
                .0
                .fetch_add(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl HeadMeter {
    pub(crate) fn new(budget: &HeadBudget, is_http2: bool) -> Self {
        Self {
            charge: HeadCharge::new(budget),
            bytes: 0,
            head: None,
            frames: is_http2.then(Frames::default),
        }
    }

    /// Releases the charge of a head of HTTP/1: from here on its exchange is charged. Over HTTP/2
    /// another head may be under way.
    pub(crate) fn head_received(&mut self) {
        if self.frames.is_none() {
            self.bytes = 0;
            // Nothing is taken.
            let _ = self.charge.set(0);
        }
    }

    /// Counts received bytes. Those of HTTP/1 belong to the head with this number, if there is one.
    pub(crate) fn received(&mut self, bytes: &[u8], head: Option<u64>) -> Result<(), Exhausted> {
        if let Some(frames) = &mut self.frames {
            frames.received(bytes, &mut self.bytes);
        } else {
            let before = if head == self.head { self.bytes } else { 0 };
            self.bytes = head.map_or(0, |_| before + bytes.len());
            self.head = head;
        }
        self.charge.set(self.bytes)
    }
}

impl Frames {
    /// Follows the frames in `bytes`, and adds what belongs to an incomplete head to `head`.
    fn received(&mut self, mut bytes: &[u8], head: &mut usize) {
        let preface = bytes.len().min(PREFACE_LEN - self.preface);
        self.preface += preface;
        bytes = bytes.get(preface..).unwrap_or_default();
        while !bytes.is_empty() {
            if self.filled < FRAME_HEADER_LEN {
                let missing = FRAME_HEADER_LEN - self.filled;
                let taken = bytes.len().min(missing);
                let (now, later) = bytes.split_at(taken);
                if let Some(free) = self.header.get_mut(self.filled..self.filled + taken) {
                    free.copy_from_slice(now);
                }
                self.filled += taken;
                bytes = later;
                if self.filled == FRAME_HEADER_LEN {
                    let [a, b, c, ..] = self.header;
                    self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    self.end_frame(head);
                }
                continue;
            }
            let taken = bytes.len().min(self.payload);
            self.payload -= taken;
            if self.is_head() {
                *head += taken;
            }
            bytes = bytes.get(taken..).unwrap_or_default();
            self.end_frame(head);
        }
    }

    /// Begins the next frame if this one is complete.
    const fn end_frame(&mut self, head: &mut usize) {
        if self.payload > 0 {
            return;
        }
        let [_, _, _, _, flags, ..] = self.header;
        if self.is_head() && flags & END_HEADERS != 0 {
            *head = 0;
        }
        self.filled = 0;
    }

    const fn is_head(&self) -> bool {
        let [_, _, _, kind, ..] = self.header;
        matches!(kind, HEADERS | CONTINUATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn left(budget: &HeadBudget) -> usize {
        budget.0.load(Ordering::Relaxed)
    }

    fn frame(kind: u8, flags: u8, len: usize) -> Vec<u8> {
        let len_bytes = u32::try_from(len).unwrap().to_be_bytes();
        let mut frame = vec![
            len_bytes[1],
            len_bytes[2],
            len_bytes[3],
            kind,
            flags,
            0,
            0,
            0,
            1,
        ];
        frame.resize(FRAME_HEADER_LEN + len, b'x');
        frame
    }

    #[test]
    fn small_heads_are_free_and_large_ones_share_a_budget() {
        let budget = HeadBudget::new(MIB);
        let headers = |bytes: usize| {
            let mut headers = HeaderMap::new();
            headers.insert("x-a", "x".repeat(bytes).parse().unwrap());
            headers
        };
        let small = budget.charge(&headers(1000)).unwrap();
        assert_eq!(left(&budget), MIB);
        let large = budget.charge(&headers(MIB)).unwrap();
        assert!(left(&budget) < FREE_BYTES);
        assert_eq!(budget.charge(&headers(MIB / 2)).unwrap_err(), Exhausted);
        drop((small, large));
        assert_eq!(left(&budget), MIB);
    }

    #[test]
    fn an_incomplete_head_of_http1_is_charged_as_it_arrives() {
        let budget = HeadBudget::new(MIB);
        let mut meter = HeadMeter::new(&budget, false);
        for _ in 0..10 {
            meter.received(&[b'x'; 16 << 10], Some(0)).unwrap();
        }
        assert_eq!(left(&budget), MIB - (160 << 10) + FREE_BYTES);
        meter.received(b"x", None).unwrap();
        assert_eq!(left(&budget), MIB);
        for head in 1..100 {
            meter.received(&[b'x'; 16 << 10], Some(head)).unwrap();
        }
        assert_eq!(left(&budget), MIB, "many small heads");
        let received = meter.received(&vec![b'x'; 2 * MIB], Some(100));
        assert_eq!(received, Err(Exhausted));
        drop(meter);
        assert_eq!(left(&budget), MIB);
    }

    #[test]
    fn of_http2_the_frames_of_an_incomplete_head_are_charged() {
        let mut bytes = vec![b'P'; PREFACE_LEN];
        // Other frames, a whole head, and the beginning of another.
        bytes.extend(frame(4, 0, 18));
        bytes.extend(frame(0, 0, 100_000));
        bytes.extend(frame(HEADERS, END_HEADERS, 100_000));
        bytes.extend(frame(6, 0, 8));
        bytes.extend(frame(HEADERS, 0, 60_000));
        bytes.extend(frame(CONTINUATION, 0, 60_000));
        let end = frame(CONTINUATION, END_HEADERS, 0);
        for step in [1, 7, 1000, bytes.len()] {
            let budget = HeadBudget::new(MIB);
            let mut meter = HeadMeter::new(&budget, true);
            for piece in bytes.chunks(step) {
                meter.received(piece, None).unwrap();
            }
            assert_eq!(left(&budget), MIB - 120_000 + FREE_BYTES, "{step}");
            meter.received(&end, None).unwrap();
            assert_eq!(left(&budget), MIB);
        }
    }
}
