// Promtext parses kubelet bodies as Go programs do: `promtext textparse|expfmt|expfmt-encode PASSES FOLDER`.
//
// metrics-server and Prometheus use textparse, most other programs expfmt.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"kubevitals/bench/go/internal/worker"
)

func main() {
	if len(os.Args) != 4 {
		worker.Fail("usage: promtext textparse|expfmt|expfmt-encode PASSES FOLDER")
	}
	passes, err := strconv.Atoi(os.Args[2])
	if err != nil || passes < 1 {
		worker.Fail(fmt.Sprintf("not a number of passes: %q", os.Args[2]))
	}
	files, err := filepath.Glob(filepath.Join(os.Args[3], "*.prom"))
	if err != nil || len(files) == 0 {
		worker.Fail("no bodies in " + os.Args[3])
	}
	var bodies [][]byte
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			worker.Fail(err)
		}
		bodies = append(bodies, body)
	}
	switch os.Args[1] {
	case "textparse":
		worker.Serve(passes, func() uint64 { return sum(bodies, viaTextparse) })
	case "expfmt":
		worker.Serve(passes, func() uint64 { return sum(bodies, viaExpfmt) })
	case "expfmt-encode":
		encode(passes, bodies)
	default:
		worker.Fail(fmt.Sprintf("unknown mode %q", os.Args[1]))
	}
}

func sum(bodies [][]byte, parse func([]byte) uint64) (samples uint64) {
	for _, body := range bodies {
		samples += parse(body)
	}
	return samples
}

// viaTextparse reads every value, timestamp and label set.
func viaTextparse(body []byte) (samples uint64) {
	parser, err := textparse.New(body, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		worker.Fail(err)
	}
	var found labels.Labels
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples
		}
		if err != nil {
			worker.Fail(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		parser.Series()
		parser.Labels(&found)
		samples++
	}
}

func viaExpfmt(body []byte) (samples uint64) {
	for _, family := range families(body) {
		samples += uint64(len(family.Metric))
	}
	return samples
}

// encode writes the parsed families, and counts the bytes.
func encode(passes int, bodies [][]byte) {
	var documents []map[string]*dto.MetricFamily
	for _, body := range bodies {
		documents = append(documents, families(body))
	}
	var out bytes.Buffer
	worker.Serve(passes, func() (written uint64) {
		for _, document := range documents {
			out.Reset()
			for _, family := range document {
				if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
					worker.Fail(err)
				}
			}
			written += uint64(out.Len())
		}
		return written
	})
}

func families(body []byte) map[string]*dto.MetricFamily {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		worker.Fail(err)
	}
	return families
}
