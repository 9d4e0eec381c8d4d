//! The codec.

use proptest::prelude::*;

use super::message::{DecodeError, Message, Question};
use super::{DnsClass, DnsType, name};

/// An answer to a query, with records in the form of the wire.
fn answer(question: &Question, id: u16, flags: u16, records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
    let mut message = question.encode(id, true);
    message[2..4].copy_from_slice(&(0x8000 | flags).to_be_bytes());
    message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    for (owner, kind, data) in records {
        message.extend_from_slice(owner);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&1_u16.to_be_bytes());
        message.extend_from_slice(&300_u32.to_be_bytes());
        message.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend_from_slice(data);
    }
    message
}

fn question() -> Question {
    Question::new("example.com", DnsType::ANY, DnsClass::IN).unwrap()
}

/// A pointer to the name of the question.
const OWNER: &[u8] = &[0xc0, 12];

#[test]
fn records_are_written_as_in_zone_files() {
    let soa = [
        &[2, b'n', b's', 0xc0, 12, 1, b'h', 0xc0, 12][..],
        &7_u32.to_be_bytes(),
        &[0; 16],
    ];
    let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let records: [(&[u8], u16, &[u8]); 9] = [
        (OWNER, 1, &[192, 0, 2, 1]),
        (OWNER, 28, &v6),
        (OWNER, 5, &[3, b'w', b'.', b'w', 0xc0, 12]),
        (OWNER, 15, &[0, 10, 0xc0, 12]),
        (OWNER, 33, &[0, 1, 0, 2, 0, 53, 0xc0, 12]),
        (OWNER, 16, b"\x04a\"b\x01\x00"),
        (OWNER, 6, &soa.concat()),
        (OWNER, 257, b"\x00\x05issuepki.example"),
        (&[0], 65280, &[1, 0xab]),
    ];
    let message = Message::decode(&answer(&question(), 7, 0, &records)).unwrap();
    let texts: Vec<&str> = message.texts().collect();
    assert_eq!(
        texts,
        [
            "example.com.\t300\tIN\tA\t192.0.2.1",
            "example.com.\t300\tIN\tAAAA\t2001:db8::1",
            "example.com.\t300\tIN\tCNAME\tw\\.w.example.com.",
            "example.com.\t300\tIN\tMX\t10 example.com.",
            "example.com.\t300\tIN\tSRV\t1 2 53 example.com.",
            "example.com.\t300\tIN\tTXT\t\"a\\\"b\\001\" \"\"",
            "example.com.\t300\tIN\tSOA\tns.example.com. h.example.com. 7 0 0 0 0",
            "example.com.\t300\tIN\tCAA\t0 issue \"pki.example\"",
            ".\t300\tIN\tTYPE65280\t\\# 2 01ab",
        ]
    );
    assert_eq!(
        message.answers[0].address,
        Some("192.0.2.1".parse().unwrap())
    );
    assert_eq!(message.answers[6].serial, Some(7));
}

#[test]
fn an_answer_belongs_to_its_query_alone() {
    let question = question();
    let decoded = |bytes: Vec<u8>| Message::decode(&bytes).unwrap();
    let right = decoded(answer(&question, 7, 0, &[]));
    assert!(question.is_answered_by(&right, 7));
    assert!(!question.is_answered_by(&right, 8));
    let upper = Question::new("EXAMPLE.com.", DnsType::ANY, DnsClass::IN).unwrap();
    assert!(upper.is_answered_by(&right, 7));
    for other in [
        Question::new("example.org", DnsType::ANY, DnsClass::IN).unwrap(),
        Question::new("example.com", DnsType::A, DnsClass::IN).unwrap(),
    ] {
        assert!(!other.is_answered_by(&right, 7));
    }
    let query = decoded(question.encode(7, true));
    assert!(!question.is_answered_by(&query, 7), "a query is no answer");
    // Without a question only an error is an answer.
    let bare = |rcode: u8| vec![0, 7, 0x80, rcode, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(question.is_answered_by(&decoded(bare(1)), 7));
    assert!(!question.is_answered_by(&decoded(bare(0)), 7));
}

#[test]
fn pointers_lead_backwards_and_names_end() {
    let decode = |owner: &[u8]| Message::decode(&answer(&question(), 7, 0, &[(owner, 1, &[0; 4])]));
    // The record begins at 29: a pointer to itself, forwards, and out of the message.
    assert_eq!(decode(&[0xc0, 29]), Err(DecodeError::Name));
    assert_eq!(decode(&[0xc0, 31]), Err(DecodeError::Name));
    assert_eq!(decode(&[0xff, 0xff]), Err(DecodeError::Name));
    // A loop through a label before it.
    assert_eq!(decode(&[1, b'a', 0xc0, 29]), Err(DecodeError::Name));
    // Reserved bits.
    assert_eq!(decode(&[0x80, 0]), Err(DecodeError::Name));
    let long: Vec<u8> = [&[63; 64][..]; 4].concat();
    assert_eq!(decode(&long), Err(DecodeError::Name));
}

#[test]
fn data_of_a_wrong_length_are_an_error() {
    for (kind, data) in [
        (1, &[0; 3][..]),
        (1, &[0; 5]),
        (28, &[0; 4]),
        (5, &[0xc0, 12, 0]),
        (16, b"\x05ab"),
        (257, b"\x00\xffa"),
        (257, b""),
    ] {
        let message = answer(
            &question(),
            7,
            0,
            &[(OWNER, kind, data), (OWNER, 1, &[0; 4])],
        );
        assert!(Message::decode(&message).is_err(), "{kind} {data:?}");
    }
}

#[test]
fn a_truncated_message_may_lack_records() {
    let mut message = answer(&question(), 7, 0x200, &[(OWNER, 1, &[192, 0, 2, 1])]);
    message.pop();
    let decoded = Message::decode(&message).unwrap();
    assert!(decoded.is_truncated);
    assert_eq!(decoded.texts().count(), 0);
    // The flag is what permits it.
    message[2] = 0x80;
    assert_eq!(Message::decode(&message), Err(DecodeError::Short));
}

#[test]
fn names_have_limits() {
    let too_long = "a.".repeat(128);
    for (text, error) in [
        ("a..b", name::NameError::EmptyLabel),
        (".a", name::NameError::EmptyLabel),
        ("a..", name::NameError::EmptyLabel),
        (&"x".repeat(64), name::NameError::LongLabel),
        (&too_long, name::NameError::TooLong),
    ] {
        assert_eq!(name::encode(text), Err(error), "{text}");
    }
    assert_eq!(name::encode("").unwrap(), [0]);
    assert_eq!(name::encode(".").unwrap(), [0]);
    assert_eq!(name::encode(&"a.".repeat(127)).unwrap().len(), 255);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(512)
    })]

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(message) = Message::decode(&bytes) {
            // A record is at least eleven bytes.
            prop_assert!(message.texts().count() <= bytes.len() / 11);
        }
    }

    #[test]
    fn damaged_answers_never_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
    ) {
        let records: [(&[u8], u16, &[u8]); 4] = [
            (OWNER, 5, &[3, b'w', b'w', b'w', 0xc0, 12]),
            (&[0xc0, 41], 1, &[192, 0, 2, 1]),
            (OWNER, 16, b"\x04abcd\x00"),
            (OWNER, 33, &[0, 1, 0, 2, 0, 53, 0xc0, 12]),
        ];
        let mut message = answer(&question(), 7, 0, &records);
        for (index, byte) in damage {
            let index = index.index(message.len());
            message[index] = byte;
        }
        let _ = Message::decode(&message);
        let _ = Message::decode(&message[..length.index(message.len())]);
    }

    #[test]
    fn queries_are_read_back(
        labels in proptest::collection::vec("[a-z0-9_-]{1,20}", 0..6),
        id in any::<u16>(),
        kind in any::<u16>(),
    ) {
        let name = labels.join(".");
        let question = Question::new(&name, DnsType(kind), DnsClass::IN).unwrap();
        let mut message = question.encode(id, true);
        message[2] |= 0x80;
        let read = Message::decode(&message).unwrap();
        prop_assert!(question.is_answered_by(&read, id));
    }
}
