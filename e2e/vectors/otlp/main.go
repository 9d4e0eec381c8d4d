// Command otlp writes messages of OTLP, encoded by the official Go types, for the tests of crates/export/otlp.
//
//	go run . ../../../crates/export/otlp/tests/vectors
package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const schema = "https://opentelemetry.io/schemas/1.37.0"

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: otlp FOLDER"))
	}
	write("request.pb", marshal(request()))
	write("metrics.pb", marshal(metricsRequest()))
	write("partial.pb", marshal(&collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "too old"},
	}))
	info, err := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(3500 * time.Millisecond)})
	if err != nil {
		fail(err)
	}
	help, err := anypb.New(&errdetails.Help{Links: []*errdetails.Help_Link{{Description: "limits", Url: "https://a.example"}}})
	if err != nil {
		fail(err)
	}
	exhausted := marshal(&status.Status{Code: 8, Message: "full", Details: []*anypb.Any{help, info}})
	write("exhausted.txt", []byte(base64.RawStdEncoding.EncodeToString(exhausted)))
}

// request is what src/encode.rs builds in its test.
func request() *collector.ExportTraceServiceRequest {
	trace1 := []byte{0xb3, 0x7f, 0x14, 0xa9, 0x3b, 0xf4, 0x45, 0x8b, 0x8c, 0xfd, 0xe3, 0xc6, 0xa7, 0xa6, 0x1b, 0x4a}
	root := []byte("rootspan")
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.instance.id", "a-0"),
			text("service.name", "kubevitals"),
			text("service.version", "1.2.3"),
		}},
		ScopeSpans: []*trace.ScopeSpans{{
			Scope: &common.InstrumentationScope{Name: "kubevitals.transitions", Version: "1.2.3"},
			Spans: []*trace.Span{
				{
					TraceId:           trace1,
					SpanId:            root,
					Name:              "pod start",
					Kind:              trace.Span_SPAN_KIND_INTERNAL,
					StartTimeUnixNano: 1_794_773_520_000_000_000,
					EndTimeUnixNano:   1_794_773_529_500_000_000,
					Attributes: []*common.KeyValue{
						text("k8s.pod.name", "wéb-0"),
						{Key: "kubevitals.reconstructed", Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}},
						{Key: "k8s.container.restart_count", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 300}}},
						{Key: "kubevitals.container.exit_code", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: -1}}},
						{Key: "container.image.tags", Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{
							Values: []*common.AnyValue{{Value: &common.AnyValue_StringValue{StringValue: "2"}}},
						}}}},
					},
					Events: []*trace.Span_Event{{
						TimeUnixNano: 1_794_773_521_000_000_000,
						Name:         "readiness probe failed",
						Attributes:   []*common.KeyValue{text("kubevitals.message", "refused")},
					}},
					Status: &trace.Status{Message: "never seen ready", Code: trace.Status_STATUS_CODE_ERROR},
				},
				{
					TraceId:           trace1,
					SpanId:            []byte("childone"),
					ParentSpanId:      root,
					Name:              "scheduling",
					Kind:              trace.Span_SPAN_KIND_INTERNAL,
					StartTimeUnixNano: 1_794_773_520_000_000_000,
					EndTimeUnixNano:   1_794_773_521_000_000_000,
				},
			},
			SchemaUrl: schema,
		}},
		SchemaUrl: schema,
	}}}
}

// metricsRequest is what src/metrics.rs builds in its test.
func metricsRequest() *collectormetrics.ExportMetricsServiceRequest {
	const start, end = 1_794_773_520_000_000_000, 1_794_773_580_250_000_000
	cumulative := metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	sum := 3.5
	scope := func(all ...*metrics.Metric) []*metrics.ScopeMetrics {
		return []*metrics.ScopeMetrics{{
			Scope:     &common.InstrumentationScope{Name: "kubevitals", Version: "1.2.3"},
			Metrics:   all,
			SchemaUrl: schema,
		}}
	}
	return &collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{
		{
			Resource: &resource.Resource{Attributes: []*common.KeyValue{
				text("service.instance.id", "a-0"),
				text("service.name", "kubevitals"),
				text("service.version", "1.2.3"),
				text("k8s.node.name", "n1"),
			}},
			ScopeMetrics: scope(
				&metrics.Metric{Name: "k8s.node.condition.status", Unit: "{node}", Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{
					DataPoints: []*metrics.NumberDataPoint{
						{
							TimeUnixNano: end,
							Value:        &metrics.NumberDataPoint_AsInt{AsInt: -7},
							Attributes:   []*common.KeyValue{text("k8s.node.condition.type", "Ready")},
						},
						{TimeUnixNano: end, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: 0.25}},
					},
				}}},
				&metrics.Metric{Name: "k8s.container.restart.count", Unit: "{restart}", Data: &metrics.Metric_Sum{Sum: &metrics.Sum{
					DataPoints: []*metrics.NumberDataPoint{{
						StartTimeUnixNano: start,
						TimeUnixNano:      end,
						Value:             &metrics.NumberDataPoint_AsInt{AsInt: 300},
					}},
					AggregationTemporality: cumulative,
					IsMonotonic:            true,
				}}},
			),
			SchemaUrl: schema,
		},
		{
			Resource: &resource.Resource{Attributes: []*common.KeyValue{
				text("service.instance.id", "a-0"),
				text("service.name", "kubevitals"),
				text("service.version", "1.2.3"),
			}},
			ScopeMetrics: scope(
				&metrics.Metric{Name: "http.client.request.duration", Unit: "s", Data: &metrics.Metric_Histogram{Histogram: &metrics.Histogram{
					DataPoints: []*metrics.HistogramDataPoint{{
						StartTimeUnixNano: start,
						TimeUnixNano:      end,
						Count:             303,
						Sum:               &sum,
						BucketCounts:      []uint64{2, 300, 1},
						ExplicitBounds:    []float64{0.1, 1},
						Exemplars: []*metrics.Exemplar{{
							TimeUnixNano:       end,
							Value:              &metrics.Exemplar_AsDouble{AsDouble: 2.5},
							FilteredAttributes: []*common.KeyValue{text("server.address", "wéb")},
						}},
						Attributes: []*common.KeyValue{text("error.type", "timeout")},
					}},
					AggregationTemporality: cumulative,
				}}},
			),
			SchemaUrl: schema,
		},
	}}
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func marshal(message proto.Message) []byte {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		fail(err)
	}
	return encoded
}

func write(name string, contents []byte) {
	if err := os.WriteFile(filepath.Join(os.Args[1], name), contents, 0o644); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
