package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Bodies of one awkward line each, mostly. Where nothing else is said the newline is added.
var awkward = []string{
	// Names.
	`a 1`, `_ 1`, `: 1`, `a:b 1`, `A9_ 1`, `9a 1`, `a-b 1`, `a.b 1`, `ä 1`, `a-1 2`, `1`, `a`, `a `,
	`{} 1`, `{a="b"} 1`, `{"a"} 1`, `{"a.b"} 1`, `{"a.b",c="d"} 1`, `{ "a.b" } 1`, `a{"b.c"="d"} 1`,
	`"a" 1`, `a"b" 1`,
	// Blanks.
	` a 1`, "\ta 1", "a\t1", `a  1`, `a {} 1`, `a{}1`, `a{} 1`, `a{ } 1`, `a{b="c"}1`, `a { b = "c" , d = "e" } 1 2`,
	"a\t{\tb\t=\t\"c\"\t,\t}\t1\t2", `a 1 `, "a 1\t", `a 1 2 `, `a  1  2`, `a+1`, `a-1`, `a.5`, "a\v1", "a\u00a01",
	// Labels.
	`a{b="c",} 1`, `a{,} 1`, `a{b="c",,} 1`, `a{,b="c"} 1`, `a{b="c" d="e"} 1`, `a{b="c"d="e"} 1`, `a{b} 1`,
	`a{b=} 1`, `a{b=c} 1`, `a{b='c'} 1`, `a{="c"} 1`, `a{9="c"} 1`, `a{b9="c"} 1`, `a{b:c="d"} 1`, `a{b-c="d"} 1`,
	`a{ü="d"} 1`, `a{b="c"`, `a{b="c`, `a{b="`, `a{b=`, `a{b`, `a{`, `a{b="c"} `, `a{b="c"}`, `a{b="c"}} 1`, `a{b="c"}{} 1`,
	`a{b="c",b="d"} 1`, `a{b="c",c="d",b="e"} 1`, `a{__name__="b"} 1`, `a{__name="b"} 1`, `a{b=""} 1`, `a{b="c}"} 1`, `a{b="{"} 1`,
	`a{b="c,d=e"} 1`, `a{b="#"} 1`, "a{b=\"c\td\"} 1", "a{b=\"c\x00d\"} 1", "a{b=\"c\rd\"} 1", "a{b=\"c\nd\"} 1", `a{b="ünï ✓ 𝛑"} 1`,
	"a{b=\"\xff\"} 1", "a{b=\"\xc3\"} 1", "a{b=\"\xed\xa0\x80\"} 1", "a\xff 1",
	// Escapes.
	`a{b="\\"} 1`, `a{b="\""} 1`, `a{b="\n"} 1`, `a{b="\\n"} 1`, `a{b="\\\\\"\n"} 1`, `a{b="\t"} 1`, `a{b="\x"} 1`, `a{b="\"} 1`,
	`a{b="\u0041"} 1`, `a{b="c\`, `a{b="12345678\\"} 1`, `a{b="1234567\"89"} 1`, `a{b="\é"} 1`,
	// Values.
	`a 0`, `a -0`, `a +0`, `a 00`, `a 007`, `a +1`, `a -1`, `a --1`, `a +-1`, `a 1.`, `a .5`, `a .`, `a -.5`, `a 1.5.5`, `a 1e3`, `a 1E3`,
	`a 1e+3`, `a 1e-3`, `a 1e`, `a 1e+`, `a e3`, `a 1e3.5`, `a 1e03`, `a 1e0003`, `a 1e308`, `a 1e309`, `a -1e309`, `a 1.7976931348623157e308`,
	`a 1.7976931348623159e308`, `a 5e-324`, `a 1e-324`, `a 1e-400`, `a 1e99999999999`, `a 1e-99999999999`, `a 0x10`, `a 0x1p4`, `a 0X1P-2`,
	`a 1_000`, `a 0b11`, `a 0o17`, `a 1f`, `a 1d`, `a 1,5`, `a 1;`, `a ١`, `a NaN`, `a nan`, `a NAN`, `a nAn`, `a +NaN`, `a -NaN`, `a NaNs`,
	`a Inf`, `a inf`, `a +Inf`, `a -Inf`, `a +inf`, `a -INF`, `a Infinity`, `a +infinity`, `a -INFINITY`, `a infin`, `a infinit`, `a ∞`, `a Nil`, `a null`, `a true`,
	`a 9007199254740992`, `a 9007199254740993`, `a 9007199254740995`, `a 18446744073709551615`, `a 18446744073709551616`,
	`a 123456789012345678901234567890`, `a 0.000000000000000000000000000001`, `a 1234567.12345678`, `a 3.248510285`, `a 8.46692352e+08`,
	`a 1.7947732764789672e+09`, `a 4503599627370497.5`, `a 9007199254740993.0000000000000000000001`, `a 0.1e1`, `a 1e22`, `a 1e23`,
	`a 2.2250738585072011e-308`, `a 2.2250738585072012e-308`, `a 100000000000000000000000e-23`,
	`a "1"`, `a {1}`, `a 1{`, `a 1}`, `a`,
	// Timestamps.
	`a 1 2`, `a 1 0`, `a 1 -0`, `a 1 -2`, `a 1 +2`, `a 1 007`, `a 1 2.5`, `a 1 2e3`, `a 1 x`, `a 1 -`, `a 1 0x1`, `a 1 1_0`, `a 1 NaN`,
	`a 1 1794773483261`, `a 1 -62135596800000`, `a 1 9223372036854775807`, `a 1 9223372036854775808`, `a 1 -9223372036854775808`, `a 1 -9223372036854775809`,
	`a 1 999999999999999999`, `a 1 1000000000000000000`, `a 1 00000000000000000000000001`, `a 1 2 3`, `a 1 2 # x`, `a 1 # {b="c"} 1`, `a 1 # x`,
	// Comments and metadata.
	`#`, `##`, `# `, `# x`, `#x`, `# HELP`, `# HELP `, `# HELP a`, `# HELP a `, `# HELP a x`, `# HELP a  x y `, "# HELP\ta\tx", `#HELP a x`, `#  HELP a x`, ` # HELP a x`,
	`# help a x`, `# HELPx a x`, `# HELP a-b x`, `# HELP 9 x`, `# HELP "a" x`, `# HELP "a.b" x`, `# HELP a\ x`, `# HELP a{} x`, `# HELP a x\\y\nz`, `# HELP a x\"y`, `# HELP a x"y`, `# HELP a x\y`, `# HELP a x\`,
	"# HELP a \xff", "# x \xff", `# HELP ä x`, `# HELP a ünï`,
	`# TYPE`, `# TYPE `, `# TYPE a`, `# TYPE a `, `# TYPE a counter`, `# TYPE a gauge`, `# TYPE a histogram`, `# TYPE a summary`, `# TYPE a untyped`,
	`# TYPE a Counter`, `# TYPE a GAUGE`, `# TYPE a unknown`, `# TYPE a info`, `# TYPE a stateset`, `# TYPE a gaugehistogram`, `# TYPE a counter `, `# TYPE  a  counter`, `# TYPE a counter x`, `# TYPE a-b counter`, `# TYPE "a" counter`, `#TYPE a counter`,
	`# EOF`, `# UNIT a seconds`, "# HELP a x\n# HELP a y", "# TYPE a gauge\n# TYPE a gauge", "a 1\n# TYPE a gauge",
	"# TYPE a gauge\na 1", "# TYPE a summary\na{quantile=\"x\"} 1", "# TYPE a histogram\na_bucket{le=\"x\"} 1", "# TYPE a histogram\na_bucket{le=\"1\"} -1",
	// Line ends and several lines.
	``, "\n\n", " \n\t\n", "\r", "a 1\r", "a 1 2\r", "a\r", "a{b=\"c\"}\r 1", "a 1\r\nb 2\r", "# HELP a x\r", "# TYPE a gauge\r", "a 1\x00", "a\x00 1", "\x00", "\ufeffa 1",
	"a 1\na 1", "a 1\na 2", "a 1\nb 2\nc 3", "a 1\n-\nc 3", "a 1\n{\nc 3",
	// Bodies that end without a newline, marked with a form feed that is taken away.
	"a 1\f", "a 12\f", "a 1 2\f", "a{b=\"c\"} 1\f", "# x\f", "# HELP a x\f", "# TYPE a gauge\f", "a\f", "a{b=\"\f", " \f", "\f", "a 1\nb\f",
}

// lines writes, for each body, a line of tab-separated fields: the body in hexadecimal, what
// expfmt's parser makes of it, what textparse makes of it, and the body again for the reader.
//
// A result is "error", or the samples, separated by "|": name, labels in order of their names,
// value and timestamp, separated by ";".
func lines() *bytes.Buffer {
	out := &bytes.Buffer{}
	for _, line := range awkward {
		body, cut := strings.CutSuffix(line, "\f")
		if !cut {
			body += "\n"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%q\n", hexOf(body), withExpfmt(body), withTextparse(body), body)
	}
	return out
}

func withExpfmt(body string) string {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return "error"
	}
	var samples []string
	for _, family := range families {
		for _, metric := range family.Metric {
			var value float64
			switch {
			case metric.Counter != nil:
				value = metric.Counter.GetValue()
			case metric.Gauge != nil:
				value = metric.Gauge.GetValue()
			case metric.Untyped != nil:
				value = metric.Untyped.GetValue()
			default:
				continue
			}
			pairs := map[string]string{}
			for _, pair := range metric.Label {
				pairs[pair.GetName()] = pair.GetValue()
			}
			samples = append(samples, sample(family.GetName(), pairs, value, metric.TimestampMs))
		}
	}
	return joined(samples)
}

func withTextparse(body string) string {
	parser := textparse.NewPromParser([]byte(body), labels.NewSymbolTable(), false)
	var samples []string
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return joined(samples)
		}
		if err != nil {
			return "error"
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, timestamp, value := parser.Series()
		var series labels.Labels
		parser.Labels(&series)
		pairs := series.Map()
		name := pairs["__name__"]
		delete(pairs, "__name__")
		samples = append(samples, sample(name, pairs, value, timestamp))
	}
}

func joined(samples []string) string {
	sort.Strings(samples)
	return "ok:" + strings.Join(samples, "|")
}

func sample(name string, pairs map[string]string, value float64, timestamp *int64) string {
	var names []string
	for label := range pairs {
		names = append(names, label)
	}
	sort.Strings(names)
	text := hexOf(name)
	for _, label := range names {
		text += fmt.Sprintf(";%s=%s", hexOf(label), hexOf(pairs[label]))
	}
	if math.IsNaN(value) {
		text += ";NaN"
	} else {
		text += fmt.Sprintf(";%016x", math.Float64bits(value))
	}
	if timestamp != nil {
		text += fmt.Sprintf(";@%d", *timestamp)
	}
	return text
}

func hexOf(text string) string {
	return hex.EncodeToString([]byte(text))
}
