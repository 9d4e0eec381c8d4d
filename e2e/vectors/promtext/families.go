package main

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// A series as the collector gives it, before anything is sorted.
type series struct {
	name, help string
	kind       prometheus.ValueType
	labels     [][2]string
	value      float64
	timestamp  int64 // 0 is none
}

var typeNames = map[prometheus.ValueType]string{
	prometheus.CounterValue: "counter",
	prometheus.GaugeValue:   "gauge",
	prometheus.UntypedValue: "untyped",
}

var unsorted = []series{
	{"zeta", "Last by name", prometheus.GaugeValue, nil, 1, 0},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"pod", "b"}, {"namespace", "x"}, {"container", "c"}}, 3, 1794773483261},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"namespace", "x"}, {"pod", "a"}, {"container", "c"}}, 2, 1794773483260},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"container", "a"}, {"pod", "z"}, {"namespace", "z"}}, 1, -1},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"container", "c"}, {"pod", "B"}, {"namespace", "x"}}, 4, 0},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"container", "c"}, {"pod", ""}, {"namespace", "x"}}, 5, 0},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"container", "c"}, {"pod", "ä"}, {"namespace", "x"}}, 6, 0},
	{"pods", "By label values", prometheus.GaugeValue, [][2]string{{"container", "c"}, {"pod", "a-longer"}, {"namespace", "x"}}, 7, 0},
	{"widths", "By number of labels", prometheus.CounterValue, [][2]string{{"a", "1"}, {"b", "1"}}, 20, 0},
	{"widths", "By number of labels", prometheus.CounterValue, [][2]string{{"z", "0"}}, 12, 0},
	{"widths", "By number of labels", prometheus.CounterValue, nil, 0, 0},
	{"widths", "By number of labels", prometheus.CounterValue, [][2]string{{"a", "9"}}, 19, 0},
	{"widths", "By number of labels", prometheus.CounterValue, [][2]string{{"c", "5"}}, 15, 0},
	{"escapes", "A \\ backslash, a \n newline and a \" quote", prometheus.UntypedValue, [][2]string{{"v", "back\\slash"}}, math.Inf(1), 0},
	{"escapes", "A \\ backslash, a \n newline and a \" quote", prometheus.UntypedValue, [][2]string{{"v", "new\nline"}}, math.Inf(-1), 0},
	{"escapes", "A \\ backslash, a \n newline and a \" quote", prometheus.UntypedValue, [][2]string{{"v", "quo\"te"}}, math.NaN(), 0},
	{"escapes", "A \\ backslash, a \n newline and a \" quote", prometheus.UntypedValue, [][2]string{{"v", "tab\tnul\x00 and ünïcode ✓"}}, math.Copysign(0, -1), 0},
	{"escapes", "A \\ backslash, a \n newline and a \" quote", prometheus.UntypedValue, [][2]string{{"v", "\\\\n\\\"\n\n"}}, 1e6, 0},
	{"no_help", "", prometheus.GaugeValue, nil, 278528, 0},
	{"blank_help", "  two blanks first, one last ", prometheus.GaugeValue, nil, 8.46692352e+08, 0},
	{"Capital", "Before small letters", prometheus.GaugeValue, nil, 0.0001, 0},
	{"a:colon", "Sorts by byte", prometheus.GaugeValue, nil, 0.00001, 0},
	{"a_underscore", "Sorts by byte", prometheus.GaugeValue, nil, -1, 0},
	{"a9", "Sorts by byte", prometheus.GaugeValue, nil, 123456.789, 0},
}

type collector struct{}

// Describe sends nothing, so that the registry checks nothing beforehand.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (collector) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range unsorted {
		var names, values []string
		for _, label := range one.labels {
			names = append(names, label[0])
			values = append(values, label[1])
		}
		description := prometheus.NewDesc(one.name, one.help, names, nil)
		metric := prometheus.MustNewConstMetric(description, one.kind, one.value, values...)
		if one.timestamp != 0 {
			metric = prometheus.NewMetricWithTimestamp(time.UnixMilli(one.timestamp), metric)
		}
		metrics <- metric
	}
	tenant := []string{"zone"}
	latency := prometheus.NewDesc("latency_seconds", "A histogram", tenant, nil)
	buckets := map[float64]uint64{10: 6, 0.5: 2, 2: 4, 0.25: 1, 100: 7}
	for _, zone := range []string{"b", "a"} {
		metrics <- prometheus.MustNewConstHistogram(latency, 8, 123.5, buckets, zone)
	}
	duration := prometheus.NewDesc("duration_seconds", "A summary", tenant, nil)
	quantiles := map[float64]float64{0.99: 5, 0.5: 1, 0.9: 3}
	for _, zone := range []string{"b", "a"} {
		metrics <- prometheus.MustNewConstSummary(duration, 9, 12.25, quantiles, zone)
	}
}

// familiesInput writes the series in the order in which the collector gives them: a line per
// series of tab-separated fields: name, help, type, value, timestamp, then label names and values.
// Texts are in hexadecimal, values are the bits of the number. Histograms and summaries are in
// the output only.
func familiesInput() *bytes.Buffer {
	out := &bytes.Buffer{}
	for _, one := range unsorted {
		timestamp := ""
		if one.timestamp != 0 {
			timestamp = fmt.Sprint(one.timestamp)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%016x\t%s", one.name, hexOf(one.help), typeNames[one.kind], math.Float64bits(one.value), timestamp)
		for _, label := range one.labels {
			fmt.Fprintf(out, "\t%s\t%s", label[0], hexOf(label[1]))
		}
		fmt.Fprintln(out)
	}
	return out
}

// families writes what a scrape of the collector gives.
func families() *bytes.Buffer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{})
	gathered, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	out := &bytes.Buffer{}
	encoder := expfmt.NewEncoder(out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range gathered {
		if err := encoder.Encode(family); err != nil {
			log.Fatal(err)
		}
	}
	return out
}
