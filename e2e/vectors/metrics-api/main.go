// Command metrics-api writes the test vectors of crates/serve/metrics-api from the Go code whose bytes that crate
// follows: the types of k8s.io/metrics, and the serializers of k8s.io/apimachinery.
//
// Nothing here depends on the clock or on an unseeded random source, so that a second run writes the same bytes.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

const (
	published  = 1763254228 // 2025-11-16T00:50:28Z
	apiVersion = "metrics.k8s.io/v1beta1"
	metaV1     = "meta.k8s.io/v1"
	version    = "3786559621896929281"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: metrics-api <folder to write the vectors to>")
	}
	folder := os.Args[1]
	scheme := runtime.NewScheme()
	if err := metrics.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, metrics.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	asJSON := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
		jsonserializer.SerializerOptions{StreamingCollectionsEncoding: true})
	asProtobuf := protobuf.NewSerializer(scheme, scheme)

	write := func(name string, encoder runtime.Encoder, object runtime.Object) {
		var out bytes.Buffer
		if err := encoder.Encode(object, &out); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		save(folder, name, out.Bytes())
	}
	for name, object := range map[string]runtime.Object{
		"pod":          withKind(&pods()[1], "PodMetrics"),
		"node":         withKind(&nodes()[0], "NodeMetrics"),
		"pods":         podList(pods()),
		"pods-none":    podList([]metrics.PodMetrics{}),
		"nodes":        nodeList(nodes()),
		"partial-pod":  partial(pods()[1].ObjectMeta),
		"partial-pods": partialList(pods()),
	} {
		write(name+".json", asJSON, object)
		write(name+".pb", asProtobuf, object)
	}
	write("table-pods.json", asJSON, table(pods(), metav1.IncludeMetadata))
	write("table-pods-object.json", asJSON, table(pods(), metav1.IncludeObject))
	write("table-pods-none.json", asJSON, table(nil, metav1.IncludeNone))
	write("table-pods-bare.json", asJSON, table(pods(), metav1.IncludeNone))
	watch(folder, scheme, asJSON, asProtobuf)
}

func pods() []metrics.PodMetrics {
	usage := func(nanocores, bytes int64) v1.ResourceList {
		return v1.ResourceList{
			v1.ResourceCPU:    *resource.NewScaledQuantity(nanocores, resource.Nano),
			v1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI),
		}
	}
	full := usage(5_000_000, 1000)
	full["swap"] = *resource.NewQuantity(24, resource.BinarySI)
	full["ephemeral-storage"] = *resource.NewQuantity(3<<20, resource.BinarySI)
	return []metrics.PodMetrics{
		{
			ObjectMeta: meta("a", "one", nil),
			Timestamp:  at(1763254220),
			Window:     metav1.Duration{Duration: 14964 * time.Millisecond},
			Containers: []metrics.ContainerMetrics{{Name: "main", Usage: usage(4710169, 12533760)}},
		},
		{
			ObjectMeta: meta("a", "two", map[string]string{
				"app": "web", "pod-template-hash": "7d4b9c6f5", "odd/<&>": "a\"b\\c\u2028\té<\x01\b\f",
			}),
			Timestamp: at(1763254219),
			Window:    metav1.Duration{Duration: 60500 * time.Millisecond},
			Containers: []metrics.ContainerMetrics{
				{Name: "main", Usage: usage(12_345_000, 24)},
				{Name: "sidecar", Usage: full},
			},
		},
		{
			ObjectMeta: meta("b", "one", map[string]string{"app": ""}),
			Timestamp:  at(-5),
			Window:     metav1.Duration{Duration: time.Millisecond},
			Containers: []metrics.ContainerMetrics{{Name: "c", Usage: usage(0, 0)}, {Name: "d", Usage: usage(2_000_000_000, 1<<40)}},
		},
	}
}

func nodes() []metrics.NodeMetrics {
	return []metrics.NodeMetrics{{
		ObjectMeta: meta("", "node-1", map[string]string{"kubernetes.io/hostname": "node-1"}),
		Timestamp:  at(1763254221),
		Window:     metav1.Duration{Duration: 10 * time.Second},
		Usage: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewScaledQuantity(1_234_567_891, resource.Nano),
			v1.ResourceMemory: *resource.NewQuantity(8<<30, resource.BinarySI),
		},
	}}
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, CreationTimestamp: at(published)}
}

func at(seconds int64) metav1.Time { return metav1.Time{Time: time.Unix(seconds, 0)} }

func podList(items []metrics.PodMetrics) runtime.Object {
	list := &metrics.PodMetricsList{Items: items}
	list.ResourceVersion = version
	return withKind(list, "PodMetricsList")
}

func nodeList(items []metrics.NodeMetrics) runtime.Object {
	list := &metrics.NodeMetricsList{Items: items}
	list.ResourceVersion = version
	return withKind(list, "NodeMetricsList")
}

func withKind(object runtime.Object, kind string) runtime.Object {
	object.GetObjectKind().SetGroupVersionKind(metrics.SchemeGroupVersion.WithKind(kind))
	return object
}

func partial(meta metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metaV1},
		ObjectMeta: meta,
	}
}

func partialList(pods []metrics.PodMetrics) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metaV1},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
	}
	for _, pod := range pods {
		list.Items = append(list.Items, *partial(pod.ObjectMeta))
	}
	return list
}

// table makes the table that metrics-server and the generic API server make of pods.
func table(pods []metrics.PodMetrics, include metav1.IncludeObjectPolicy) *metav1.Table {
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metaV1}}
	table.ResourceVersion = version
	for i, pod := range pods {
		if i == 0 {
			column := func(name, format, description string) metav1.TableColumnDefinition {
				return metav1.TableColumnDefinition{Name: name, Type: "string", Format: format, Description: description}
			}
			table.ColumnDefinitions = []metav1.TableColumnDefinition{
				column("Name", "name", "Name of the resource"), column("cpu", "quantity", ""),
				column("memory", "quantity", ""), column("Window", "duration", ""),
			}
		}
		sum := v1.ResourceList{}
		for _, container := range pod.Containers {
			for name, amount := range container.Usage {
				total := sum[name]
				total.Add(amount)
				sum[name] = total
			}
		}
		cpu, memory := sum[v1.ResourceCPU], sum[v1.ResourceMemory]
		row := metav1.TableRow{Cells: []any{pod.Name, cpu.String(), memory.String(), pod.Window.Duration.String()}}
		switch include {
		case metav1.IncludeMetadata:
			row.Object.Object = partial(pod.ObjectMeta)
		case metav1.IncludeObject:
			row.Object.Object = withKind(&pods[i], "PodMetrics")
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// watch writes one event as the API server frames it.
func watch(folder string, scheme *runtime.Scheme, asJSON, asProtobuf runtime.Encoder) {
	pod := pods()[1]
	pod.ResourceVersion = "3786559621896912897"
	withKind(&pod, "PodMetrics")

	body := encode(asProtobuf, &pod)
	event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: body}}
	var out bytes.Buffer
	raw := protobuf.NewRawSerializer(scheme, scheme)
	framed := protobuf.LengthDelimitedFramer.NewFrameWriter(&out)
	if err := raw.Encode(event, framed); err != nil {
		log.Fatal(err)
	}
	save(folder, "event.pb", out.Bytes())

	event = &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: bytes.TrimSpace(encode(asJSON, &pod))}}
	out.Reset()
	if err := json.NewEncoder(io.Writer(&out)).Encode(event); err != nil {
		log.Fatal(err)
	}
	save(folder, "event.json", out.Bytes())
}

func encode(encoder runtime.Encoder, object runtime.Object) []byte {
	var out bytes.Buffer
	if err := encoder.Encode(object, &out); err != nil {
		log.Fatal(err)
	}
	return out.Bytes()
}

func save(folder, name string, content []byte) {
	if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
		log.Fatal(err)
	}
}
