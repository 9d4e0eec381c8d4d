package main

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"time"
)

func durationParse() []string {
	lines := []string{"# input, nanoseconds (or err and the kind of error)"}
	inputs := []string{
		"", "0", "-0", "+0", "00", "0s", "-0s", "+", "-", ".", "s", ".s", "-.s", "1", "15", "1.5", "-15", "+15", "3s4", "1s 2s", " 1s", "1s ", "1 s",
		"5s", "30s", "1478s", "-5s", "+5s", "5.0s", "5.6s", "5.s", ".5s", "1.0s", "1.00s", "1.004s", "1.0040s", "100.00100s", "+.5s", "-.5s", "--5s", "+-5s",
		"10ns", "11us", "12µs", "12μs", "13ms", "14s", "15m", "16h", "3h30m", "10.5s4m", "-2m3.4s", "1h2m3s4ms5us6ns", "39h9m14.425s", "1m1m1m", "1ns1h",
		"52763797000ns", "0.3333333333333333333h", "9007199254740993ns", "9223372036854775807ns", "9223372036854775.807us", "9223372036s854ms775us807ns",
		"-9223372036854775808ns", "-9223372036854775.808us", "-9223372036s854ms775us808ns", "-9223372036854775809ns", "9223372036854775808ns", "9223372036854775.808us",
		"9223372036854ms775us808ns", "-9223372036854ms775us809ns", "-2562047h47m16.854775808s", "2562047h47m16.854775807s", "2562047h47m16.854775808s", "2562048h", "-2562048h",
		"3000000h", "9999999999999999999ns", "99999999999999999999999s", "153722867280912930m", "153722867280912931m", "0.100000000000000000000h", "0.830103483285477580700h",
		"0.9223372036854775807h", "0.92233720368547758080h", "0.99999999999999999999s", "1.9999999999s", "0.0000000001s", "0.1ns", "1.9ns", "0.000000001s", "0.0000000015s", "1.1h", "1.5h", "0.7m", "2.3ms", "4.35us", "0.1h0.1m0.1s0.1ms",
		"1d", "1w", "1y", "1S", "1M", "1H", "1sec", "1min", "1hour", "1mS", "1hh", "1h1", "1.5.3s", "1..5s", "1.5s.5", "1.5s.5s", "1e3s", "1_0s", "0x1s", "1\u00b5", "1\u00b5m", "NaN", "Inf", "infs", "1,5s", "\u0661s", "1s\u00e9", "é1s",
	}
	random := rand.New(rand.NewSource(3))
	units := []string{"ns", "us", "µs", "ms", "s", "m", "h"}
	for range 150 {
		var text strings.Builder
		text.WriteString([]string{"", "", "-", "+"}[random.Intn(4)])
		for range 1 + random.Intn(3) {
			fmt.Fprint(&text, random.Int63n(int64(math.Pow10(1+random.Intn(6)))))
			if random.Intn(2) == 0 {
				fmt.Fprintf(&text, ".%0*d", 1+random.Intn(12), random.Int63n(int64(math.Pow10(1+random.Intn(12)))))
			}
			text.WriteString(units[random.Intn(len(units))])
		}
		inputs = append(inputs, text.String())
	}
	for _, input := range unique(inputs) {
		duration, err := time.ParseDuration(input)
		switch {
		case err == nil:
			lines = append(lines, row(input, int64(duration)))
		case strings.HasPrefix(err.Error(), "time: missing unit"):
			lines = append(lines, row(input, "err", "missing"))
		case strings.HasPrefix(err.Error(), "time: unknown unit"):
			lines = append(lines, row(input, "err", "unknown"))
		default:
			lines = append(lines, row(input, "err", "invalid"))
		}
	}
	return lines
}

func durationString() []string {
	lines := []string{"# nanoseconds, String()"}
	values := []int64{0, 1, 999, 1000, 1001, 1100, 999999, 1000000, 1000001, 2200000, 999999999, 1000000000, 1000000001, 3300000000, 14964000000, 15000000000, 60000000000, 60500000000, 3600000000000, 3600000000001, 5400000000000, 86400000000000, math.MaxInt64, math.MinInt64, math.MinInt64 + 1}
	for power := int64(1); power < 1e18; power *= 10 {
		values = append(values, power, 5*power, 12*power/10)
	}
	random := rand.New(rand.NewSource(4))
	for range 120 {
		values = append(values, random.Int63()>>random.Intn(62))
		values = append(values, random.Int63n(600_000)*1_000_000)
	}
	for _, value := range unique(values) {
		lines = append(lines, row(value, time.Duration(value)))
		if value > 0 && value%3 == 0 {
			lines = append(lines, row(-value, time.Duration(-value)))
		}
	}
	return lines
}

func timeFormat() []string {
	lines := []string{"# milliseconds since the epoch, RFC 3339 in UTC in whole seconds (as metav1.Time), the same with milliseconds"}
	values := []int64{0, 1, 999, 1000, -1, -999, -1000, -1001, 1_700_000_000_000, 1_763_000_000_123, -62_135_596_800_000, -62_135_596_800_001, -62_167_219_200_000, -62_167_219_200_001, 253_402_300_799_999, 253_402_300_800_000, 4_102_444_800_000, math.MaxInt64, math.MinInt64}
	for _, year := range []int{-400, -1, 0, 1, 4, 100, 400, 1582, 1600, 1899, 1900, 1904, 1969, 1970, 1972, 1999, 2000, 2001, 2023, 2024, 2026, 2037, 2038, 2100, 2400, 9999, 10000, 123456} {
		for _, monthDay := range [][2]int{{1, 1}, {2, 28}, {2, 29}, {3, 1}, {12, 31}} {
			values = append(values, time.Date(year, time.Month(monthDay[0]), monthDay[1], 23, 59, 59, 999_000_000, time.UTC).UnixMilli())
		}
	}
	random := rand.New(rand.NewSource(5))
	for range 80 {
		values = append(values, random.Int63n(8_000_000_000_000)-2_000_000_000_000)
	}
	for _, value := range unique(values) {
		instant := time.UnixMilli(value).UTC()
		lines = append(lines, row(value, instant.Format(time.RFC3339), instant.Format("2006-01-02T15:04:05.000Z07:00")))
	}
	return lines
}

func timeParse() []string {
	lines := []string{"# input, milliseconds since the epoch rounded down (or err), as metav1.Time reads it: time.Parse with the layout RFC3339"}
	inputs := []string{
		"", "Z", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05z", "2026-01-02t03:04:05Z", "2026-01-02 03:04:05Z", "2026-01-02T03:04Z",
		"2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.12Z", "2026-01-02T03:04:05.123Z", "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123999Z", "2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05.9999999999999Z", "2026-01-02T03:04:05,5Z", "2026-01-02T03:04:05.5",
		"2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05+05:30", "2026-01-02T03:04:05-08:00", "2026-01-02T03:04:05.000001+23:59", "2026-01-02T03:04:05+24:00", "2026-01-02T03:04:05-24:60", "2026-01-02T03:04:05+25:00", "2026-01-02T03:04:05+12:60", "2026-01-02T03:04:05+12:61", "2026-01-02T03:04:05+1:00", "2026-01-02T03:04:05+0100", "2026-01-02T03:04:05+01", "2026-01-02T03:04:05+01:0",
		"2026-00-02T03:04:05Z", "2026-13-02T03:04:05Z", "2026-01-00T03:04:05Z", "2026-01-32T03:04:05Z", "2026-02-29T03:04:05Z", "2024-02-29T03:04:05Z", "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-06-30T23:59:60Z", "2026-06-30T24:00:00Z", "2026-06-30T23:60:00Z",
		"2026-1-02T03:04:05Z", "2026-01-2T03:04:05Z", "2026-01-02T3:04:05Z", "2026-01-02T3:4:05Z", "2026-01-02T:04:05Z", "2026-01-02T3:04:05,25+01:00", "2026-01-02T03:04:5Z", "2026-01-02T003:04:05Z", "26-01-02T03:04:05Z", "12026-01-02T03:04:05Z", "+2026-01-02T03:04:05Z", "-0001-01-02T03:04:05Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00",
		"1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.9999Z", "1970-01-01T00:00:00.0009Z", " 2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z ", "2026-01-02T03:04:05ZZ", "2026-01-02T03:04:05Z+01:00", "2026-01-02T03:04:05\u00b5", "2026/01/02T03:04:05Z", "2026-01-02T03.04.05Z", "2026-0a-02T03:04:05Z", "\u0662026-01-02T03:04:05Z",
	}
	random := rand.New(rand.NewSource(6))
	for range 60 {
		zone := time.FixedZone("", (random.Intn(1440*2-2)-1439)*60)
		instant := time.Unix(random.Int63n(8_000_000_000)-2_000_000_000, random.Int63n(1_000_000_000)).In(zone)
		inputs = append(inputs, instant.Format([]string{time.RFC3339, time.RFC3339Nano, "2006-01-02T15:04:05.000000Z07:00"}[random.Intn(3)]))
	}
	for _, input := range unique(inputs) {
		if instant, err := time.Parse(time.RFC3339, input); err != nil {
			lines = append(lines, row(input, "err"))
		} else {
			lines = append(lines, row(input, instant.UnixMilli()))
		}
	}
	return lines
}
