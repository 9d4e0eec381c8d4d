package main

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand"
	"strings"

	inf "gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

// canonical prints without the text that ParseQuantity may have kept from its input ("+5" and "1.234" stay as written).
func canonical(q resource.Quantity) string {
	number, suffix := q.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}

// roundedAway is the documented rule of Value and MilliValue: up to the next integer away from zero.
func roundedAway(q resource.Quantity, scale resource.Scale) *big.Int {
	copied := q.DeepCopy()
	return new(inf.Dec).Round(copied.AsDec(), inf.Scale(-scale), inf.RoundUp).UnscaledBig()
}

// scaled is what Go answers, "-" where the documented answer does not fit an int64 (Go then wraps or answers zero),
// and false where Go departs from its documentation (it rounds negative values held as big decimals upwards).
func scaled(q resource.Quantity, scale resource.Scale) (string, bool) {
	want := roundedAway(q, scale)
	if !want.IsInt64() {
		return "-", true
	}
	copied := q.DeepCopy()
	got := copied.ScaledValue(scale)
	return fmt.Sprint(got), got == want.Int64()
}

func errorKind(err error) string {
	switch {
	case errors.Is(err, resource.ErrFormatWrong):
		return "format"
	case errors.Is(err, resource.ErrNumeric):
		return "numeric"
	case errors.Is(err, resource.ErrSuffix):
		return "suffix"
	}
	return "other"
}

// survives says whether the canonical text still means the same number. Beyond E and Ei it does not: Go drops the suffix.
func survives(q resource.Quantity) bool {
	again, err := resource.ParseQuantity(canonical(q))
	return err == nil && again.Cmp(q) == 0
}

func parseInputs() []string {
	inputs := []string{
		"", "0", "00", "-0", "+0", "+", "-", ".", "+.", "-.", "..", "1..2", "1.2.3", "--1", "+-1", "1-", "1+", " 1", "1 ", "1 k",
		"m", "n", "u", "k", "Ki", "Mi", "Ti", "Pi", "Ei", "+Ei", ".Ei", ".Pi", ".Ti", "E", "e", "i", "e5", "e-9", "e-10", ".e-10",
		"1i", "1K", "1g", "1t", "1p", "1ki", "1KI", "1mi", "1ni", "1Kii", "1Kib", "1KiB", "1B", "1kB", "1mm", "1m5", "1k1", "1Ki1",
		"1e", "1E", "1e3", "1E3", "1e+3", "1e-3", "1e+", "1e-", "1ee3", "1e3.5", "1e3k", "1e 3", "1e03", "1e00", "1e-0", "1EE", "1E1E",
		"1e9223372036854775808", "1e99999999999999999999", "0e5", "0e-50", "0.0e12", "1e-9", "1e-10", "1e-300", "9e-10", "-1e-10",
		"1e1", "1e2", "1e4", "1e5", "12e2", "120e2", "1.5e3", "1.5e2", "1e18", "1e19", "1e20", "1e28", "100e18", "1000e3",
		"0x10", "1_000", "1,5", "1'000", "\u0661", "\uff11", "1\u00b5", "NaN", "Inf", "inf", "nil", "null", "true", "\"1\"",
		"1.", "1.m", "1.Ki", "1.Ei", ".5", ".5m", ".5Ki", "-.5", "+.5", "0.5", "0.05", "0.005", "1.234", "1.2345", "+5", "005", "-005", "+00.50",
		"0.1n", "0.5n", "0.9n", "1.1n", "-0.1n", "0.0001u", "0.0000000001", "0.00000000001", "-0.00000000001", "1.0000000001", "1.000000000",
		"0.000000000000000000000000000000000000000001", "0.000000000000000000000000000000000000000000", "1.000000000000000000000000000000000000000000",
		"0.0000000009Ki", "0.0009Ki", "0.001Ki", "0.0001Mi", "1.0001Ki", "0.999999999999999999999Ki", "1.00000000000000000000001Ki", "0.1Ki", "0.3Ei", "1.1Ei",
		"0.0000000000000000008673617379884035472059622406959533691406250Ei", "0.5Ei", "7.9999999999999999999Ei", "7.99999999999999999999999999Ei",
		"1024", "1024Ki", "1023Ki", "1025Ki", "2048Ki", "1536Ki", "1.5Gi", "1.25Mi", "0.5Gi", "0.0009765625Ki", "1000Ki", "1023.5Ki", "1048576Ki",
		"7Ei", "8Ei", "9Ei", "-7Ei", "-8Ei", "-9Ei", "1024Ei", "8191Pi", "8192Pi", "8193Pi", "9007199254740991Ki", "9007199254740992Ki", "99999999999999999999Ki",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
		"9223372036854775807n", "9223372036854775807u", "9223372036854775807m", "9223372036854775807k", "9223372036854775808n", "92233720368547758070n",
		"999999999999999999", "1000000000000000000", "1000000000000000001", "999999999999999999E", "12345678901234567890E",
		"123456789012345678", "1234567890123456789", "12345678901234567890", "0.123456789012345678", "0.1234567890123456789", "123456789.123456789", "123456789.1234567891",
		"100m", "1000m", "1500m", "10000m", "999m", "250m", "1000000n", "1000001n", "4710169n", "12345u", "12345000n", "5m", "12240Ki", "3Mi", "129e6", "128974848", "129M", "123Mi",
		"100k", "1000k", "1000M", "1000G", "1000T", "1000P", "1E", "10E", "100E", "999E", "0.1E", "0.001E", "1M", "1G", "1T", "1P", "1.5E", "1.0005k",
	}
	for _, sign := range []string{"", "-", "+"} {
		for _, number := range []string{"1", "10", "999", "1000", "1.5", "0.001"} {
			for _, suffix := range []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e6", "E-6"} {
				inputs = append(inputs, sign+number+suffix)
			}
		}
	}
	random := rand.New(rand.NewSource(1))
	suffixes := []string{"", "", "n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e-7", "e5"}
	for range 200 {
		number := fmt.Sprint(random.Int63n(int64(math.Pow10(1 + random.Intn(14)))))
		if random.Intn(2) == 0 {
			number += "." + fmt.Sprint(random.Int63n(int64(math.Pow10(1+random.Intn(15)))))
		}
		if random.Intn(4) == 0 {
			number = "-" + number
		}
		inputs = append(inputs, number+suffixes[random.Intn(len(suffixes))])
	}
	for range 120 {
		alphabet := "0123456789.+-eEinumkKMGTP"
		var text strings.Builder
		for range 1 + random.Intn(5) {
			text.WriteByte(alphabet[random.Intn(len(alphabet))])
		}
		inputs = append(inputs, text.String())
	}
	return unique(inputs)
}

func quantityParse() []string {
	lines := []string{"# input, format (or err and the kind of error), canonical text, Value, MilliValue (- where it does not fit an int64)"}
	for _, input := range parseInputs() {
		q, err := resource.ParseQuantity(input)
		if err != nil {
			lines = append(lines, row(input, "err", errorKind(err)))
			continue
		}
		value, valueAsDocumented := scaled(q, 0)
		milli, milliAsDocumented := scaled(q, resource.Milli)
		if !survives(q) || !valueAsDocumented || !milliAsDocumented {
			continue // These are in quantity_divergences.tsv.
		}
		lines = append(lines, row(input, q.Format, canonical(q), value, milli))
	}
	return lines
}

func quantityDivergences() []string {
	lines := []string{"# where the crate departs from Go: input, Go's canonical text, the same number, Go's Value, Value as documented (- where it does not fit an int64)"}
	for _, input := range append(parseInputs(), "-1.0000000001", "-1.5000000000000000001", "-2.25Ei", "-0.0000000001", "1e21", "1e24", "1000000E") {
		q, err := resource.ParseQuantity(input)
		if err != nil {
			continue
		}
		_, valueAsDocumented := scaled(q, 0)
		_, milliAsDocumented := scaled(q, resource.Milli)
		if survives(q) && valueAsDocumented && milliAsDocumented {
			continue
		}
		documented := roundedAway(q, 0)
		text := documented.String()
		if !documented.IsInt64() {
			text = "-"
		}
		copied := q.DeepCopy()
		number := copied.AsDec().String()
		if len(number) > 30 {
			continue // Beyond what the crate holds.
		}
		lines = append(lines, row(input, canonical(q), number, q.Value(), text))
	}
	return unique(lines)
}

func interestingInts() []int64 {
	ints := []int64{0, 1, 2, 9, 10, 99, 100, 512, 999, 1000, 1001, 1023, 1024, 1025, 1536, 2000, 2047, 2048, 4710169, 12345000, 5000000, 12533760, 3145728, math.MaxInt64, math.MaxInt64 - 807}
	for exponent, power := 0, int64(1); exponent < 19; exponent, power = exponent+1, power*10 {
		ints = append(ints, power, power+1, power-1)
		if exponent < 18 {
			ints = append(ints, 5*power, 9*power)
		}
	}
	for shift := range 63 {
		ints = append(ints, 1<<shift, 1<<shift-1)
		if shift < 61 {
			ints = append(ints, 3<<shift)
		}
	}
	random := rand.New(rand.NewSource(2))
	for range 100 {
		ints = append(ints, random.Int63()>>random.Intn(63))
	}
	for range 40 {
		ints = append(ints, (random.Int63()>>(30+random.Intn(30)))*1000, (random.Int63()>>(30+random.Intn(30)))*1024)
	}
	return unique(ints)
}

func quantityNew() []string {
	lines := []string{"# integer, NewScaledQuantity(integer, Nano), NewQuantity(integer, BinarySI)"}
	for _, value := range interestingInts() {
		lines = append(lines, row(value, resource.NewScaledQuantity(value, resource.Nano), resource.NewQuantity(value, resource.BinarySI)))
	}
	return lines
}

func quantityPairs() []string {
	lines := []string{"# a, b, Cmp(a, b), canonical a+b, its format, canonical a-b, its format"}
	values := []string{"0", "0Ki", "0e0", "1", "1n", "-1n", "1m", "999m", "1k", "1Ki", "1024", "1e3", "1.5Gi", "-1.5Gi", "2.5", "-250m", "1E", "7Ei", "9223372036854775807", "-9223372036854775807", "123456789.123456789"}
	for _, left := range values {
		for _, right := range values {
			a, b := resource.MustParse(left), resource.MustParse(right)
			sum, difference := a.DeepCopy(), a.DeepCopy()
			sum.Add(b)
			difference.Sub(b)
			if !survives(sum) || !survives(difference) {
				continue
			}
			lines = append(lines, row(left, right, a.Cmp(b), canonical(sum), sum.Format, canonical(difference), difference.Format))
		}
	}
	return lines
}
