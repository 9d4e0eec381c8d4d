package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
)

// floats writes lines of: bits of the value in hexadecimal, a blank, Go's shortest form.
func floats() *bytes.Buffer {
	values := []float64{
		0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1),
		math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 2.2250738585072014e-308,
		2.225073858507201e-308, 0.1, 0.2, 0.1 + 0.2, 1.0 / 3, 2.0 / 3, math.Pi, math.E,
		99999, 100000, 100001, 999999, 999999.5, 999999.9999999999, 1000000, 1000000.5, 1000001,
		0.0001, 0.00009999999999999999, 0.00010000000000000002, 0.00001, 0.000123456,
		278528, 846692352, 1794773276.4789672, 3.248510285, 0.025964729, 1e15, 1e15 + 1, 1e16,
		123456789012345, 1234567890123456, 12345678901234567, 1 << 52, 1<<53 - 1, 1 << 53, 1<<53 + 2,
		1e20, 1e21, 1e22, 1e23, 9.5e22, 5e-324, 1e-323, 4.35, 8.41, 9.007199254740993e15,
		// Halfway between two shortest decimals: Go takes the even one.
		261639015878430.125, 261639015878430.375, 1125899906842624.125, 0.5, 2.5, 4503599627370497.5,
	}
	for exponent := -330; exponent <= 308; exponent += 11 {
		for _, mantissa := range []string{"1", "9.999999999999999", "1.2345678901234567"} {
			value, _ := strconv.ParseFloat(fmt.Sprintf("%se%d", mantissa, exponent), 64)
			values = append(values, value)
		}
	}
	for power := -1074; power <= 1023; power += 57 {
		value := math.Ldexp(1, power)
		values = append(values, value, math.Nextafter(value, 0), math.Nextafter(value, math.Inf(1)))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 120 {
		values = append(values, math.Float64frombits(random.Uint64()))
	}
	for range 60 {
		// Nanoseconds as seconds, with a unit in the last place more or less at times.
		value := float64(random.Uint64()>>(random.Uint64()%60)) / 1e9
		values = append(values, value, math.Nextafter(value, float64(random.Uint64())))
	}
	for range 40 {
		// Many of these lie halfway between two decimals of seventeen digits.
		values = append(values, float64(random.Uint64()>>11)/8, float64(random.Uint64()>>11)/32)
	}
	out := &bytes.Buffer{}
	for _, value := range values {
		fmt.Fprintf(out, "%016x %s\n", math.Float64bits(value), strconv.FormatFloat(value, 'g', -1, 64))
	}
	return out
}
