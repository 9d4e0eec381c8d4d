use kubevitals_model::{Bytes, CoreNanos, CpuUsage, Quantity};
use proptest::prelude::*;

use crate::config;
use crate::vectors::rows_of;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before ".to_vec();
    write(&mut out);
    let text = str::from_utf8(&out).expect("amounts are ASCII");
    text.strip_prefix("before ")
        .expect("writers append")
        .to_owned()
}

#[test]
fn amounts_print_as_go_prints_them() {
    for [integer, cpu, memory] in rows_of(include_str!("../vectors/quantity_new.tsv")) {
        let integer = integer.parse().unwrap();
        assert_eq!(CpuUsage::from_nanocores(integer).to_string(), cpu);
        assert_eq!(Bytes::new(integer).to_string(), memory);
    }
}

/// All sizes, and many values with zeros at the end in either base.
fn any_amount() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64, 0_u32..19, 0_u32..6).prop_map(|(bits, shift, tens, binary)| {
        let value = bits >> shift;
        let value = value.checked_mul(10_u64.pow(tens)).unwrap_or(value);
        value.checked_mul(1 << (binary * 10)).unwrap_or(value)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_fast_writers_agree_with_the_general_type(amount in any_amount()) {
        let cpu = CpuUsage::from_nanocores(amount);
        let general = Quantity::from(cpu).to_string();
        prop_assert_eq!(&written(|out| cpu.write_to(out)), &general);
        prop_assert_eq!(&cpu.to_string(), &general);

        let memory = Bytes::new(amount);
        let general = Quantity::from(memory).to_string();
        prop_assert_eq!(&written(|out| memory.write_to(out)), &general);
        prop_assert_eq!(&memory.to_string(), &general);
    }

    #[test]
    fn nanoseconds_survive_the_kubelets_division(nanoseconds in 0_u64..1 << 52) {
        #[expect(clippy::cast_precision_loss, reason = "52 bits are exact")]
        let seconds = nanoseconds as f64 / 1e9;
        prop_assert_eq!(CoreNanos::from_seconds(seconds), Ok(CoreNanos::new(nanoseconds)));
    }

    #[test]
    fn any_float_is_converted_or_refused(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let fits = value >= 0.0 && value.is_finite();
        prop_assert!(fits || CoreNanos::from_seconds(value).is_err());
        prop_assert!(fits || Bytes::from_f64(value).is_err());
        prop_assert_eq!(Bytes::from_f64(value).is_ok(), fits && value < 1.844_674_407_370_955_2e19);
    }
}
