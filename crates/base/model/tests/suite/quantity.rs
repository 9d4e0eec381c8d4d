use kubevitals_model::{Format, ModelError, Quantity};
use proptest::prelude::*;

use crate::config;
use crate::vectors::{rows, rows_of};

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn go_name(format: Format) -> &'static str {
    match format {
        Format::DecimalSi => "DecimalSI",
        Format::BinarySi => "BinarySI",
        Format::DecimalExponent => "DecimalExponent",
    }
}

fn or_dash(value: Option<i64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[test]
fn texts_are_parsed_as_in_go() {
    for fields in rows(include_str!("../vectors/quantity_parse.tsv")) {
        match fields[..] {
            [input, "err", kind] => {
                let error = input.parse::<Quantity>().expect_err(input);
                let ours = match error {
                    ModelError::QuantityInvalid { .. } => "format",
                    ModelError::QuantityWithoutDigits { .. } => "numeric",
                    ModelError::QuantitySuffixUnknown { .. } => "suffix",
                    _ => "other",
                };
                assert_eq!(ours, kind, "{input}");
            }
            // Beyond the bound that the type documents.
            ["999999999999999999E" | "12345678901234567890E", ..] => {
                let error = fields[0].parse::<Quantity>().expect_err(fields[0]);
                assert!(
                    matches!(error, ModelError::QuantityOutOfRange { .. }),
                    "{error}"
                );
            }
            [input, format, canonical, value, milli] => {
                let quantity = parse(input);
                assert_eq!(go_name(quantity.format()), format, "{input}");
                assert_eq!(quantity.to_string(), canonical, "{input}");
                assert_eq!(or_dash(quantity.value()), value, "{input}");
                assert_eq!(or_dash(quantity.milli_value()), milli, "{input}");
            }
            _ => panic!("unexpected line {fields:?}"),
        }
    }
}

#[test]
fn pairs_compare_and_add_as_in_go() {
    for [a, b, order, sum, sum_format, difference, difference_format] in
        rows_of(include_str!("../vectors/quantity_pairs.tsv"))
    {
        let (left, right) = (parse(a), parse(b));
        assert_eq!((left.cmp(&right) as i8).to_string(), order, "{a} and {b}");
        let added = left.checked_add(right).unwrap();
        assert_eq!(
            (added.to_string().as_str(), go_name(added.format())),
            (sum, sum_format)
        );
        let subtracted = left.checked_sub(right).unwrap();
        assert_eq!(
            (
                subtracted.to_string().as_str(),
                go_name(subtracted.format())
            ),
            (difference, difference_format)
        );
    }
}

#[test]
fn where_go_loses_the_number_it_is_kept() {
    for [input, go_text, number, go_value, value] in
        rows_of(include_str!("../vectors/quantity_divergences.tsv"))
    {
        let quantity = parse(input);
        assert_eq!(parse(number), quantity, "{input}");
        assert_eq!(parse(&quantity.to_string()), quantity, "{input}");
        assert_eq!(or_dash(quantity.value()), value, "{input}");
        assert!(
            quantity.to_string() != go_text || value != go_value,
            "{input} no longer diverges"
        );
    }
}

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::DecimalSi),
        Just(Format::BinarySi),
        Just(Format::DecimalExponent)
    ]
}

/// All sizes, and many values with zeros at the end in either base.
fn any_quantity() -> impl Strategy<Value = Quantity> {
    let nanos =
        (any::<i128>(), 0_u32..127, 0_u32..20, 0_u32..8).prop_map(|(bits, shift, tens, binary)| {
            let rounded = (bits >> shift).checked_mul(10_i128.pow(tens));
            rounded
                .and_then(|n| n.checked_mul(1 << (binary * 10)))
                .unwrap_or(bits >> shift)
        });
    (nanos, any_format()).prop_map(|(nanos, format)| Quantity::from_nanos(nanos, format))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_printed_is_read_back(quantity in any_quantity()) {
        let text = quantity.to_string();
        let again = parse(&text);
        // A binary quantity has a cap when it is read, which sums may exceed.
        let cap = i128::from(i64::MAX) * 1_000_000_000;
        let capped = again.format() == Format::BinarySi && quantity.nanos().abs() > cap;
        prop_assert!(capped || again == quantity, "{text}");
        if !capped {
            prop_assert_eq!(again.with_format(quantity.format()).to_string(), text);
        }
    }

    #[test]
    fn arbitrary_text_is_read_or_refused(text in any::<String>()) {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn text_of_the_right_letters_is_read_or_refused(text in "[-+]?[0-9]{0,45}\\.?[0-9]{0,45}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,20}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let canonical = quantity.to_string();
            prop_assert_eq!(parse(&canonical), quantity);
            prop_assert_eq!(parse(&canonical).with_format(quantity.format()).to_string(), canonical);
        }
    }

    #[test]
    fn order_and_sum_agree_with_the_numbers(a in any::<i64>(), b in any::<i64>(), left in any_format(), right in any_format()) {
        let (first, second) = (Quantity::new(a, left), Quantity::new(b, right));
        prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        prop_assert_eq!(first.checked_add(second).unwrap().value(), a.checked_add(b));
        prop_assert_eq!(first.checked_sub(second).unwrap().value(), a.checked_sub(b));
        prop_assert_eq!(first == second, a == b);
    }

    #[test]
    fn fractions_of_binary_quantities_are_exact(whole in 0_u64..1_000_000, fraction in "[0-9]{1,12}", power in 1_u32..=3) {
        let suffix = ["", "Ki", "Mi", "Gi"][power as usize];
        let places = u32::try_from(fraction.len()).unwrap();
        let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
        let nanos = ((digits << (power * 10)) * 1_000_000_000).div_ceil(10_u128.pow(places));
        prop_assert_eq!(parse(&format!("{whole}.{fraction}{suffix}")).nanos(), i128::try_from(nanos).unwrap());
    }
}
