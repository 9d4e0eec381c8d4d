package main

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// native writes lines of `most buckets;nanoseconds …;schema;zeros;offset:length …;delta …`.
func native() *bytes.Buffer {
	out := &bytes.Buffer{}
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []uint32{160, 20, 8, 5} {
		for _, spread := range []float64{1, 6, 20, 30} {
			for _, count := range []int{1, 5, 40, 300} {
				nanoseconds := make([]int64, count)
				for i := range nanoseconds {
					// Whole powers of two of a second end a bucket: some of them, and zeros, among the rest.
					switch random.IntN(8) {
					case 0:
						nanoseconds[i] = 0
					case 1:
						nanoseconds[i] = 1_000_000_000 << random.IntN(6)
					default:
						nanoseconds[i] = int64(math.Exp2(random.Float64()*spread) * 1_000_000)
					}
				}
				line(out, most, nanoseconds)
			}
		}
	}
	return out
}

func line(out *bytes.Buffer, most uint32, nanoseconds []int64) {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:                           "h",
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: most,
	})
	for _, one := range nanoseconds {
		histogram.Observe(seconds(one))
	}
	var metric dto.Metric
	if err := histogram.Write(&metric); err != nil {
		log.Fatal(err)
	}
	h := metric.GetHistogram()
	fmt.Fprintf(out, "%d;", most)
	for i, one := range nanoseconds {
		fmt.Fprintf(out, "%s%d", separator(i), one)
	}
	fmt.Fprintf(out, ";%d;%d;", h.GetSchema(), h.GetZeroCount())
	for i, span := range h.GetPositiveSpan() {
		fmt.Fprintf(out, "%s%d:%d", separator(i), span.GetOffset(), span.GetLength())
	}
	fmt.Fprint(out, ";")
	for i, delta := range h.GetPositiveDelta() {
		fmt.Fprintf(out, "%s%d", separator(i), delta)
	}
	fmt.Fprintln(out)
}

// seconds divides as Rust's Duration::as_secs_f64 does, so that both observe the very same number.
func seconds(nanoseconds int64) float64 {
	return float64(nanoseconds/1_000_000_000) + float64(nanoseconds%1_000_000_000)/1e9
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return " "
}
